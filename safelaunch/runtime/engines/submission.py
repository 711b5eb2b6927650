"""Submits a run to an engine from its login node, or leaves nothing of it.

All run directories are written before the engine knows of the job: it may start at once. What the
caller's environment has is in a file that only the user may read; the engine gets none of it.
"""

from __future__ import annotations

import errno
import os
import time

from safelaunch.runtime import processes
from safelaunch.runtime.engines import join
from safelaunch.runtime.engines.slurm import submit as slurm
from safelaunch.runtime.records import EngineJob, JobEnvironment, Record, RunRecord
from safelaunch.runtime.start import live_runs, run_dir
from safelaunch.runtime.start.starter import StartFailed, without_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCRIPT = "sbatch.sh"  # in the folder of node 0


class SubmitAnswer(Record):
    """How a submission went."""

    run_dir: str = ""  # directory of node 0
    run: RunRecord = RunRecord()  # its run.json
    job: EngineJob = EngineJob()  # the job that the engine has


def submit(
    request: Mapping[str, Any], bodies: bytes, environ: Mapping[str, str], home: str
) -> SubmitAnswer:
    """Write the run directories of all nodes, and submit the run's script.

    `nodes` has for each node `run` for run.json and `files` [[name, size]], whose bytes follow each
    other; `script` is the text of the engine's script, `submit` the command that takes its path as
    the last word, `prefix` the words before the engine's programs; `env` is added to the
    environment of the job. Raises OSError and StartFailed, with nothing left behind.
    """
    runs = [RunRecord.from_json(node["run"]) for node in request["nodes"]]
    run, created = runs[0], list[str]()
    folder = run_dir.node_dir(run.id, 0, home)
    if not os.path.isdir(run.cwd):
        raise FileNotFoundError(errno.ENOENT, "the working directory does not exist", run.cwd)
    variables = {**without_own(environ), **without_own(request.get("env") or {})}
    try:
        with live_runs.lock(home, run.id):
            position = 0
            for node, record in zip(request["nodes"], runs):  # noqa: B905 - Python 3.10
                files = []
                for name, size in node["files"]:
                    files.append((name, bodies[position : position + size]))
                    position += size
                _write_node(record, files, variables, home, created)
        path = os.path.join(folder, SCRIPT)
        with open(path, "wb") as file:
            file.write(request["script"].encode())
        job = _hand_over(request, path, run.id, environ)
        job.write(folder)
    except live_runs.StartLocked as e:
        raise StartFailed(str(e)) from e
    except slurm.UnclearSubmitError as e:
        raise StartFailed(f"{e}; whether the job was accepted is not known") from e
    except slurm.SubmitError as e:
        _undo(folder, created)
        raise StartFailed(str(e)) from e
    except BaseException:
        _undo(folder, created)
        raise
    return SubmitAnswer(run_dir=folder, run=run, job=job)


def _write_node(
    run: RunRecord,
    files: list[tuple[str, bytes]],
    variables: Mapping[str, str],
    home: str,
    created: list[str],
) -> None:
    """Write the folder of a node. Raises OSError."""
    node_dir = run_dir.node_dir(run.id, run.node, home)
    run.hostname, run.created_at = os.uname().nodename, time.time()
    run.starter = processes.identity(os.getpid())
    if not run_dir.lock(node_dir, created):
        raise FileExistsError(errno.EEXIST, "the run directory exists; start again", node_dir)
    run_dir.reserve_log(run.log, created)
    run.created = [path for path in created if not path.startswith(os.path.dirname(node_dir))]
    os.mkdir(os.path.join(node_dir, join.UNBOUND), 0o700)
    run_dir.fill(node_dir, run, files, home)
    JobEnvironment(variables=dict(variables)).write(node_dir)


def _hand_over(
    request: Mapping[str, Any], path: str, run_id: str, environ: Mapping[str, str]
) -> EngineJob:
    """Submit the script, never twice. Raises SubmitError."""
    argv, prefix = [*request["submit"], path], request.get("prefix") or ()
    job = EngineJob(name="slurm", submitted_at=time.time(), prefix=list(prefix))
    try:
        job.job, job.cluster = slurm.submit(argv, environ)
    except slurm.UnclearSubmitError:
        accepted = slurm.job_of_comment(prefix, run_id, environ)
        if accepted is None:
            raise
        job.job, job.cluster = accepted
    return job


def _undo(folder: str, created: list[str]) -> None:
    """Remove what a submission has made: nothing of it has started."""
    nodes = [path for path in created if os.path.dirname(path) == os.path.dirname(folder)]
    for node_dir in nodes:
        run_dir.remove(node_dir, [node_dir])
    run_dir.remove(folder, [path for path in created if path not in nodes])
