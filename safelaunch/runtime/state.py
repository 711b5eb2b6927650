"""Reads a run's node directory and judges it honestly; stops a run from outside. Never guesses.

States: pending, running, succeeded, failed, stopped, lost, unknown. `lost`: the supervisor is gone
and no end was recorded. `unknown`: the run lives on another machine and cannot be looked at here.
"""

from __future__ import annotations

import json
import os
import time

from safelaunch.runtime import procs

ENDED = ("succeeded", "failed", "stopped")
START_LIMIT = 60.0  # seconds that a start may take before it counts as lost
RESERVED = 8192  # bytes kept for the last status of a run
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
    """Return the recorded status with the state as it is now, and `alive` when it is lost."""
    status = _status(node_dir)
    if status is None:
        return _without_status(node_dir)
    supervisor = status.get("supervisor")
    who = supervisor if isinstance(supervisor, dict) else {}
    if status.get("state") in ENDED or procs.is_alive(who):
        return status
    if _elsewhere(status, who):
        return dict(status, state="unknown", reason="runs on %s" % status.get("hostname"))
    again = read_json(os.path.join(node_dir, "status.json"))  # it may just have ended
    if again is not None and again.get("state") in ENDED:
        return again
    if who.get("boot_id") != procs.machine()["boot_id"]:
        return dict(status, state="lost", alive=0, reason="the machine was rebooted")
    alive = remaining(node_dir, str(status.get("id", "")))
    return dict(status, state="lost", alive=len(alive), reason="the supervisor is gone")


def _elsewhere(status: dict[str, object], who: dict[str, object]) -> bool:
    here = procs.machine()
    if who.get("boot_id") == here["boot_id"]:
        return who.get("pidns") != here["pidns"]
    return status.get("hostname") != os.uname().nodename


def _without_status(node_dir: str) -> dict[str, object]:
    """Judge a start that has got nowhere yet: it goes on while its starter or supervisor lives."""
    try:
        age = time.time() - os.stat(node_dir).st_mtime
    except OSError:
        return {"state": "lost", "reason": "the run directory is gone", "alive": 0}
    run_id = os.path.basename(os.path.dirname(node_dir))
    run = read_json(os.path.join(node_dir, "run.json")) or {}
    name = {"id": run_id, "name": run.get("name")}
    starter = run.get("starter")
    if isinstance(starter, dict) and _elsewhere(run, starter):
        return dict(name, state="unknown", reason="was started on %s" % run.get("hostname"))
    if _status(node_dir) is not None:
        return judge(node_dir)  # it has just been written
    claimant = claimed_by(node_dir)
    claimed = claimant is not None and not claim_is_dead(node_dir)
    # the supervisor makes logs/ before its first status
    begun = any(_is_there(node_dir, file) for file in ("status.json", "logs"))
    if claimant and claimed and (age > START_LIMIT or begun):
        who = dict(procs.machine(), pid=claimant[0], start=claimant[1])
        reason = "its status.json cannot be read; the supervisor lives"
        return dict(name, state="running", supervisor=who, reason=reason)
    busy = claimed or (isinstance(starter, dict) and procs.is_alive(starter))
    # a starter that was killed may have left a supervisor on its way: give that a moment
    if age < (START_LIMIT if busy else 3.0) and not begun:
        return dict(name, state="pending")
    alive = remaining(node_dir, run_id)
    reason = "it never started"
    if claimant is not None:
        reason = "the supervisor is gone, and no status can be read"
    return dict(name, state="lost", alive=len(alive), reason=reason)


def _status(node_dir: str) -> dict[str, object] | None:
    """Return status.json if it is one that a supervisor wrote, whole."""
    status = read_json(os.path.join(node_dir, "status.json"))
    return status if status is not None and isinstance(status.get("state"), str) else None


def _is_there(node_dir: str, name: str) -> bool:
    return os.path.lexists(os.path.join(node_dir, name))


def remaining(node_dir: str, run_id: str) -> dict[int, int]:
    """Return {pid: start} of what is left of a run: recorded processes and marked ones."""
    left = procs.marked(run_id) if run_id else {}
    here = procs.machine()
    try:
        with open(os.path.join(node_dir, "processes.jsonl"), "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            who = json.loads(line.decode("utf-8", "replace"))
            pid, start = int(who["pid"]), int(who["start"])
        except (ValueError, KeyError, TypeError):
            continue  # a half-written line
        if who.get("boot_id") != here["boot_id"] or who.get("pidns") != here["pidns"]:
            continue
        if procs.start_time(pid) == start:
            left[pid] = start
    return left


# -- the claim: whether a start happens is decided once --------------------------------------------


def claim(node_dir: str) -> bool:
    """Take the right to start this node, or to call its start off; the first to ask has it."""
    who = "%d %d\n" % (os.getpid(), procs.start_time(os.getpid()) or 0)
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
    return claimant is not None and procs.start_time(claimant[0]) != claimant[1]


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
    left = remaining(node_dir, run_id)
    if left and status.get("state") != "unknown":
        late = time.monotonic() + grace
        left = procs.end_all(lambda: remaining(node_dir, run_id), lambda: time.monotonic() >= late)
    status = judge(node_dir)
    if status.get("state") == "lost":
        status = _record_cleaned(node_dir, status, left)
    if status.get("state") in ENDED:
        drop_socket(status.get("socket"))
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
    told = procs.ask(int(str(supervisor["pid"])), int(str(supervisor["start"])))
    deadline = time.monotonic() + grace + 30
    status = judge(node_dir)
    while told and status.get("state") in ("running", "pending") and time.monotonic() < deadline:
        time.sleep(0.02)
        status = judge(node_dir)
    return status


def _record_cleaned(
    node_dir: str, status: dict[str, object], left: dict[int, int]
) -> dict[str, object]:
    if left or not status.get("id"):
        return status
    reason = "%s; stopped afterwards" % status.get("reason", "the supervisor is gone")
    ended = dict(status, state="stopped", reason=reason, ended_at=time.time())
    ended.pop("alive", None)
    _write(os.path.join(node_dir, "status.json"), ended)
    return ended


def drop_socket(path: object) -> None:
    """Remove the socket of a tmux server that has ended: tmux leaves it behind."""
    if not isinstance(path, str):
        return
    try:
        os.unlink(path)
        if os.path.basename(os.path.dirname(path)).startswith("sl-"):
            os.rmdir(os.path.dirname(path))  # a folder made for this one socket
    except OSError:
        pass


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


def reserve(path: str) -> None:
    """Set space aside: a disk that fills up must not hide how the run ended. Raises OSError."""
    fd = os.open(path + ".reserve", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(b" " * RESERVED)


def write_reserved(path: str, data: dict[str, object]) -> None:
    """Write a JSON file into the space set aside; blanks behind JSON mean nothing.

    What does not fit goes without its longest values.
    """
    text = json.dumps(data).encode()
    rest = dict(data)
    while len(text) > RESERVED and rest:
        del rest[max(rest, key=lambda key: len(json.dumps(rest[key])))]
        text = json.dumps(rest).encode()
    with open(path + ".reserve", "r+b") as file:
        file.write(text.ljust(RESERVED))
    os.replace(path + ".reserve", path)


def release(path: str) -> None:
    """Give up the space that was set aside."""
    _remove(path + ".reserve")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
