"""Following a run's log to its end, and saying how it ended."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from safelaunch.cli import say
from safelaunch.runtime import state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from safelaunch.runs import Run

_TICK = 0.015  # seconds between two looks at a growing log
_CHUNK = 1 << 16


def log_path(run: Run, rank: str | None = None) -> str:
    """Return the path of the newest attempt's combined log, or of one rank's or the launcher's."""
    logs = os.path.join(run.node_dir, "logs")
    try:
        attempts = [
            int(n[8:]) for n in os.listdir(logs) if n.startswith("attempt-") and n[8:].isdigit()
        ]
    except OSError:
        attempts = []
    name = "combined.log" if rank is None else f"{rank}.log"
    return os.path.join(logs, f"attempt-{max(attempts, default=1)}", name)


def follow(run: Run) -> Mapping[str, Any]:
    """Stream the combined log to stdout until the run has ended; return its last status."""
    write = writer(sys.stdout.isatty())
    for data in growing(log_path(run), lambda: not is_over(run)):
        write(data)
    write(b"")
    return state.judge(run.node_dir)


def is_over(run: Run) -> bool:
    """Whether nothing more will come: the run has ended, or nobody is left to write."""
    status = state.judge(run.node_dir)
    if status.get("state") == "lost":
        return not status.get("alive")
    return status.get("state") not in ("pending", "running")


def is_live(run: Run) -> bool:
    """Whether something of the run may still be there."""
    return state.judge(run.node_dir).get("state") not in state.ENDED


def growing(path: str, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """Yield a file's bytes as they come, until `goes_on` says no and the end is reached."""
    position, last_look, going = 0, 0.0, True
    while True:
        position, data = _read(path, position)
        if data:
            yield data
            continue
        if not going:
            return
        if time.monotonic() - last_look > 4 * _TICK:
            last_look = time.monotonic()
            going = goes_on()
            if not going:
                continue  # one more read: the end may have come with the last lines
        time.sleep(_TICK)


def _read(path: str, position: int) -> tuple[int, bytes]:
    """Return the new position and what was read; a file that was begun anew is read anew."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < position:
                position = 0
            file.seek(position)
            data = file.read(_CHUNK)
    except OSError:
        return position, b""
    return position + len(data), data


def writer(raw: bool) -> Callable[[bytes], None]:
    """Return a function that writes log bytes to stdout; an empty call flushes.

    On a terminal bytes pass as they are, so progress bars move. Elsewhere (a file, CI) each line is
    written once, in its last state.
    """
    out = sys.stdout.buffer
    rest = b""

    def as_is(data: bytes) -> None:
        out.write(data)
        out.flush()

    def settled(data: bytes) -> None:
        nonlocal rest
        lines = (rest + data).split(b"\n")
        rest = _short(lines.pop()) if data else b""
        if not data and lines and not lines[-1]:
            lines.pop()
        out.writelines(last_state(line) + b"\n" for line in lines)
        out.flush()

    return as_is if raw else settled


def _short(rest: bytes) -> bytes:
    """Return an unfinished line without what it has overwritten: progress bars never end."""
    done, cr, open_part = rest.rpartition(b"\r")
    return last_state(done) + cr + open_part


def last_state(line: bytes) -> bytes:
    """Return what a terminal would show of a line whose parts overwrite each other (CR)."""
    parts = [part for part in line.split(b"\r") if part.strip()]
    return parts[-1] if parts else b""


def outcome(run: Run, status: Mapping[str, Any]) -> int:
    """Say how a run ended; return 0 if it succeeded, else 1."""
    say(f"{run.id}: {describe(status)}")
    if status.get("warning"):
        say(f"warning: {status['warning']}")
    if status.get("state") == "succeeded":
        return 0
    say(f"  log    safelaunch logs {run.id}")
    say(f"  state  safelaunch show {run.id}")
    return 1


def describe(status: Mapping[str, Any]) -> str:
    """Return a run's state in words: `failed, exit code 1, after 12 s`."""
    words = [str(status.get("state"))]
    if status.get("state") == "stopped" and status.get("stopped_by"):
        words[0] += f" ({status.get('signal') or status['stopped_by']})"
    elif status.get("signal"):
        words.append(f"the launcher was ended by {status['signal']}")
    elif status.get("exit_code") is not None and status.get("state") != "succeeded":
        words.append(f"exit code {status['exit_code']}")
    if status.get("reason"):
        words.append(str(status["reason"]))
    if status.get("state") == "lost":
        words.append(f"{status.get('alive', 0)} processes alive")
    if status.get("leftovers"):
        words.append(f"{status['leftovers']} processes outlived the launcher and were ended")
    if status.get("unkillable"):
        words.append(f"{len(status['unkillable'])} processes cannot be ended (in the kernel)")
    begun, ended = status.get("started_at"), status.get("ended_at")
    if isinstance(begun, (int, float)) and isinstance(ended, (int, float)):
        words.append(f"ran {duration(max(0.0, ended - begun))}")
    return ", ".join(words)


def duration(seconds: float) -> str:
    """Return a time span for people: 8.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes} min {int(seconds % 60)} s"
    if days == 0:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"
