"""Following a run's log to its end, and saying how it ended."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING

from safelaunch.cli.output import say, wrap
from safelaunch.cli.runs.failure_block import block, folded
from safelaunch.runs.access import LogRequest
from safelaunch.runtime import run_state
from safelaunch.runtime.units import duration, quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import HangReport, NodeSummary, Status, StatusSummary

_PIECES = 64  # of an unfinished line that are held back: in case something overwrites it
_NARROWEST = 40  # columns that a sentence wants, however narrow the terminal


def follow(run: RunAccess) -> Status:
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

    def report_cut(status: StatusSummary) -> None:
        nonlocal is_reported
        if is_cut(status) and not is_reported:
            is_reported = True
            say(fitted(f"note: {where_cut(status)}: {own_log(run)}"))

    return run.log(request, report_cut)


def is_cut(status: StatusSummary) -> bool:
    """Whether the supervisor died before the run's end, and with it what only it tells."""
    return status.as_of is not None


def where_cut(status: StatusSummary) -> str:
    """Say where the log ends of a run whose supervisor has died."""
    more = "go on" if status.alive else "may hold more"
    return f"the combined log ends at the supervisor's death; the ranks' own logs {more}"


def own_log(run: RunAccess) -> str:
    """Return the command that shows what a rank itself wrote, also without a supervisor."""
    return f"safelaunch logs --rank {next(iter(run.ranks()), 0)} {run.id}"


def is_waiting(status: StatusSummary) -> bool:
    """Whether the run waits for its next attempt, and nothing of it runs."""
    return status.state == "running" and status.waiting is not None


def is_suspected(status: StatusSummary) -> bool:
    """Whether the run seems to hang now."""
    is_live = status.state in ("running", "lost") and not is_waiting(status)
    return is_live and status.hang is not None and not status.hang.over


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


def outcome(run: RunAccess, status: StatusSummary) -> int:
    """Say how a run ended, and why; return 0 if it succeeded, else 1."""
    say(headline(run, without_repeats(run, status)))
    lines = reasons(run, status)
    for line in lines:
        say(f"  {line}")
    if status.state == "succeeded":
        return 0
    if not any(line.startswith("log ") for line in lines):
        say(f"  log       safelaunch logs {run.id}")
    say(f"  details   safelaunch show {run.id}")
    return 1


def reasons(run: RunAccess, status: StatusSummary) -> list[str]:
    """Return what is known of why a run is as it is: failure, hang, restarts, warnings."""
    width = shutil.get_terminal_size().columns - 2
    failure = run.failure(status)
    lines = block(failure, width, run.id) if failure is not None else []
    hang = status.hang
    if hang is not None:
        if failure is None or failure.class_name != "hang":  # else the block has told it
            lines += _hanging(hang, status, width)
        if hang.folder and not hang.over:
            lines.append(f"{'stacks':<10}{shlex.quote(hang.folder)}")
    if is_cut(status) and not any(line.startswith("log ") for line in lines):
        lines += folded("log", f"{own_log(run)} ({where_cut(status)})", width, 3)
    if status.state == "lost" and status.alive:
        lines += folded("next", f"safelaunch stop {run.id} ends what is left", width, 2)
    restart = (status.recovery or "").removeprefix("no restart: ")
    advice = status.advice or ""
    if restart and not (advice and advice in restart):
        lines += folded("restart", f"none: {restart}", width, 4)
    for label, text in (("advice", advice), ("warning", status.warning or "")):
        if text:
            lines += folded(label, text, width, 6)
    return lines


def _hanging(hang: HangReport, status: StatusSummary, width: int) -> list[str]:
    """Return what is known of a hang that is suspected, or was when the run ended."""
    has_ended = status.state in run_state.ENDED
    if hang.over:
        text = f"suspected for {duration(hang.silent)}; it goes on by itself"
        return [] if has_ended else folded("hang", text, width, 2)
    until = status.ended_at or status.as_of or time.time()
    silent = "long" if hang.since is None else duration(max(0.0, until - hang.since))
    what = "no step" if hang.kind == "stepless" else "no output and no step"
    at_end = ", to the end" if has_ended else ""
    lines = folded("hang", f"suspected: {what} for {silent}{at_end}", width, 2)
    for line in hang.summary.splitlines():
        lines += folded("", line, width, 3)
    return lines


def headline(run: RunAccess, status: StatusSummary, before: str = "", after: str = "") -> str:
    """Return `ID: failed, exit code 1, ran 12.0 s`, folded to the terminal's width."""
    return fitted(f"{run.id}: {before}{describe(status)}{after}")


def without_repeats(run: RunAccess, status: StatusSummary) -> StatusSummary:
    """Return a status without the reason that the failure block below the headline tells too."""
    failure = run.failure(status)
    if failure is not None and status.reason == failure.what:
        status = status.copy()
        status.reason = None
    return status


def fitted(text: str) -> str:
    """Return a sentence folded to the terminal's width; ids and paths stay whole."""
    columns = max(_NARROWEST, shutil.get_terminal_size().columns)
    return "\n".join(wrap(text, columns, others=" " * 4))


def describe(status: StatusSummary) -> str:
    """Return a run's state in words: `failed, exit code 1, ran 12.0 s`."""
    words = [in_short(status)]
    if is_suspected(status):
        words.append("hang suspected")
    if status.reason:
        words.append(status.reason)
    words += _attempts(status)
    if status.state == "lost":
        words.append(f"{quantity(status.alive, 'process')} alive")
    if status.leftovers:
        plural = "was" if status.leftovers == 1 else "were"
        words.append(
            f"{quantity(status.leftovers, 'process')} outlived the launcher and {plural} ended"
        )
    if status.unkillable:
        words.append(
            f"{quantity(len(status.unkillable), 'process')} cannot be ended (in the kernel)"
        )
    if status.elapsed is not None:
        words.append(f"ran {duration(status.elapsed)}")
    elif status.started_at is not None and status.ended_at is not None:
        span = duration(max(0.0, status.ended_at - status.started_at))
        is_guess = status.last_sign_at is not None
        words.append(f"last sign of life after {span}" if is_guess else f"ran {span}")
    return ", ".join(words)


def in_short(status: StatusSummary | NodeSummary) -> str:
    """Return a run's state with the exit code or signal, and nothing else."""
    shown, code = status.state, status.exit_code
    if shown == "stopped" and status.stopped_by:
        return f"stopped ({status.signal or status.stopped_by})"
    if shown in ("succeeded", "running", "pending"):
        return shown
    if status.signal:
        return f"{shown}, the launcher was ended by {status.signal}"
    if shown == "failed" and code == 0:
        return "failed, though the launcher ended with 0"
    return shown if code is None else f"{shown}, exit code {code}"


def _attempts(status: StatusSummary) -> list[str]:
    number = len(status.attempts)
    if status.waiting is not None and status.state == "running":
        left = max(0.0, status.waiting.until - time.time())
        return [f"attempt {number + 1} in {duration(left)}: {status.waiting.why}"]
    return [f"attempt {number}"] if number > 1 else []
