"""Submits a run to an engine from its login node, or leaves nothing of it.

All run directories are written before the engine knows of the job: it may start at once. What the
caller's environment has is in a file that only the user may read; the engine gets none of it.
"""

from __future__ import annotations

import errno
import os
import time

from safelaunch.runtime import json_files, processes
from safelaunch.runtime.engines import join
from safelaunch.runtime.engines.slurm import submit as slurm
from safelaunch.runtime.records import EngineJob, JobEnvironment, Record, RunRecord
from safelaunch.runtime.start import live_runs, run_dir
from safelaunch.runtime.start.starter import StartFailed, start_recorder, without_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


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
    other; `script` is path and text of the engine's script, `submit` the command that submits it,
    `comment` what it is called there, `prefix` the words before the engine's programs; `env` is
    added to the environment of the job, and `python` records the code. Raises OSError, StartFailed
    and SubmitError, with nothing left behind; where the engine did not answer, the folders stay.
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
        path, text = request["script"]
        with open(path, "wb") as file:
            file.write(text.encode())
        created.append(path)
        job = _hand_over(request, folder, environ)
    except live_runs.StartLocked as e:
        raise StartFailed(str(e)) from e
    except slurm.UnclearSubmitError:
        raise
    except BaseException:
        _undo(folder, created)
        raise
    start_recorder(folder, run, environ, request["python"])
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


def _hand_over(request: Mapping[str, Any], folder: str, environ: Mapping[str, str]) -> EngineJob:
    """Submit the script, never twice. Raises SubmitError.

    Whoever ends this process meanwhile, the run is one of the engine: its job can be looked up.
    """
    argv, prefix = request["submit"], request.get("prefix") or ()
    job = EngineJob(
        name="slurm", comment=request["comment"], submitted_at=time.time(), prefix=list(prefix)
    )
    job.write(folder)
    try:
        job.job, job.cluster = slurm.submit(argv, _without_options(environ))
    except slurm.UnclearSubmitError:
        accepted = slurm.job_of_comment(prefix, request["comment"], environ)
        if accepted is None or not accepted[0]:
            raise
        job.job, job.cluster = accepted
    job.write(folder)
    return job


def _without_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing beats what the script asks for.

    sbatch takes its options from SBATCH_* and, inside of another job, from SLURM_* too.
    """
    own = ("SBATCH_", "SLURM_")
    return {k: v for k, v in environ.items() if k == "SLURM_CONF" or not k.startswith(own)}


def _undo(folder: str, created: list[str]) -> None:
    """Remove what a submission has made: nothing of it has started."""
    for path in reversed(created):
        if os.path.isdir(path):
            run_dir.remove(path, [path])
        else:
            json_files.remove(path)
    run_dir.remove(folder, [])
