"""Reads a run's node directory and judges it honestly; stops a run from outside. Never guesses.

States: pending, running, succeeded, failed, stopped, lost, unknown. `lost`: the supervisor is gone
and no end was recorded. `unknown`: the run lives on another machine and cannot be looked at here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    from safelaunch.runtime import procs
except ImportError:  # run from a run directory
    import procs  # type: ignore[no-redef]

ENDED = ("succeeded", "failed", "stopped")
START_LIMIT = 60.0  # seconds without a status after which a start counts as lost


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
    status = read_json(os.path.join(node_dir, "status.json"))
    if status is None:
        return _without_status(node_dir)
    state = status.get("state")
    if state in ENDED:
        return status
    supervisor = status.get("supervisor")
    who = supervisor if isinstance(supervisor, dict) else {}
    if procs.is_alive(who):
        return status
    if _elsewhere(status, who):
        return dict(status, state="unknown", reason="runs on %s" % status.get("hostname"))
    again = read_json(os.path.join(node_dir, "status.json"))  # it may just have ended
    if again is not None and again.get("state") in ENDED:
        return again
    alive = remaining(node_dir, str(status.get("id", "")))
    rebooted = who.get("boot_id") != procs.machine()["boot_id"]
    reason = "the machine was rebooted" if rebooted else "the supervisor is gone"
    return dict(status, state="lost", alive=len(alive), reason=reason)


def _elsewhere(status: dict[str, object], who: dict[str, object]) -> bool:
    here = procs.machine()
    if who.get("boot_id") == here["boot_id"]:
        return who.get("pidns") != here["pidns"]
    return status.get("hostname") != socket.gethostname()


def _without_status(node_dir: str) -> dict[str, object]:
    run = read_json(os.path.join(node_dir, "run.json")) or {}
    if not os.path.isdir(node_dir):
        return {"state": "lost", "reason": "the run directory is gone", "alive": 0}
    age = time.time() - os.stat(node_dir).st_mtime
    name = {"id": run.get("id"), "name": run.get("name")}
    if age < START_LIMIT:
        return dict(name, state="pending")
    alive = remaining(node_dir, str(run.get("id", "")))
    return dict(name, state="lost", alive=len(alive), reason="it never started")


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


def stop(node_dir: str, grace: float) -> dict[str, object]:
    """Stop a run and return its status; `alive` counts what could not be ended (normally 0).

    A living supervisor is told to stop and does it; without one the processes are ended here.
    """
    status = judge(node_dir)
    supervisor = status.get("supervisor")
    if status.get("state") in ("running", "pending") and isinstance(supervisor, dict):
        _write(os.path.join(node_dir, "stop.json"), {"grace": grace})
        told = procs.send(int(supervisor["pid"]), int(supervisor["start"]), signal.SIGTERM)
        deadline = time.monotonic() + grace + 30
        while told and time.monotonic() < deadline:
            status = judge(node_dir)
            if status.get("state") != "running":
                break
            time.sleep(0.02)
    run_id = str(status.get("id") or os.path.basename(os.path.dirname(node_dir)))
    left = remaining(node_dir, run_id)
    if left and status.get("state") != "unknown":
        left = procs.end_all(lambda: remaining(node_dir, run_id), grace)
    status = judge(node_dir)
    if status.get("state") == "lost":
        status = _record_cleaned(node_dir, status, left)
    return dict(status, alive=len(left))


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


def _write(path: str, data: dict[str, object]) -> None:
    try:
        write_json(path, data)
    except OSError:
        pass  # the answer on the screen still holds


def write_json(path: str, data: dict[str, object]) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never half of it."""
    temporary = "%s.%d" % (path, os.getpid())
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(data, indent=1).encode())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
