"""Submits a run to an engine from its login node, or leaves nothing of it.

All run directories are written before the engine knows of the job: it may start at once. What the
caller's environment has is in a file that only the user may read; the engine gets none of it.
"""

from __future__ import annotations

import errno
import os
import time

from safelaunch.runtime import json_files, processes
from safelaunch.runtime.engines import table
from safelaunch.runtime.engines.errors import SubmitError, UnclearSubmitError
from safelaunch.runtime.parts import PartsError, preparation
from safelaunch.runtime.records import (
    EngineJob,
    FanOutSpec,
    JobEnvironment,
    Record,
    RunRecord,
)
from safelaunch.runtime.start import live_runs, run_dir
from safelaunch.runtime.start.starter import StartFailed, start_recorder, without_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from safelaunch.runtime.engines.table import Engine

POLL = 0.1  # seconds between two looks at a program
PROGRAM_LIMIT = 60.0  # seconds that a program which submits may take
UNDO_PATIENCE = 90.0  # seconds: a submission under way has the lock while sbatch may not answer


class SubmitAnswer(Record):
    """How a submission went."""

    run_dir: str = ""  # directory of node 0
    run: RunRecord = RunRecord()  # its run.json
    job: EngineJob = EngineJob()  # the job that the engine has


def submit(
    request: Mapping[str, Any], bodies: bytes, environ: Mapping[str, str], home: str
) -> SubmitAnswer:
    """Write the run directories of all nodes, and submit the run's script.

    A second request for one run, after a connection that dropped, returns the job of the first.
    `nodes` has for each node `run` for run.json and `files` [[name, size]], whose bytes follow each
    other; `script` is path and text of the engine's script, `submit` what the engine's module takes
    to submit it, `comment` what it is called there, `cluster` which one of several has it, `prefix`
    the words before the engine's programs; `env` is added to the environment of the job, and
    `python` records the code. Raises OSError, StartFailed and SubmitError, with nothing left
    behind; where the engine did not answer, the folders stay.
    """
    runs = [RunRecord.from_json(node["run"]) for node in request["nodes"]]
    run, created = runs[0], list[str]()
    engine = table.load(run.engine.name if run.engine is not None else "")
    engine.check(request, environ)
    folder = run_dir.node_dir(run.id, 0, home)
    if not os.path.isdir(run.cwd):
        raise FileNotFoundError(errno.ENOENT, "the working directory does not exist", run.cwd)
    inside = run.engine is not None and run.engine.image
    if run.engine is not None and inside:  # with what it sees of this machine, which must be there
        os.makedirs(run.engine.home, 0o700, exist_ok=True)
    variables = {} if inside else without_own(environ)
    variables.update(without_own(request.get("env") or {}))
    try:
        with live_runs.lock(home, run.id):
            if os.path.lexists(os.path.join(folder, EngineJob.FILE)):
                return _earlier_submission(folder, environ)
            position = 0
            for node, record in zip(request["nodes"], runs):  # noqa: B905 - Python 3.10
                files = []
                for name, size in node["files"]:
                    files.append((name, bodies[position : position + size]))
                    position += size
                _write_node(record, files, variables, home, created)
        request = _of_missing_parts(engine, request, folder)
        path, text = request["script"]
        with open(path, "wb") as file:
            file.write(text.encode())
        created.append(path)
        job = _hand_over(engine, request, run, folder, environ)
    except live_runs.StartLocked as e:
        raise StartFailed(str(e)) from e
    except UnclearSubmitError:
        raise
    except BaseException:
        _undo(folder, created)
        raise
    start_recorder(folder, run, environ, request["python"])
    return SubmitAnswer(run_dir=folder, run=run, job=job)


def _of_missing_parts(engine: Engine, request: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """Return a request that submits the parts which have to run, of a run that has some.

    Their folders and pieces are made, and what an earlier run has done is taken over. Raises
    OSError, StartFailed.
    """
    spec = FanOutSpec.read(folder)
    if spec is None or not spec.is_array:
        return request
    try:
        return engine.with_tasks(request, preparation.prepare_array(folder, spec))
    except PartsError as e:
        raise StartFailed(f"the parts: {e}") from e


def _earlier_submission(folder: str, environ: Mapping[str, str]) -> SubmitAnswer:
    """Return the answer of an earlier request for the same run. Raises UnclearSubmitError."""
    job, run = EngineJob.read(folder) or EngineJob(), RunRecord.read(folder) or RunRecord()
    if not job.job:
        _await_program(job)
        accepted = table.load(job.name).find(job, os.path.dirname(folder), environ)
        if accepted is None or not accepted[0]:
            raise UnclearSubmitError("an earlier request was interrupted")
        job.job, job.cluster = accepted
        job.program = None
        job.write(folder)
    return SubmitAnswer(run_dir=folder, run=run, job=job)


def undo(run_id: str, environ: Mapping[str, str], home: str) -> None:
    """Cancel a submission, or leave nothing of one that was interrupted. Raises SubmitError."""
    folder = run_dir.node_dir(run_id, 0, home)
    try:
        with live_runs.lock(home, run_id, UNDO_PATIENCE):
            job = EngineJob.read(folder)
            if job is not None:
                _await_program(job)
                table.load(job.name).withdraw(job, os.path.dirname(folder), environ)
            _remove(os.path.dirname(folder))
    except live_runs.StartLocked as e:
        raise SubmitError(str(e)) from e


def _remove(folder: str) -> None:
    """Remove the folder of a run of which nothing has started, and what was created for it."""
    first = os.path.join(folder, "node-0")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    created = [path for name in names for path in _created_for(os.path.join(folder, name))]
    _undo(first, [*created, *(os.path.join(folder, name) for name in names)])


def _created_for(node_dir: str) -> list[str]:
    run = RunRecord.read(node_dir)
    return [] if run is None else list(run.created)


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
    run_dir.fill(node_dir, run, files, home)
    JobEnvironment(variables=dict(variables)).write(node_dir)


def _hand_over(
    engine: Engine,
    request: Mapping[str, Any],
    run: RunRecord,
    folder: str,
    environ: Mapping[str, str],
) -> EngineJob:
    """Submit the script, never twice. Raises SubmitError.

    Whoever ends this process meanwhile, the run is one of the engine: its job can be looked up.
    """
    job = EngineJob(
        name=run.engine.name if run.engine is not None else "",
        comment=request["comment"],
        cluster=request.get("cluster") or "",
        submitted_at=time.time(),
        prefix=list(request.get("prefix") or ()),
        token_from=request.get("token_from") or "",
    )
    job.write(folder)

    def record(pid: int) -> None:
        job.program = processes.identity(pid)
        job.write(folder)

    try:
        job.job, job.cluster = engine.submit(request, environ, record)
    except UnclearSubmitError:
        accepted = engine.find(job, os.path.dirname(folder), environ)
        if accepted is None or not accepted[0]:
            raise
        job.job, job.cluster = accepted
    job.program = None
    job.write(folder)
    return job


def _await_program(job: EngineJob) -> None:
    """Wait while the program of an interrupted request may still submit the job."""
    deadline = time.monotonic() + PROGRAM_LIMIT
    while job.program is not None and time.monotonic() < deadline:
        if not processes.is_alive(job.program):
            return
        time.sleep(POLL)


def _undo(folder: str, created: list[str]) -> None:
    """Remove what a submission has made: nothing of it has started."""
    for path in reversed(created):
        if os.path.isdir(path):
            run_dir.remove(path, [path])
        else:
            json_files.remove(path)
    run_dir.remove(folder, [])
