"""Reads a run's node directory and judges it honestly; stops a run from outside. Never guesses.

States: pending, running, succeeded, failed, stopped, lost, unknown. `lost`: the supervisor is gone
and no end was recorded. `unknown`: the run lives on another machine and cannot be looked at here.
"""

from __future__ import annotations

import json
import os
import time

from safelaunch.runtime import claim, processes
from safelaunch.runtime.json_files import write_json
from safelaunch.runtime.records import Process, RunRecord, Status

ENDED = ("succeeded", "failed", "stopped")
START_LIMIT = 60.0  # seconds from the claim to the first status, before that one counts as lost
CALLED_OFF = "called off before it started"


def current_status(node_dir: str) -> Status:
    """Return the recorded status with the state as it is now.

    Of a lost run also `alive`, how many processes are left, and `as_of`, when the rest was known.
    """
    status = _status(node_dir)
    if status is None:
        return _without_status(node_dir)
    supervisor = status.supervisor or Process()
    if status.state in ENDED or processes.is_alive(supervisor):
        return status
    if _is_elsewhere(status.hostname, supervisor):
        status.state, status.reason = "unknown", "runs on %s" % status.hostname
        return status
    newer = _status(node_dir)  # it may just have ended
    if newer is not None and newer.state in ENDED:
        return newer
    status.state = "lost"
    status.as_of = _changed(os.path.join(node_dir, Status.FILE))
    if supervisor.boot_id != processes.machine()["boot_id"]:
        status.alive, status.reason = 0, "the machine was rebooted"
        return status
    status.alive = len(remaining(node_dir, status.id))
    status.reason = "the supervisor is gone"
    return status


def _changed(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _is_elsewhere(hostname: str | None, process: Process) -> bool:
    machine = processes.machine()
    if process.boot_id == machine["boot_id"]:
        return process.pidns != machine["pidns"]
    return hostname != os.uname().nodename


def _without_status(node_dir: str) -> Status:
    """Return the status of a start: it goes on while its starter or supervisor is running."""
    run_id = os.path.basename(os.path.dirname(node_dir))
    try:
        age = time.time() - os.stat(node_dir).st_mtime
    except OSError:
        return _without_directory(node_dir, run_id)
    run = RunRecord.read(node_dir) or RunRecord()
    status = Status(id=run_id, name=run.name or None)
    if run.starter is not None and _is_elsewhere(run.hostname, run.starter):
        status.state, status.reason = "unknown", "was started on %s" % run.hostname
        return status
    if _status(node_dir) is not None:
        return current_status(node_dir)  # it has just been written
    busy = run.starter is not None and processes.is_alive(run.starter)
    return _in_start(node_dir, status, age, busy=busy)


def _in_start(node_dir: str, status: Status, age: float, *, busy: bool) -> Status:
    """Complete a status by the claim and the supervisor; `busy`: the starter is running."""
    claimant = claim.holder(node_dir)
    claimed = claimant is not None and not claim.is_abandoned(node_dir)
    # the supervisor makes logs/ before its first status
    has_files = any(_is_there(node_dir, file) for file in (Status.FILE, "logs"))
    if claimant is None and (has_files or not _is_there(node_dir, RunRecord.FILE)):
        removed = _removed(node_dir, status.id)  # its supervisor is just making it again
        if removed is not None:
            return removed
    if claimant and claimed and (age > START_LIMIT or has_files):
        status.state = "running"
        status.supervisor = processes.identity(*claimant)
        status.reason = "its status.json cannot be read; the supervisor lives"
        return status
    # on a slow machine a start takes as long as it takes; a starter that was killed may have left a
    # supervisor on its way, in tmux not yet to be seen: give that a moment
    starts = busy or (claimed and age < START_LIMIT) or processes.supervisors(node_dir)
    if not has_files and (starts or age < 3.0):  # noqa: PLR2004 - seconds, nowhere else
        status.state = "pending"
        return status
    status.state = "lost"
    status.alive = len(remaining(node_dir, status.id))
    status.reason = "it never started"
    if claimant is not None:
        status.reason = "the supervisor is gone, and no status can be read"
    return status


def _without_directory(node_dir: str, run_id: str) -> Status:
    """Return the status of a run whose directory was removed: its supervisor makes it again."""
    status = _removed(node_dir, run_id)
    if status is not None:
        return status
    if _status(node_dir) is not None:
        return current_status(node_dir)  # it has just been made again, by one that has ended since
    alive = len(remaining(node_dir, run_id))
    return Status(id=run_id, state="lost", reason="the run directory is gone", alive=alive)


def _removed(node_dir: str, run_id: str) -> Status | None:
    """Return the status of a run without its files whose supervisor lives; None where none does."""
    for pid, start in processes.supervisors(node_dir).items():
        return Status(
            id=run_id,
            state="running",
            supervisor=processes.identity(pid, start),
            reason="the run directory was removed; its supervisor makes it again",
        )
    return None


def _status(node_dir: str) -> Status | None:
    """Return status.json if it is one that a supervisor wrote, whole."""
    status = Status.read(node_dir)
    return status if status is not None and "state" in status else None


def _is_there(node_dir: str, name: str) -> bool:
    return os.path.lexists(os.path.join(node_dir, name))


def remaining(node_dir: str, run_id: str) -> dict[int, int]:
    """Return {pid: start} of what is left of a run: recorded processes and marked ones."""
    return {**(processes.marked(run_id) if run_id else {}), **recorded(node_dir)}


def recorded(node_dir: str) -> dict[int, int]:
    """Return {pid: start} of the recorded processes that live."""
    try:
        living = set(processes.pids())  # of thousands of records few are of a pid that exists
    except OSError:
        living = None
    machine, alive = processes.machine(), {}
    try:
        with open(os.path.join(node_dir, "processes.jsonl"), "rb") as file:
            for line in file:
                pid, start = _process(line, living, machine)
                if pid and processes.start_time(pid) == start:
                    alive[pid] = start
    except OSError:
        pass
    return alive


def _process(line: bytes, living: set[int] | None, machine: dict[str, str]) -> tuple[int, int]:
    """Return pid and start time of a line; pid 0 where it is of none that may live here."""
    digits = line.partition(b'"pid": ')[2].partition(b",")[0]
    if living is not None and digits.isdigit() and int(digits) not in living:
        return 0, 0
    try:
        process = Process.from_json(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, AttributeError):
        return 0, 0  # a half-written line
    if process.boot_id != machine["boot_id"] or process.pidns != machine["pidns"]:
        return 0, 0
    return process.pid, process.start


# -- stopping --------------------------------------------------------------------------------------


def stop(node_dir: str, grace: float) -> Status:
    """Stop a run and return its status; `alive` counts what could not be ended (normally 0).

    A living supervisor is asked to stop and does it; without one the processes are ended here.
    """
    status = _after_start(node_dir)
    if status.state in ("running", "pending") and status.supervisor is not None:
        status = _ask_to_stop(node_dir, status.supervisor, grace)
    run_id = os.path.basename(os.path.dirname(node_dir))
    left = before = remaining(node_dir, run_id)
    if left and status.state != "unknown":
        late = time.monotonic() + grace
        left = processes.end_all(
            lambda: remaining(node_dir, run_id), lambda: time.monotonic() >= late
        )
    status = current_status(node_dir)
    if status.state == "lost":
        status = _record_cleaned(node_dir, status, left, had_processes=bool(before))
    if status.state in ENDED:
        from safelaunch.runtime import backends  # noqa: PLC0415 - at the end of a run only

        backends.clean_up(status)
    status.alive = len(left)
    return status


def _after_start(node_dir: str) -> Status:
    """Return the status once a start in progress is called off, or has got through."""
    status = current_status(node_dir)
    if status.state == "pending" and status.supervisor is None and claim.acquire(node_dir):
        status.state, status.reason, status.ended_at = "stopped", CALLED_OFF, time.time()
        _write(node_dir, status)
        return status
    deadline = time.monotonic() + START_LIMIT
    while status.state == "pending" and time.monotonic() < deadline:
        if status.supervisor is not None:
            break
        time.sleep(0.02)
        status = current_status(node_dir)
    return status


def _ask_to_stop(node_dir: str, supervisor: Process, grace: float) -> Status:
    """Ask the supervisor to stop, wait until it has, and return the status."""
    try:
        write_json(os.path.join(node_dir, "stop.json"), {"grace": grace})
    except OSError:
        pass  # a full disk: it stops with the default grace
    asked = processes.ask(supervisor.pid, supervisor.start)
    deadline = time.monotonic() + grace + 30
    status = current_status(node_dir)
    while asked and status.state in ("running", "pending") and time.monotonic() < deadline:
        time.sleep(0.02)
        status = current_status(node_dir)
    return status


def _record_cleaned(
    node_dir: str, status: Status, left: dict[int, int], *, had_processes: bool
) -> Status:
    """Record the end of a lost run; where nothing lived any more, its last sign of life."""
    if left or not status.id:
        return status
    status.reason = "%s; stopped afterwards" % (status.reason or "the supervisor is gone")
    status.state, status.ended_at = "stopped", time.time()
    last_sign = None if had_processes else _last_sign(node_dir, status.as_of)
    if last_sign is not None:
        status.ended_at = status.last_sign_at = last_sign
    status.alive = None
    _write(node_dir, status)
    return status


def _last_sign(node_dir: str, as_of: float | None) -> float | None:
    """Return when a run was last known to live: its newest log, or its status."""
    times = [] if as_of is None else [as_of]
    for folder, _, names in os.walk(os.path.join(node_dir, "logs")):
        changed = [_changed(os.path.join(folder, name)) for name in names]
        times += [time for time in changed if time is not None]
    return max(times) if times else None


def _write(node_dir: str, status: Status) -> None:
    try:
        status.write(node_dir)
    except OSError:
        pass  # the answer on the screen still holds
