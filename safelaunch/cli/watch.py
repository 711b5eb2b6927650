"""Following a run's log to its end, and saying how it ended."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from safelaunch.cli import say
from safelaunch.cli.failure import block, folded
from safelaunch.cli.reading import read_on
from safelaunch.runs import failure
from safelaunch.runtime import state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from safelaunch.runs import Run

_TICK = 0.015  # seconds between two looks at a growing log


def attempts(run: Run) -> list[int]:
    """Return the numbers of the attempts that have logs, the newest last."""
    try:
        names = os.listdir(os.path.join(run.node_dir, "logs"))
    except OSError:
        return []
    return sorted(int(n[8:]) for n in names if n.startswith("attempt-") and n[8:].isdigit())


def log_path(run: Run, rank: str | None = None, attempt: int | None = None) -> str:
    """Return the path of the combined log, or of one rank's or the launcher's.

    Without a number it is the newest attempt's.
    """
    number = attempt or max(attempts(run), default=1)
    name = "combined.log" if rank is None else f"{rank}.log"
    return os.path.join(run.node_dir, "logs", f"attempt-{number}", name)


def follow(run: Run) -> Mapping[str, Any]:
    """Stream the combined log to stdout until the run has ended; return its last status."""
    write = writer(sys.stdout.isatty())
    for data in following(run, 1):
        write(data)
    write(b"")
    return state.judge(run.node_dir)


def following(
    run: Run, attempt: int, rank: str | None = None, position: int = 0
) -> Iterator[bytes]:
    """Yield a log as it grows, from an attempt and a position in its log to the run's end."""
    last = b"\n"
    while True:
        number = attempt

        def goes_on(number: int = number) -> bool:
            return not is_over(run) and max(attempts(run), default=1) <= number

        for data in growing(log_path(run, rank, number), goes_on, position):
            last = data
            yield data
        later = [n for n in attempts(run) if n > number]
        if not later:
            return
        attempt, position = later[0], 0
        end = b"" if last.endswith((b"\r", b"\n")) else b"\n"
        yield end + b"[safelaunch] attempt %d\n" % attempt
        last = b"\n"


def is_over(run: Run) -> bool:
    """Whether nothing more will come: the run has ended, or nobody is left to write."""
    status = state.judge(run.node_dir)
    if status.get("state") == "lost":
        return not status.get("alive")
    return status.get("state") not in ("pending", "running")


def is_live(run: Run) -> bool:
    """Whether something of the run may still be there."""
    return state.judge(run.node_dir).get("state") not in state.ENDED


def growing(path: str, goes_on: Callable[[], bool], position: int = 0) -> Iterator[bytes]:
    """Yield a file's bytes as they come, until `goes_on` says no and the end is reached."""
    last_look, going = 0.0, True
    while True:
        position, data = read_on(path, position)
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
        end = data.rfind(b"\n") + 1
        if end and b"\r" not in data and b"\r" not in rest:
            out.write(rest + data[:end])  # nothing overwrites anything: most logs, and large ones
            out.flush()
            rest = data[end:]
            return
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
    """Say how a run ended, and why; return 0 if it succeeded, else 1."""
    say(f"{run.id}: {describe(status)}")
    lines = reasons(run, status)
    for line in lines:
        say(f"  {line}")
    if status.get("state") == "succeeded":
        return 0
    if not any(line.startswith("log ") for line in lines):
        say(f"  log       safelaunch logs {run.id}")
    say(f"  details   safelaunch show {run.id}")
    return 1


def reasons(run: Run, status: Mapping[str, Any]) -> list[str]:
    """Return what is known of why a run is as it is: failure, hang, restarts, warnings."""
    width = shutil.get_terminal_size().columns - 2
    found = failure(run, status)
    lines = block(found, width, run.id) if found else []
    hang = status.get("hang")
    if isinstance(hang, dict):
        if status.get("state") not in state.ENDED:
            lines += _hanging(hang, width)
        if hang.get("folder") and not hang.get("over"):
            lines.append(f"{'stacks':<10}{shlex.quote(str(hang['folder']))}")
    restart = str(status.get("recovery") or "").removeprefix("no restart: ")
    advice = str(status.get("advice") or "")
    if restart and not (advice and advice in restart):
        lines += folded("restart", f"none: {restart}", width, 4)
    for label, text in (("advice", advice), ("warning", str(status.get("warning") or ""))):
        if text:
            lines += folded(label, text, width, 6)
    return lines


def _hanging(hang: Mapping[str, Any], width: int) -> list[str]:
    """Return what is known of a hang that is suspected."""
    if hang.get("over"):
        silent = duration(float(hang.get("silent") or 0))
        return folded("hang", f"suspected for {silent}; it goes on by itself", width, 2)
    since = hang.get("since")
    silent = duration(max(0.0, time.time() - since)) if isinstance(since, (int, float)) else "long"
    what = "no step" if hang.get("kind") == "stepless" else "no output and no step"
    lines = folded("hang", f"suspected: {what} for {silent}", width, 2)
    for line in str(hang.get("summary") or "").splitlines():
        lines += folded("", line, width, 3)
    return lines


def describe(status: Mapping[str, Any]) -> str:
    """Return a run's state in words: `failed, exit code 1, ran 12.0 s`."""
    words = [_state(status)]
    if status.get("reason"):
        words.append(str(status["reason"]))
    words += _attempts(status)
    if status.get("state") == "lost":
        words.append(f"{status.get('alive', 0)} processes alive")
    if status.get("leftovers"):
        words.append(f"{status['leftovers']} processes outlived the launcher and were ended")
    if status.get("unkillable"):
        words.append(f"{len(status['unkillable'])} processes cannot be ended (in the kernel)")
    begun, ended, ran = (status.get(key) for key in ("started_at", "ended_at", "elapsed"))
    if isinstance(ran, (int, float)):
        words.append(f"ran {duration(ran)}")
    elif isinstance(begun, (int, float)) and isinstance(ended, (int, float)):
        words.append(f"ran {duration(max(0.0, ended - begun))}")
    return ", ".join(words)


def _state(status: Mapping[str, Any]) -> str:
    shown, code = str(status.get("state")), status.get("exit_code")
    if shown == "stopped" and status.get("stopped_by"):
        return f"stopped ({status.get('signal') or status['stopped_by']})"
    if shown in ("succeeded", "running", "pending"):
        return shown
    if status.get("signal"):
        return f"{shown}, the launcher was ended by {status['signal']}"
    if shown == "failed" and code == 0:
        return "failed, though the launcher ended with 0"
    return shown if code is None else f"{shown}, exit code {code}"


def _attempts(status: Mapping[str, Any]) -> list[str]:
    attempts = status.get("attempts") or []
    waiting = status.get("waiting")
    if isinstance(waiting, dict) and status.get("state") == "running":
        left = max(0.0, float(waiting.get("until", 0)) - time.time())
        return [f"attempt {len(attempts) + 1} in {duration(left)}: {waiting.get('why')}"]
    return [f"attempt {len(attempts)}"] if len(attempts) > 1 else []


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
