"""Reads a run's node directory and judges it honestly; stops a run from outside. Never guesses.

States: pending, running, succeeded, failed, stopped, lost, unknown. `lost`: the supervisor is gone
and no end was recorded. `unknown`: the run lives on another machine and cannot be looked at here.
"""

from __future__ import annotations

import json
import os
import time

from safelaunch.runtime import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ENDED = ("succeeded", "failed", "stopped")
START_LIMIT = 60.0  # seconds from the claim to the first status, before that one counts as lost
RESERVED = 8192  # bytes kept for the last status of a run
RESERVED_FAILURE = 64 << 10  # and for why it failed: 64 ranks, an exception and its causes
CALLED_OFF = "called off before it started"


def read_json(path: str) -> dict[str, object] | None:
    """Return the JSON object in a file, or None if there is none that can be read."""
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read().decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def judge(node_dir: str) -> dict[str, object]:
    """Return the recorded status with the state as it is now.

    Of a lost run also `alive`, how many processes are left, and `as_of`, when the rest was known.
    """
    status = _status(node_dir)
    if status is None:
        return _without_status(node_dir)
    supervisor = status.get("supervisor")
    who = supervisor if isinstance(supervisor, dict) else {}
    if status.get("state") in ENDED or processes.is_alive(who):
        return status
    if _elsewhere(status, who):
        return dict(status, state="unknown", reason="runs on %s" % status.get("hostname"))
    again = read_json(os.path.join(node_dir, "status.json"))  # it may just have ended
    if again is not None and again.get("state") in ENDED:
        return again
    status = dict(status, state="lost", as_of=_changed(os.path.join(node_dir, "status.json")))
    if who.get("boot_id") != processes.machine()["boot_id"]:
        return dict(status, alive=0, reason="the machine was rebooted")
    alive = remaining(node_dir, str(status.get("id", "")))
    return dict(status, alive=len(alive), reason="the supervisor is gone")


def _changed(path: str) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _elsewhere(status: dict[str, object], who: dict[str, object]) -> bool:
    here = processes.machine()
    if who.get("boot_id") == here["boot_id"]:
        return who.get("pidns") != here["pidns"]
    return status.get("hostname") != os.uname().nodename


def _without_status(node_dir: str) -> dict[str, object]:
    """Judge a start that has got nowhere yet: it goes on while its starter or supervisor lives."""
    run_id = os.path.basename(os.path.dirname(node_dir))
    try:
        age = time.time() - os.stat(node_dir).st_mtime
    except OSError:
        return _without_directory(node_dir, run_id)
    run = read_json(os.path.join(node_dir, "run.json")) or {}
    name = {"id": run_id, "name": run.get("name")}
    starter = run.get("starter")
    if isinstance(starter, dict) and _elsewhere(run, starter):
        return dict(name, state="unknown", reason="was started on %s" % run.get("hostname"))
    if _status(node_dir) is not None:
        return judge(node_dir)  # it has just been written
    busy = isinstance(starter, dict) and processes.is_alive(starter)
    return _in_start(node_dir, name, age, busy=busy)


def _in_start(
    node_dir: str, name: dict[str, object], age: float, *, busy: bool
) -> dict[str, object]:
    """Judge by the claim and the supervisor; `busy`: the starter lives."""
    claimant = claimed_by(node_dir)
    claimed = claimant is not None and not claim_is_dead(node_dir)
    # the supervisor makes logs/ before its first status
    begun = any(_is_there(node_dir, file) for file in ("status.json", "logs"))
    if claimant is None and (begun or not _is_there(node_dir, "run.json")):
        found = _removed(node_dir, str(name["id"]))  # its supervisor is just making it again
        if found is not None:
            return found
    if claimant and claimed and (age > START_LIMIT or begun):
        who = dict(processes.machine(), pid=claimant[0], start=claimant[1])
        reason = "its status.json cannot be read; the supervisor lives"
        return dict(name, state="running", supervisor=who, reason=reason)
    # on a slow machine a start takes as long as it takes; a starter that was killed may have left a
    # supervisor on its way, in tmux not yet to be seen: give that a moment
    starts = busy or (claimed and age < START_LIMIT) or processes.supervisors(node_dir)
    if not begun and (starts or age < 3.0):  # noqa: PLR2004 - seconds, nowhere else
        return dict(name, state="pending")
    alive = remaining(node_dir, str(name["id"]))
    reason = "it never started"
    if claimant is not None:
        reason = "the supervisor is gone, and no status can be read"
    return dict(name, state="lost", alive=len(alive), reason=reason)


def _without_directory(node_dir: str, run_id: str) -> dict[str, object]:
    """Judge a run whose directory somebody has removed: the supervisor makes it again."""
    found = _removed(node_dir, run_id)
    if found is None and _status(node_dir) is not None:
        return judge(node_dir)  # it has just been made again, by one that has ended since
    alive = remaining(node_dir, run_id) if found is None else {}
    reason = "the run directory is gone"
    return found or {"id": run_id, "state": "lost", "reason": reason, "alive": len(alive)}


def _removed(node_dir: str, run_id: str) -> dict[str, object] | None:
    """Return the status of a run without its files whose supervisor lives; None where none does."""
    for pid, start in processes.supervisors(node_dir).items():
        return {
            "id": run_id,
            "state": "running",
            "supervisor": dict(processes.machine(), pid=pid, start=start),
            "reason": "the run directory was removed; its supervisor makes it again",
        }
    return None


def _status(node_dir: str) -> dict[str, object] | None:
    """Return status.json if it is one that a supervisor wrote, whole."""
    status = read_json(os.path.join(node_dir, "status.json"))
    return status if status is not None and isinstance(status.get("state"), str) else None


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
    here, found = processes.machine(), {}
    try:
        with open(os.path.join(node_dir, "processes.jsonl"), "rb") as file:
            for line in file:
                pid, start = _record(line, living, here)
                if pid and processes.start_time(pid) == start:
                    found[pid] = start
    except OSError:
        pass
    return found


def _record(line: bytes, living: set[int] | None, here: dict[str, str]) -> tuple[int, int]:
    """Return pid and start time of a record; pid 0 where it is of none that may live here."""
    told = line.partition(b'"pid": ')[2].partition(b",")[0]
    if living is not None and told.isdigit() and int(told) not in living:
        return 0, 0
    try:
        who = json.loads(line.decode("utf-8", "replace"))
        if who.get("boot_id") != here["boot_id"] or who.get("pidns") != here["pidns"]:
            return 0, 0
        return int(who["pid"]), int(who["start"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, 0  # a half-written line


# -- the claim: whether a start happens is decided once --------------------------------------------


def claim(node_dir: str) -> bool:
    """Take the right to start this node, or to call its start off; the first to ask has it."""
    who = "%d %d\n" % (os.getpid(), processes.start_time(os.getpid()) or 0)
    try:
        fd = os.open(
            os.path.join(node_dir, "claim"),
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            0o600,
        )
    except OSError:
        return False
    try:
        os.write(fd, who.encode())
    except OSError:
        pass  # a full disk: the claim itself holds
    finally:
        os.close(fd)
    return True


def claimed_by(node_dir: str) -> tuple[int, int] | None:
    """Return (pid, start time) of who has the claim, or None if nobody has said so."""
    try:
        with open(os.path.join(node_dir, "claim"), "rb") as file:
            pid, start = file.read().split()
        return int(pid), int(start)
    except (OSError, ValueError):
        return None


def claim_is_dead(node_dir: str) -> bool:
    """Whether who took the claim is gone."""
    claimant = claimed_by(node_dir)
    return claimant is not None and processes.start_time(claimant[0]) != claimant[1]


# -- stopping --------------------------------------------------------------------------------------


def stop(node_dir: str, grace: float) -> dict[str, object]:
    """Stop a run and return its status; `alive` counts what could not be ended (normally 0).

    A living supervisor is told to stop and does it; without one the processes are ended here.
    """
    status = _after_start(node_dir)
    supervisor = status.get("supervisor")
    if status.get("state") in ("running", "pending") and isinstance(supervisor, dict):
        status = _tell(node_dir, supervisor, grace)
    run_id = os.path.basename(os.path.dirname(node_dir))
    left = found = remaining(node_dir, run_id)
    if left and status.get("state") != "unknown":
        late = time.monotonic() + grace
        left = processes.end_all(
            lambda: remaining(node_dir, run_id), lambda: time.monotonic() >= late
        )
    status = judge(node_dir)
    if status.get("state") == "lost":
        status = _record_cleaned(node_dir, status, left, bool(found))
    if status.get("state") in ENDED:
        clean_up(status)
    return dict(status, alive=len(left))


def _after_start(node_dir: str) -> dict[str, object]:
    """Return the status once a start in progress is called off, or has got through."""
    status = judge(node_dir)
    if status.get("state") == "pending" and "supervisor" not in status and claim(node_dir):
        status = dict(status, state="stopped", reason=CALLED_OFF, ended_at=time.time())
        _write(os.path.join(node_dir, "status.json"), status)
        return status
    deadline = time.monotonic() + START_LIMIT
    while status.get("state") == "pending" and time.monotonic() < deadline:
        if "supervisor" in status:
            break
        time.sleep(0.02)
        status = judge(node_dir)
    return status


def _tell(node_dir: str, supervisor: dict[str, object], grace: float) -> dict[str, object]:
    """Tell the supervisor to stop, and wait until it has."""
    _write(os.path.join(node_dir, "stop.json"), {"grace": grace})
    told = processes.ask(int(str(supervisor["pid"])), int(str(supervisor["start"])))
    deadline = time.monotonic() + grace + 30
    status = judge(node_dir)
    while told and status.get("state") in ("running", "pending") and time.monotonic() < deadline:
        time.sleep(0.02)
        status = judge(node_dir)
    return status


def _record_cleaned(
    node_dir: str, status: dict[str, object], left: dict[int, int], lived: bool
) -> dict[str, object]:
    """Record the end of a lost run; where nothing lived any more, its last sign of life."""
    if left or not status.get("id"):
        return status
    reason = "%s; stopped afterwards" % status.get("reason", "the supervisor is gone")
    ended = dict(status, state="stopped", reason=reason, ended_at=time.time())
    sign = None if lived else _last_sign(node_dir, status.get("as_of"))
    if sign is not None:
        ended.update(ended_at=sign, last_sign_at=sign)
    ended.pop("alive", None)
    _write(os.path.join(node_dir, "status.json"), ended)
    return ended


def _last_sign(node_dir: str, known: object) -> float | None:
    """Return when a run was last known to live: its newest log, or its status."""
    found = [float(known)] if isinstance(known, (int, float)) else []
    for folder, _, names in os.walk(os.path.join(node_dir, "logs")):
        times = [_changed(os.path.join(folder, name)) for name in names]
        found += [time for time in times if time is not None]
    return max(found) if found else None


def clean_up(record: Mapping[str, object]) -> None:
    """Remove what the backend of a run that has ended leaves behind: run.json or its status."""
    from safelaunch.runtime import backends  # noqa: PLC0415 - at the end of a run only

    backend, handle = backends.from_record(record)
    backend.clean_up(handle)


# -- writing ---------------------------------------------------------------------------------------


def _write(path: str, data: dict[str, object]) -> None:
    try:
        write_json(path, data)
    except OSError:
        pass  # the answer on the screen still holds


def write_json(path: str, data: dict[str, object]) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never half of it."""
    temporary = "%s.%d" % (path, os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(data, indent=1).encode())
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def reserve(path: str, size: int = RESERVED) -> None:
    """Set space aside: a disk that fills up must not hide how the run ended. Raises OSError."""
    fd = os.open(path + ".reserve", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(b" " * size)


def write_reserved(path: str, data: dict[str, object]) -> None:
    """Write a JSON file into the space set aside; blanks behind JSON mean nothing. Raises OSError.

    What does not fit goes with its longest texts and lists cut short.
    """
    with open(path + ".reserve", "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.write(_fitting(data, size).ljust(size))
    os.replace(path + ".reserve", path)


def _fitting(data: dict[str, object], size: int) -> bytes:
    text = json.dumps(data).encode()
    while len(text) > size:
        shorter = _shortened(data)
        if shorter == data:
            break  # it has nothing that could be cut: names and numbers alone
        data = shorter if isinstance(shorter, dict) else data
        text = json.dumps(data).encode()
    return text


def _shortened(value: object) -> object:
    """Return a JSON value with the longest that it holds at half its length."""
    if isinstance(value, str):
        return value[: len(value) // 2]
    if isinstance(value, list):
        return value[: len(value) // 2]
    if isinstance(value, dict) and value:
        longest = max(value, key=lambda key: len(json.dumps(value[key])))
        return {**value, longest: _shortened(value[longest])}
    return value


def release(path: str) -> None:
    """Give up the space that was set aside."""
    _remove(path + ".reserve")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
