"""The state of a run, from its node directory and its processes; and stopping it from outside.

States: pending, running, succeeded, failed, stopped, lost, unknown. `lost`: the supervisor is gone
and no end was recorded. `unknown`: the run is on another machine, whose processes are not visible.
"""

# ruff: noqa: PLC0415 - backends: at the end of a run only

from __future__ import annotations

import json
import os
import time

from safelaunch.runtime import cgroup, claim, processes
from safelaunch.runtime.containers import container_end
from safelaunch.runtime.records import AttemptDropped, Process, RunRecord, Status, StopRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import StatusSummary

ENDED = ("succeeded", "failed", "stopped")
MIRROR = "mirror"  # a file in the folder of a node that is on another machine
START_LIMIT = 60.0  # seconds from the claim to the first status; then the run counts as lost
# line of supervisor.log above the traceback of what ended it
OWN_ERROR = "the supervisor ends by an error of its own"
ERROR_LIMIT = 64 << 10  # bytes: a traceback
COPY_PATIENCE = 5.0  # seconds for the logs of a run without supervisor to be complete
OFF_PATIENCE = 86400.0  # seconds in which a machine that was to be turned off may answer again
SETTLING = 3.0  # seconds in which a supervisor may not be visible in tmux yet


def current_status(node_dir: str) -> Status:
    """Return the recorded status, with the state as it is now.

    Of a lost run also `alive`, how many processes are left, and `as_of`, the time of the record.
    """
    status = _recorded_status(node_dir)
    if status is None:
        return _status_without_record(node_dir)
    supervisor = status.supervisor or Process()
    if status.state not in ENDED:
        _add_dropped(status, node_dir)  # a full disk keeps the supervisor from writing it
    if status.state in ENDED:
        container_end.clean_up(node_dir)
    if status.state in ENDED or processes.is_alive(supervisor):
        return _with_ending(status, node_dir, supervisor)
    if _is_elsewhere(node_dir, status.hostname, supervisor):
        status.state, status.reason = "unknown", f"runs {_place(status.hostname, supervisor)}"
        return status
    newer = _recorded_status(node_dir)  # it may just have ended
    if newer is not None and newer.state in ENDED:
        return newer
    end = status.node_end
    if end is not None and end.state in ENDED:
        status.state, status.exit_code = end.state, end.exit_code
        status.reason = "the supervisor was gone before the other nodes had ended"
        return status
    return _lost(status, node_dir, supervisor)


def _with_ending(status: Status, node_dir: str, supervisor: Process) -> Status:
    """Complete the status of a run that has ended: its supervisor may have more to do."""
    if (
        not status.has_live_end
        or processes.is_alive(supervisor)
        or _is_elsewhere(node_dir, status.hostname, supervisor)
    ):
        return status
    newer = _recorded_status(node_dir)  # it may just have done the last of it
    if newer is not None and not newer.has_live_end:
        return newer
    if status.ending is not None:
        is_off = supervisor.boot_id != processes.machine()["boot_id"]
        left = {} if is_off else remaining(node_dir, status.id)
        status.alive = len(left) or None
        status.ending.state, status.ending.shutdown_at = "lost", None
        step = status.ending.steps[-1].name if status.ending.steps else "the rest"
        if is_off and step == "shutdown":
            status.ending.state, status.ending.what = "done", ""  # it was off since
            return status
        what = "the machine was restarted" if is_off else "the supervisor is gone"
        status.ending.what = f"{what}; {step} was not finished, or its end is not known"
        if left:
            status.ending.what += f"; {len(left)} of its processes are alive, which `stop` ends"
    return status


def _lost(status: Status, node_dir: str, supervisor: Process) -> Status:
    """Complete the status of a run whose supervisor is gone without a recorded end."""
    if container_end.is_settling(node_dir):
        status.reason = "the supervisor is gone; the end of its container is being recorded"
        return status
    status.state = "lost"
    status.as_of = _modified(os.path.join(node_dir, Status.FILE))
    if supervisor.boot_id != processes.machine()["boot_id"]:
        status.alive, status.reason = 0, "the machine was rebooted"
        return status
    end = container_end.settle(node_dir)
    if end is not None and end.is_oom:
        return _recorded_status(node_dir) or status
    status.alive = len(remaining(node_dir, status.id))
    if status.cgroup and not status.alive:
        cgroup.remove(status.cgroup)  # nobody else will
    run = None if end is None else RunRecord.read(node_dir)
    if end is not None and run is not None and run.container is not None:
        status.reason = _last_error(node_dir) or container_end.reason(end, run.container)
        return status
    status.reason = _last_error(node_dir) or _loss_reason(supervisor)
    return status


def _last_error(node_dir: str) -> str:
    """Return the error by which a supervisor has ended, and where its traceback is, or ""."""
    path = os.path.join(node_dir, "supervisor.log")
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - ERROR_LIMIT))
            lines = file.read(ERROR_LIMIT).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    if OWN_ERROR not in lines:
        return ""
    last = next(line for line in reversed(lines) if line)
    return f"the supervisor ended by an error of its own: {last[:200]} ({path})"


def _add_dropped(status: Status, node_dir: str) -> None:
    """Add what the logs of the current attempt lack, as their copier has counted it."""
    logs = os.path.join(node_dir, "logs", f"attempt-{max(1, len(status.attempts))}")
    newer = (AttemptDropped.read(logs) or AttemptDropped()).logs
    files = [log.file for log in newer]
    if newer:
        older = [log for log in status.dropped if log.file not in files]
        status.dropped = [*older, *newer]


def _modified(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _is_elsewhere(node_dir: str, hostname: str | None, process: Process) -> bool:
    """Whether a process may be alive where this one cannot see it."""
    machine = processes.machine()
    if process.boot_id == machine["boot_id"]:
        return process.pidns != machine["pidns"] and not claim.is_lock_free(node_dir)
    return hostname != os.uname().nodename


def _place(hostname: str | None, process: Process) -> str:
    if process.boot_id == processes.machine()["boot_id"]:
        return f"in another container (pid namespace) of this machine, {hostname}"
    return f"on {hostname}"


def _loss_reason(supervisor: Process) -> str:
    if supervisor.pidns != processes.machine()["pidns"]:
        return "the supervisor is gone, with the container (pid namespace) that it ran in"
    return "the supervisor is gone"


def _status_without_record(node_dir: str) -> Status:
    """Return the status of a start: it goes on while its starter or supervisor is running."""
    run_id = os.path.basename(os.path.dirname(node_dir))
    modified = _modified(node_dir)
    if modified is None:
        return _status_without_directory(node_dir, run_id)
    run = RunRecord.read(node_dir) or RunRecord()
    status = Status(id=run_id, name=run.name or None)
    if run.starter is not None and _is_elsewhere(node_dir, run.hostname, run.starter):
        place = _place(run.hostname, run.starter)
        status.state, status.reason = "unknown", f"was started {place}"
        return status
    if _recorded_status(node_dir) is not None:
        return current_status(node_dir)  # it has just been written
    busy = run.starter is not None and processes.is_alive(run.starter)
    return _status_of_start(node_dir, status, time.time() - modified, busy=busy)


def _status_of_start(node_dir: str, status: Status, age: float, *, busy: bool) -> Status:
    """Complete a status by the claim and the supervisor; `busy`: the starter is running."""
    claimant = claim.holder(node_dir)
    claimed = claimant is not None and not claim.is_abandoned(node_dir)
    # the supervisor writes its first status before it makes logs/
    has_files = _exists(node_dir, Status.FILE) or _exists(node_dir, "logs")
    if claimant is None and (has_files or not _exists(node_dir, RunRecord.FILE)):
        removed = _removed(node_dir, status.id)  # its supervisor is just making it again
        if removed is not None:
            return removed
    if claimant and claimed and (age > START_LIMIT or has_files):
        status.state = "running"
        status.supervisor = processes.identity(*claimant)
        status.reason = "its status.json cannot be read; the supervisor is running"
        return status
    # on a slow machine a start may take longer than any limit; a starter that was killed may have
    # left a supervisor on its way
    starts = busy or (claimed and age < START_LIMIT) or container_end.is_settling(node_dir)
    if not has_files and (starts or age < SETTLING or processes.supervisors(node_dir)):
        status.state = "pending"
        return status
    status.state = "lost"
    status.alive = len(remaining(node_dir, status.id))
    status.reason = "it never started"
    if claimant is not None:
        status.reason = "the supervisor is gone, and no status can be read"
    return status


def _status_without_directory(node_dir: str, run_id: str) -> Status:
    """Return the status of a run whose directory was removed: its supervisor makes it again."""
    status = _removed(node_dir, run_id)
    if status is not None:
        return status
    if _recorded_status(node_dir) is not None:
        return current_status(node_dir)  # it was made again, by a supervisor that has ended since
    alive = len(remaining(node_dir, run_id))
    return Status(id=run_id, state="lost", reason="the run directory is gone", alive=alive)


def _removed(node_dir: str, run_id: str) -> Status | None:
    """Return the status of a run without files whose supervisor is running, else None."""
    for pid, start in processes.supervisors(node_dir).items():
        return Status(
            id=run_id,
            state="running",
            supervisor=processes.identity(pid, start),
            reason="the run directory was removed; its supervisor makes it again",
        )
    return None


def _recorded_status(node_dir: str) -> Status | None:
    """Return status.json if it is one that a supervisor wrote, whole."""
    status = Status.read(node_dir)
    return status if status is not None and "state" in status else None


def _exists(node_dir: str, name: str) -> bool:
    return os.path.lexists(os.path.join(node_dir, name))


def remaining(node_dir: str, run_id: str) -> dict[int, int]:
    """Return {pid: start time} of what is left of a run: marked, recorded, or in its cgroup."""
    marked = processes.marked(run_id) if run_id else {}
    return {**marked, **recorded(node_dir), **(_grouped(node_dir, run_id) or {})}


def _grouped(node_dir: str, run_id: str) -> dict[int, int] | None:
    """Return {pid: start time} of the processes in the run's cgroup; None without one."""
    status = _recorded_status(node_dir)
    pids = cgroup.pids(status.cgroup, run_id) if status is not None and status.cgroup else None
    if pids is None:
        return None
    starts = {pid: processes.start_time(pid) for pid in pids if pid != os.getpid()}
    return {pid: start for pid, start in starts.items() if start is not None}


def recorded(node_dir: str) -> dict[int, int]:
    """Return {pid: start time} of the recorded processes that are alive."""
    try:
        living = set(processes.pids())  # of thousands of records few are of a pid that exists
    except OSError:
        living = None
    machine, alive = processes.machine(), {}
    try:
        with open(os.path.join(node_dir, "processes.jsonl"), "rb") as file:
            for line in file:
                digits = line.partition(b'"pid": ')[2].partition(b",")[0]
                if living is not None and digits.isdigit() and int(digits) not in living:
                    continue
                try:
                    process = Process.from_json(json.loads(line.decode("utf-8", "replace")))
                except (ValueError, AttributeError):
                    continue  # a half-written line
                own = {"boot_id": process.boot_id, "pidns": process.pidns}
                if own == machine and processes.start_time(process.pid) == process.start:
                    alive[process.pid] = process.start
    except OSError:
        pass
    return alive


# -- stopping --------------------------------------------------------------------------------------


def stop(node_dir: str, grace: float) -> Status:
    """Stop a run and return its status; `alive` counts what could not be ended (normally 0).

    A supervisor that is running is asked to stop; without one the processes are ended here.
    """
    status = _after_start(node_dir)
    if status.supervisor is not None and is_active(status):
        _ask_to_stop(node_dir, status.supervisor, grace, had_ended=status.state in ENDED)
        status = current_status(node_dir)
    if status.state in ENDED and status.has_live_end:
        return status  # what is left is its supervisor's
    run_id = os.path.basename(os.path.dirname(node_dir))
    left = before = remaining(node_dir, run_id)
    if left and status.state != "unknown":
        late = time.monotonic() + grace
        left = processes.end_all(
            lambda: remaining(node_dir, run_id), lambda: time.monotonic() >= late
        )
    status = current_status(node_dir)
    if status.state == "lost" and not left:
        left = _end_copier(status)
        _add_dropped(status, node_dir)  # until its end
        _record_end(node_dir, status, left, had_processes=bool(before))
    if status.state in ENDED:
        from safelaunch.runtime import backends

        backends.clean_up(status)
        container_end.await_removal(node_dir)
    if status.ending is not None and status.ending.state == "lost" and not left:
        status.ending.state = "stopped"
        _write(node_dir, status)
    status.alive = len(left)
    return status


def is_active(status: StatusSummary) -> bool:
    """Whether a supervisor has work left: the run, or what follows its end."""
    return status.state in ("running", "pending") or (status.state in ENDED and status.has_live_end)


def is_settled(status: StatusSummary) -> bool:
    """Whether nothing changes any more; a machine that was turned off may stay so for ever."""
    off_at = status.ending.shutdown_at if status.ending is not None else None
    is_off = off_at is not None and time.time() > off_at + OFF_PATIENCE
    return status.state in ENDED and (is_off or not status.has_live_end)


def _after_start(node_dir: str) -> Status:
    """Return the status once a start in progress is cancelled, or is complete."""
    status = current_status(node_dir)
    if status.state == "pending" and status.supervisor is None and claim.acquire(node_dir):
        status.state, status.reason = "stopped", "cancelled before it started"
        status.proof = "claim"
        status.ended_at = time.time()
        _write(node_dir, status)
        return status
    deadline = time.monotonic() + START_LIMIT
    while status.state == "pending" and time.monotonic() < deadline:
        if status.supervisor is not None:
            break
        time.sleep(0.02)
        status = current_status(node_dir)
    return status


def _ask_to_stop(node_dir: str, supervisor: Process, grace: float, *, had_ended: bool) -> None:
    """Ask the supervisor to stop the run, or what follows its end, and wait until it has."""
    try:
        StopRequest(grace=grace, origin=caller()).write(node_dir)
    except OSError:
        pass  # a full disk: it stops with the default grace
    is_sent = processes.terminate(supervisor.pid, supervisor.start)
    deadline = time.monotonic() + grace + 30
    while is_sent and is_active(status := current_status(node_dir)):
        if status.state in ENDED and not had_ended:
            break  # commands follow, as after any end
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)


def caller() -> str:
    """Return the user of this process, and where that user came from over SSH."""
    user = processes.user_name(os.getuid())
    client = os.environ.get("SSH_CONNECTION", "").split()
    return f"{user}, over SSH from {client[0]}" if client else user


def _end_copier(status: Status) -> dict[int, int]:
    """Wait until the process that writes the logs has ended; return {} or, unkillable, itself."""
    copier, late = status.log_copier, time.monotonic() + COPY_PATIENCE
    if copier is None or not processes.is_alive(copier):
        return {}
    own = {copier.pid: copier.start}
    return processes.end_all(
        lambda: own if processes.is_alive(copier) else {}, lambda: time.monotonic() > late
    )


def _record_end(
    node_dir: str, status: Status, left: dict[int, int], *, had_processes: bool
) -> None:
    """Record the end of a lost run; without processes to end, by its last sign of life."""
    if left or not status.id:
        return
    status.reason = f"{status.reason or 'the supervisor is gone'}; stopped afterwards"
    if status.supervisor and status.supervisor.boot_id != processes.machine()["boot_id"]:
        status.proof = "reboot"
    elif _grouped(node_dir, status.id) == {}:
        status.proof = "cgroup"
        cgroup.remove(status.cgroup or "")
    status.state, status.ended_at, status.alive = "stopped", time.time(), None
    last_sign = None if had_processes else _last_sign(node_dir, status.as_of)
    if last_sign is not None:
        status.ended_at = status.last_sign_at = last_sign
    _write(node_dir, status)


def _last_sign(node_dir: str, as_of: float | None) -> float | None:
    """Return the time of a run's newest log or of its status, None without both."""
    times = [as_of]
    for folder, _, names in os.walk(os.path.join(node_dir, "logs")):
        times += [_modified(os.path.join(folder, name)) for name in names]
    return max((time for time in times if time is not None), default=None)


def _write(node_dir: str, status: Status) -> None:
    try:
        status.write(node_dir)
    except OSError:
        pass  # the answer on the screen still holds
