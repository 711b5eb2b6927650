"""Following a run's log to its end, and saying how it ended."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from safelaunch.cli.output import say, wrap
from safelaunch.cli.runs.failure_block import block, folded
from safelaunch.runs.access import LogRequest
from safelaunch.runtime import run_state
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from safelaunch.runs.access import RunAccess

_PIECES = 64  # of an unfinished line that are held back: in case something overwrites it
_NARROWEST = 40  # columns that a sentence wants, however narrow the terminal


def follow(run: RunAccess) -> Mapping[str, Any]:
    """Stream the combined log to stdout until the run has ended; return its last status."""
    raw = sys.stdout.isatty()
    write = writer(raw)
    for data in follow_log(run, LogRequest(1, follow=True, final_lines=not raw)):
        write(data)
    write(b"")
    return run.status()


def follow_log(run: RunAccess, request: LogRequest) -> Iterator[bytes]:
    """Yield a log; say once where the combined log has ended before the run."""
    is_reported = request.which is not None

    def report_cut(status: Mapping[str, Any]) -> None:
        nonlocal is_reported
        if is_cut(status) and not is_reported:
            is_reported = True
            say(fitted(f"note: {where_cut(status)}: {own_log(run)}"))

    return run.log(request, report_cut)


def is_cut(status: Mapping[str, Any]) -> bool:
    """Whether the supervisor died before the run's end, and with it what only it tells."""
    return status.get("as_of") is not None


def where_cut(status: Mapping[str, Any]) -> str:
    """Say where the log ends of a run whose supervisor has died."""
    more = "go on" if status.get("alive") else "may hold more"
    return f"the combined log ends at the supervisor's death; the ranks' own logs {more}"


def own_log(run: RunAccess) -> str:
    """Return the command that shows what a rank itself wrote, also without a supervisor."""
    return f"safelaunch logs --rank {next(iter(run.ranks()), 0)} {run.id}"


def is_waiting(status: Mapping[str, Any]) -> bool:
    """Whether the run waits for its next attempt, and nothing of it runs."""
    return status.get("state") == "running" and isinstance(status.get("waiting"), dict)


def is_suspected(status: Mapping[str, Any]) -> bool:
    """Whether the run seems to hang now."""
    hang = status.get("hang")
    lives = status.get("state") in ("running", "lost") and not is_waiting(status)
    return lives and isinstance(hang, dict) and not hang.get("over")


def writer(raw: bool) -> Callable[[bytes], None]:
    """Return a function that writes log bytes to stdout; an empty call flushes.

    On a terminal bytes pass as they are, so progress bars move. Elsewhere (a file, CI) each line is
    written once, in its last state.
    """
    out = sys.stdout.buffer
    rest: list[bytes] = []  # of an unfinished line

    def as_is(data: bytes) -> None:
        out.write(data)
        out.flush()

    def settled(data: bytes) -> None:
        nonlocal rest
        if b"\r" not in data and not any(b"\r" in part for part in rest[-1:]):
            # nothing overwrites anything: most logs, and large ones
            end = data.rfind(b"\n") + 1
            if end or len(rest) > _PIECES:
                out.writelines(rest)
                out.write(data[:end])
                rest = [data[end:]]
            else:
                rest.append(data)
        else:
            lines = b"".join([*rest, data]).split(b"\n")
            rest = [_short(lines.pop())]
            out.writelines(last_state(line) + b"\n" for line in lines)
        if not data and any(rest):
            out.write(last_state(b"".join(rest)) + b"\n")
            rest = []
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


def outcome(run: RunAccess, status: Mapping[str, Any]) -> int:
    """Say how a run ended, and why; return 0 if it succeeded, else 1."""
    say(headline(run, without_repeats(run, status)))
    lines = reasons(run, status)
    for line in lines:
        say(f"  {line}")
    if status.get("state") == "succeeded":
        return 0
    if not any(line.startswith("log ") for line in lines):
        say(f"  log       safelaunch logs {run.id}")
    say(f"  details   safelaunch show {run.id}")
    return 1


def reasons(run: RunAccess, status: Mapping[str, Any]) -> list[str]:
    """Return what is known of why a run is as it is: failure, hang, restarts, warnings."""
    width = shutil.get_terminal_size().columns - 2
    failure = run.failure(status)
    lines = block(failure, width, run.id) if failure else []
    hang = status.get("hang")
    if isinstance(hang, dict):
        if not (failure and failure.get("class") == "hang"):  # else the block has told it
            lines += _hanging(hang, status, width)
        if hang.get("folder") and not hang.get("over"):
            lines.append(f"{'stacks':<10}{shlex.quote(str(hang['folder']))}")
    if is_cut(status) and not any(line.startswith("log ") for line in lines):
        lines += folded("log", f"{own_log(run)} ({where_cut(status)})", width, 3)
    if status.get("state") == "lost" and status.get("alive"):
        lines += folded("next", f"safelaunch stop {run.id} ends what is left", width, 2)
    restart = str(status.get("recovery") or "").removeprefix("no restart: ")
    advice = str(status.get("advice") or "")
    if restart and not (advice and advice in restart):
        lines += folded("restart", f"none: {restart}", width, 4)
    for label, text in (("advice", advice), ("warning", str(status.get("warning") or ""))):
        if text:
            lines += folded(label, text, width, 6)
    return lines


def _hanging(hang: Mapping[str, Any], status: Mapping[str, Any], width: int) -> list[str]:
    """Return what is known of a hang that is suspected, or was when the run ended."""
    has_ended = status.get("state") in run_state.ENDED
    if hang.get("over"):
        silent = duration(float(hang.get("silent") or 0))
        said = f"suspected for {silent}; it goes on by itself"
        return [] if has_ended else folded("hang", said, width, 2)
    since, until = hang.get("since"), time.time()
    for key in ("as_of", "ended_at"):
        until = status[key] if isinstance(status.get(key), (int, float)) else until
    silent = duration(max(0.0, until - since)) if isinstance(since, (int, float)) else "long"
    what = "no step" if hang.get("kind") == "stepless" else "no output and no step"
    at_end = ", to the end" if has_ended else ""
    lines = folded("hang", f"suspected: {what} for {silent}{at_end}", width, 2)
    for line in str(hang.get("summary") or "").splitlines():
        lines += folded("", line, width, 3)
    return lines


def headline(run: RunAccess, status: Mapping[str, Any], before: str = "", after: str = "") -> str:
    """Return `ID: failed, exit code 1, ran 12.0 s`, folded to the terminal's width."""
    return fitted(f"{run.id}: {before}{describe(status)}{after}")


def without_repeats(run: RunAccess, status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status without the reason that the failure block below the headline tells too."""
    failure = run.failure(status)
    if failure and status.get("reason") == failure.get("what"):
        return {key: value for key, value in status.items() if key != "reason"}
    return status


def fitted(text: str) -> str:
    """Return a sentence folded to the terminal's width; ids and paths stay whole."""
    columns = max(_NARROWEST, shutil.get_terminal_size().columns)
    return "\n".join(wrap(text, columns, others=" " * 4))


def describe(status: Mapping[str, Any]) -> str:
    """Return a run's state in words: `failed, exit code 1, ran 12.0 s`."""
    words = [in_short(status)]
    if is_suspected(status):
        words.append("hang suspected")
    if status.get("reason"):
        words.append(str(status["reason"]))
    words += _attempts(status)
    if status.get("state") == "lost":
        words.append(f"{counted(status.get('alive'))} alive")
    if status.get("leftovers"):
        plural = "was" if status["leftovers"] == 1 else "were"
        words.append(f"{counted(status['leftovers'])} outlived the launcher and {plural} ended")
    if status.get("unkillable"):
        words.append(f"{counted(len(status['unkillable']))} cannot be ended (in the kernel)")
    begun, ended, ran = (status.get(key) for key in ("started_at", "ended_at", "elapsed"))
    if isinstance(ran, (int, float)):
        words.append(f"ran {duration(ran)}")
    elif isinstance(begun, (int, float)) and isinstance(ended, (int, float)):
        span = duration(max(0.0, ended - begun))
        known = status.get("last_sign_at") is not None
        words.append(f"last sign of life after {span}" if known else f"ran {span}")
    return ", ".join(words)


def counted(number: object) -> str:
    """Return `1 process`, `4 processes`."""
    return "1 process" if number == 1 else f"{number or 0} processes"


def in_short(status: Mapping[str, Any]) -> str:
    """Return a run's state with the exit code or signal, and nothing else."""
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
