"""Starts a run on this machine, or leaves nothing of it: for `run` and, in the agent, for `remote`.

A start is idempotent by its run id: a second request, after a connection that dropped in the
middle, returns the status of the first.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from types import MappingProxyType

from safelaunch.runtime import PLACE, backends, claim, commands, processes, run_state
from safelaunch.runtime.card_claims import folder_path
from safelaunch.runtime.records import JobEnvironment, Process, Record, RunRecord, Status
from safelaunch.runtime.start import live_runs, run_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from safelaunch.runtime.start.live_runs import LiveRuns

UNDO_GRACE = 2.0  # seconds for the processes of a start that is undone
NO_SPACE = 1 << 17  # free bytes: the first files of a supervisor need about as much


class StartFailed(RuntimeError):  # noqa: N818 - its name is in the messages of the agent
    """The backend or the supervisor did not start."""


class StartAnswer(Record):
    """How a start went."""

    run_dir: str = ""  # directory of the node
    run: RunRecord = RunRecord()  # its run.json
    status: Status = Status()  # its status
    supervisor: Process | None = None  # its supervisor
    recorder: Process | None = None  # the process that writes record.json
    started: bool = False  # false where an earlier start has made the run, or `others` came first
    others: LiveRuns | None = None  # the live runs, where one has come since they were checked


def start(
    request: Mapping[str, Any],
    bodies: bytes,
    environ: Mapping[str, str],
    home: str,
    probes: Mapping[str, commands.RunningCommand] = MappingProxyType({}),
) -> StartAnswer:
    """Start a run: `run` for run.json, `files` [[name, size]] with their bytes, its `python`.

    `run` may name a `backend`; else the best one is chosen. `env` is added to the environment of
    the job, and written nowhere. `checked`, the digest of the runs that a check has seen, lets the
    start answer with those of now where it is another; `probes` are those of backends. Raises
    OSError and StartFailed, with nothing left behind.
    """
    run = RunRecord.from_json(request["run"])
    run.hostname, run.created_at = os.uname().nodename, time.time()
    run.starter = processes.identity(os.getpid())
    node_dir = run_dir.node_dir(run.id, run.node, home)
    if not os.path.isdir(run.cwd):
        raise FileNotFoundError(errno.ENOENT, "the working directory does not exist", run.cwd)
    cards_of_services = (service.cards for service in run.services)
    for request_ in (run.queue, run.cards, *cards_of_services):
        if request_ is not None:
            request_.folder = folder_path(environ)
    environ = without_own(environ)
    created: list[str] = []
    try:
        _choose_backend(run, environ, probes)  # a tmux that hangs must not hold up other starts
        with live_runs.lock(home, run.id):
            is_earlier = os.path.lexists(node_dir)
            checked = None if is_earlier else request.get("checked")
            if checked is not None and checked != live_runs.digest(home, run.id):
                backends.clean_up(run)
                return StartAnswer(others=live_runs.look(home, run.id, is_locked=True))
            if not is_earlier and _make_folder(node_dir, run, home, created):
                run_dir.reserve_log(run.log, created)
                run.created = [path for path in created if path != node_dir]
                run_dir.fill(node_dir, run, _split(request["files"], bodies), home)
        if not created:
            return _earlier_start(node_dir)
        variables, python = without_own(request.get("env") or {}), request["python"]
        job_environ = {**environ, **variables}
        if run.container is not None:  # its interpreter is not of this machine
            _write_environment(node_dir, variables)
            # the engine has its own environment: `ps e` must show no secret
            job_environ = {k: v for k, v in environ.items() if k not in variables}
            environ, python = job_environ, sys.executable
        supervisor = _start_supervisor(node_dir, run, job_environ, python)
        recorder = start_recorder(node_dir, run, environ, python)
    except live_runs.StartLocked as e:
        raise StartFailed(str(e)) from e
    except BaseException:
        _undo(node_dir, run, created)
        raise
    return StartAnswer(
        run_dir=node_dir,
        run=run,
        status=run_state.current_status(node_dir),
        supervisor=supervisor,
        recorder=recorder,
        started=True,
    )


def _make_folder(node_dir: str, run: RunRecord, home: str, created: list[str]) -> bool:
    """Make a node's folder; return False where it exists. Raises StartFailed for a used key."""
    other = live_runs.run_of_key(home, run.key, run.id) if run.key else ""
    if other:
        raise StartFailed(f"the key `{run.key}` has just started {other}: start again to see it")
    return run_dir.lock(node_dir, created)


def without_own(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables without safelaunch's, which would mark the supervisor as part of a run."""
    return {k: v for k, v in environ.items() if not k.startswith("SAFELAUNCH_")}


def undo(run_id: str, node: int) -> None:
    """Remove what a start has made so far: processes, folders, the log."""
    node_dir = run_dir.node_dir(run_id, node)
    if os.path.isdir(node_dir):
        run = RunRecord.read(node_dir) or RunRecord()
        _undo(node_dir, run, [node_dir, *run.created])


def _undo(node_dir: str, run: RunRecord, created: list[str]) -> None:
    is_main = threading.current_thread() is threading.main_thread()
    # a second Ctrl-C must not leave half of it
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    if node_dir in created and os.path.isdir(node_dir):
        run_state.stop(node_dir, UNDO_GRACE)
        # The supervisor may wait for other nodes, which must learn of the stop, and what writes
        # record.json is not part of the job: either could make the folder again.
        late, place = time.monotonic() + UNDO_GRACE, os.path.join(node_dir, PLACE)
        processes.end_all(
            lambda: processes.own_programs(node_dir, place), lambda: time.monotonic() >= late
        )
    run_dir.remove(node_dir, created)
    if created:  # else the handle may be that of an earlier start of this id
        backends.clean_up(run)
    if is_main:
        signal.signal(signal.SIGINT, before)


def _earlier_start(node_dir: str) -> StartAnswer:
    """Return the answer of an earlier start with the same id, once it is complete."""
    deadline = time.monotonic() + run_state.START_LIMIT
    status = run_state.current_status(node_dir)
    while status.state == "pending" and not status.waits_for and time.monotonic() < deadline:
        time.sleep(0.02)
        status = run_state.current_status(node_dir)
    run = RunRecord.read(node_dir) or RunRecord()
    return StartAnswer(run_dir=node_dir, run=run, status=status, started=False)


def _write_environment(node_dir: str, variables: Mapping[str, str]) -> None:
    """Write the variables of a container, which may be secret, for what starts in it."""
    umask = os.umask(0o077)
    os.umask(umask)
    JobEnvironment(variables=dict(variables), umask=umask).write(node_dir)


def _choose_backend(
    run: RunRecord, environ: Mapping[str, str], probes: Mapping[str, commands.RunningCommand]
) -> None:
    """Set the backend of a run, its handle, and why it is not the best one."""
    node = f".{run.node}" if run.node else ""
    backend, run.socket, why = backends.choose(run.id + node, run.backend, environ, probes)
    run.backend = backend.NAME
    run.backend_note = why and f"{why}: started without it; everything but `attach` works"


def _split(files: list[list[Any]], bodies: bytes) -> Iterator[tuple[str, bytes]]:
    start = 0
    for name, size in files:
        yield name, bodies[start : start + size]
        start += size


def _start_supervisor(
    node_dir: str, run: RunRecord, environ: Mapping[str, str], python: str
) -> Process | None:
    """Start the supervisor, and return its identity once it has started the job."""
    parts = ("supervise", "supervisor.py")
    if run.container is not None:
        parts = ("containers", "run_container.py")
    program = os.path.join(node_dir, PLACE, *parts)
    argv = (python, "-I", "-S", "-B", program, node_dir)
    backend, handle = backends.from_record(run)
    try:
        is_coming = backend.start(run.id, handle, argv, cwd=node_dir, environ=environ)
    except OSError as e:
        raise StartFailed(f"the supervisor did not start: {e}") from e
    return await_start(node_dir, is_coming)


def await_start(node_dir: str, is_coming: Callable[[], bool]) -> Process | None:
    """Wait until the supervisor has started the job, or waits for something; return its identity.

    Raises StartFailed.
    """
    deadline = time.monotonic() + run_state.START_LIMIT
    next_check = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        status = Status.read(node_dir)
        if status is not None and (status.state != "pending" or status.waits_for):
            return status.supervisor
        if claim.is_abandoned(node_dir) and Status.read(node_dir) == status:
            break  # it ended without another status
        if time.monotonic() > next_check:
            next_check += 1.0
            if claim.holder(node_dir) is None and not is_coming():
                break  # it was killed before it took the claim
        time.sleep(0.004)
    try:
        with open(os.path.join(node_dir, "supervisor.log"), "rb") as file:
            error = " ".join(file.read().decode("utf-8", "replace").split())[-300:]
    except OSError:
        error = ""
    if not error and _free_bytes(node_dir) < NO_SPACE:
        error = os.strerror(errno.ENOSPC)  # it could not write why
    raise StartFailed("the supervisor did not start" + (f": {error}" if error else ""))


def _free_bytes(folder: str) -> int:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return NO_SPACE
    return disk.f_bavail * disk.f_frsize


def start_recorder(
    node_dir: str, run: RunRecord, environ: Mapping[str, str], python: str
) -> Process | None:
    """Start the process that writes record.json beside the job, and return it."""
    program = os.path.join(node_dir, PLACE, "start", "provenance.py")
    try:
        pid = commands.detach(
            (python, "-B", program, node_dir, run.cwd), cwd=node_dir, environ=environ
        )
    except OSError:
        return None  # without a record the run is still a run
    return processes.identity(pid)
