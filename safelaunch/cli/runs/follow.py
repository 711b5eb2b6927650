"""Follows a run's log to its end, and formats its state: headline, failure, hang, restarts."""

# ruff: noqa: PLC0415 - what fetches files: few jobs have some to be fetched

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING

from safelaunch.cli.output import escape, say, terminal_width, wrap
from safelaunch.cli.runs.failure_block import block, labelled, with_label
from safelaunch.cli.runs.output.log_output import stdout_writer
from safelaunch.runs import store
from safelaunch.runs.access import LogRequest
from safelaunch.runtime import run_state
from safelaunch.runtime.monitor import leftovers
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.supervise.ending import words as end_words
from safelaunch.runtime.units import duration, quantity, starter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import HangReport, NodeSummary, Status, StatusSummary

_MIN_WIDTH = 40  # columns of a sentence in a terminal that is narrower


def follow(run: RunAccess) -> Status:
    """Write the combined log to stdout until the run has ended; return its last status."""
    is_terminal = sys.stdout.isatty()
    write = stdout_writer(is_terminal)
    for data in follow_log(run, LogRequest(1, follow=True, final_lines=not is_terminal)):
        write(data)
    write(b"")
    return run.status()


def follow_log(run: RunAccess, request: LogRequest) -> Iterator[bytes]:
    """Yield a log; print a note once if the combined log ended before the run."""
    is_reported = request.which is not None

    def report(status: StatusSummary) -> None:
        nonlocal is_reported
        if not is_reported:
            is_reported = report_truncation(run, status)

    return run.log(request, report)


def report_truncation(run: RunAccess, status: StatusSummary) -> bool:
    """Print a note if the combined log ended before the run; return whether it did."""
    if supervisor_died(status):
        say(fold(f"note: {_truncation(status)}: {rank_log_command(run)}"))
    return supervisor_died(status)


def supervisor_died(status: StatusSummary) -> bool:
    """Whether the supervisor died before the run's end, so that its records end there."""
    return status.as_of is not None


def _truncation(status: StatusSummary) -> str:
    more = "continue" if status.alive else "may contain more"
    return f"the combined log ends where the supervisor died; the ranks' own logs {more}"


def rank_log_command(run: RunAccess) -> str:
    """Return the command that shows a rank's own log, which needs no supervisor."""
    return f"safelaunch logs --rank {next(iter(run.ranks()), 0)} {run.id}"


def is_waiting(status: StatusSummary) -> bool:
    """Whether the run waits for its next attempt, without processes."""
    return status.state == "running" and status.waiting is not None


def is_hang_suspected(status: StatusSummary) -> bool:
    """Whether the run seems to hang now."""
    is_live = status.state in ("running", "lost") and not is_waiting(status)
    return is_live and status.hang is not None and not status.hang.over


def outcome(run: RunAccess, status: StatusSummary) -> int:
    """Print how a run ended, and why; return 0 if it succeeded, else 1.

    The files that its job wants on the machine of the client are fetched; 1 also where that fails.
    """
    say(headline(run, without_repeats(run, status)))
    lines = reasons(run, status)
    for line in lines:
        say(f"  {line}")
    is_fetched = _fetch_results(run, status)
    if status.state == "succeeded":
        return 0 if is_fetched and _merge_parts(run) else 1
    if not any(line.startswith("log ") for line in lines):
        say(f"  log       safelaunch logs {run.id}")
    say(f"  details   safelaunch show {run.id}")
    return 1


def _fetch_results(run: RunAccess, status: StatusSummary) -> bool:
    record = RunRecord.read(run.record.node_dir) or RunRecord()
    if status.state not in run_state.ENDED or record.ending is None or not record.ending.pull:
        return True
    from safelaunch.cli.transfer.results import fetch_results

    return fetch_results(run, record.ending.pull)


def _merge_parts(run: RunAccess) -> bool:
    if len(run.places()) == 1 or store.part_counts(run.record) is None:
        return True
    from safelaunch.cli.transfer.results import merge_parts

    return merge_parts(run, run.id)


def reasons(run: RunAccess, status: StatusSummary) -> list[str]:
    """Return lines about the failure, hang, restarts and warnings of a run."""
    width = terminal_width() - 2
    failure = run.failure(status)
    lines = block(failure, width, run.id, status.start) if failure is not None else []
    hang = status.hang
    if hang is not None:
        if failure is None or failure.class_name != "hang":  # else the block shows it
            lines += _hanging(hang, status, width, time.time() + store.clock_offset(run.record))
        if hang.folder and not hang.over:
            lines.append(f"{'stacks':<10}{escape(shlex.quote(hang.folder))}")
    if supervisor_died(status) and not any(line.startswith("log ") for line in lines):
        lines += labelled("log", f"{rank_log_command(run)} ({_truncation(status)})", width, 3)
    if status.state == "lost" and status.alive:
        lines += labelled(
            "next", f"safelaunch stop {run.id} ends the remaining processes", width, 2
        )
    restart = (status.recovery or "").removeprefix("no restart: ")
    advice = status.advice or ""
    if restart and not (advice and advice in restart):
        lines += labelled("restart", f"none: {restart}", width, 4)
    for label, text in (("advice", advice), ("warning", status.warning or "")):
        if text:
            lines += labelled(label, text, width, 6)
    return lines + missing_output(status)


def missing_output(status: StatusSummary) -> list[str]:
    """Return lines about output that a disk refused."""
    lines = []
    for log in status.dropped:
        path = shlex.quote(log.file) if log.host is None else f"{log.host}:{shlex.quote(log.file)}"
        text = f"{log.bytes:,} bytes of output are missing ({log.why}) in"
        lines += with_label("warning", [text, path])
    return lines


def _hanging(hang: HangReport, status: StatusSummary, width: int, now: float) -> list[str]:
    """Return lines about a hang that is suspected, or was when the run ended."""
    has_ended = status.state in run_state.ENDED
    if hang.over:
        text = f"suspected for {duration(hang.silent)}; the job continued by itself"
        return [] if has_ended else labelled("hang", text, width, 2)
    until = status.ended_at or status.as_of or now
    silent = "a long time" if hang.since is None else duration(max(0.0, until - hang.since))
    what = "no step" if hang.kind == "stepless" else "no output and no step"
    at_end = ", until the end" if has_ended else ""
    lines = labelled("hang", f"suspected: {what} for {silent}{at_end}", width, 2)
    for line in hang.summary.splitlines():
        lines += labelled("", line, width, 3)
    return lines


def headline(run: RunAccess, status: StatusSummary, before: str = "", after: str = "") -> str:
    """Return `ID: failed, exit code 1, ran 12.0 s`, folded to the terminal's width."""
    now = time.time() + store.clock_offset(run.record)
    ending = end_words.describe(status, run.id, now)
    more = f"; {ending}" if ending else ""
    return fold(f"{run.id}: {before}{describe(status, now)}{after}{more}")


def without_repeats(run: RunAccess, status: StatusSummary) -> StatusSummary:
    """Return a status without the reason if the failure block below the headline has it too."""
    failure = run.failure(status)
    if failure is not None and status.reason == failure.what:
        status = status.copy()
        status.reason = None
    return status


def fold(text: str) -> str:
    """Return a sentence folded to the terminal's width; ids and paths stay whole."""
    return "\n".join(wrap(text, max(_MIN_WIDTH, terminal_width()), others=" " * 4))


def describe(status: StatusSummary, now: float | None = None) -> str:
    """Return a run's state in words: `failed, exit code 1, ran 12.0 s`.

    `now` is by the clock of the run's machine, as the times of its status are; default: this one's.
    """
    now = time.time() if now is None else now
    words = [short_state(status)]
    if is_hang_suspected(status):
        words.append("hang suspected")
    if status.reason:
        words.append(status.reason)
    if status.waits_for:
        words.append(f"waits for {status.waits_for}")
    attempt = len(status.attempts)
    if status.state == "running" and status.waiting is not None:
        left = duration(max(0.0, status.waiting.until - now))
        words.append(f"attempt {attempt + 1} in {left}: {status.waiting.why}")
    elif attempt > 1:
        words.append(f"attempt {attempt}")
    if status.state == "lost":
        words.append(f"{quantity(status.alive, 'process')} alive")
    words += _outliving(status)
    if status.unkillable:
        processes = quantity(len(status.unkillable), "process")
        words.append(f"{processes} cannot be killed (blocked in the kernel)")
    if status.elapsed is not None:
        words.append(f"ran {duration(status.elapsed)}")
    elif status.started_at is not None and status.ended_at is not None:
        span = duration(max(0.0, status.ended_at - status.started_at))
        is_guess = status.last_sign_at is not None
        words.append(f"last sign of life after {span}" if is_guess else f"ran {span}")
    return ", ".join(words)


def _outliving(status: StatusSummary) -> list[str]:
    """Return what is to be said of processes that outlive the launcher, or have outlived it."""
    names = leftovers.describe(status.leftover_processes)
    if names and status.state == "running":
        name = starter(status.start)
        return [f"{name} has ended with {status.exit_code}, still running: {names}"]
    if not status.leftovers:
        return []
    verb = "was" if status.leftovers == 1 else "were"
    waited = max([process.waited for process in status.leftover_processes], default=0.0)
    after = f" after {duration(waited)}: {names}" if names else ""
    text = f"{quantity(status.leftovers, 'process')} outlived {starter(status.start)}"
    return [f"{text} and {verb} stopped{after}"]


def short_state(status: StatusSummary | NodeSummary) -> str:
    """Return a run's state with its exit code or signal: `failed, exit code 1`."""
    shown, code = status.state, status.exit_code
    if shown == "stopped" and status.stop_origin:
        after = ", SIGKILL after the grace" if status.signal == "SIGKILL" else ""
        return f"stopped by {status.stop_origin}{after}"
    if shown == "stopped" and status.stopped_by:
        return f"stopped ({status.signal or status.stopped_by})"
    if shown in ("succeeded", "running", "pending"):
        return shown
    if status.signal:
        return f"{shown}, {starter(status.start)} was ended by {status.signal}"
    if shown == "failed" and code == 0:
        return f"failed, though {starter(status.start)} ended with 0"
    return shown if code is None else f"{shown}, exit code {code}"
