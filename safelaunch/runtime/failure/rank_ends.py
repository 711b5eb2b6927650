"""How each rank of an attempt ended: its own record, the exit that was seen, torchrun's block.

Only collects. Of torchrun's restarts only the last counts, of the steps of a job the last one and
what ran beside it. Never raises: what cannot be read counts as missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.failure.log_tails import RaisedException
from safelaunch.runtime.rank_exits import STEP
from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.runtime.failure.elastic_report import ElasticFailure
    from safelaunch.runtime.rank_exits import RankExit

FATAL = 64 << 10  # bytes of faulthandler's text: 100 frames for each of some threads
RECORD_LIMIT = 1 << 20  # bytes of one record file that are read; a rank writes some 20 KiB
LAG = 5 * 10**8  # ns by which a death may be noted late, on a machine with much to do
LAUNCHER = -1  # in place of a rank
FATAL_WORDS = (
    ("Aborted", "SIGABRT"),
    ("Segmentation fault", "SIGSEGV"),
    ("Bus error", "SIGBUS"),
    ("Floating", "SIGFPE"),
    ("Illegal instruction", "SIGILL"),
)  # Modules/faulthandler.c
NATIVE = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")  # what faulthandler sees
_FILE_NAME = r"\Arank-(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:\.[a-z]+)?\Z"


class ProcessEnd:
    """How a rank, or the launcher, ended; `code` is None and `signal` "" where nobody saw it."""

    def __init__(self, rank: int, log: str, number: int = 0) -> None:
        self.rank = rank
        self.log = log
        self.number = number  # of this start of the rank, as rank_exits.py has it
        self.started_ns = 0  # 0: unknown
        self.program = ""  # script or module, where a shell may have started it
        self.host = ""
        self.pid = 0
        self.code: int | None = None
        self.signal = ""
        self.died_ns = 0
        self.is_rounded = False  # died_ns is torchrun's: whole seconds, rounded down
        self.named_first = False  # by torchrun; believed where the times are its own
        self.recorded = False  # the rank had a record: hooks were in place
        self.is_orderly = False  # the interpreter shut down by itself
        self.shutdown_ns = 0  # when it began to
        self.from_outside = False  # the agent found it ended by a signal that it had not sent
        self.error: RaisedException | None = None
        self.threads: list[RaisedException] = []  # exceptions of other threads than the main one
        self.fatal = ""  # text of faulthandler
        self.job_succeeded = False  # the launcher ended with 0
        self.start: str | None = None  # of a launcher: direct for start_ranks.py, see run.json

    @property
    def time_ns(self) -> int:
        """When it failed: the exception, else the death; 0 where nobody saw."""
        raised_ns = self.error.time_ns if self.error else 0
        return raised_ns if raised_ns > 0 else self.died_ns

    @property
    def finished_ns(self) -> int:
        """When a rank that succeeded ended; 0 for any other, and where nobody saw."""
        ended_itself = self.is_orderly and self.error is None
        succeeded = ended_itself if self.code is None else self.code == 0
        return (self.shutdown_ns or self.died_ns) if succeeded and not self.signal else 0

    @property
    def survived(self) -> bool:
        """Whether it showed an exception and yet went on: the hook was called by hand.

        Where nobody saw its code, an exception that did not end the program, in a good job.
        """
        if self.error is None or self.signal:
            return False
        return self.code == 0 or (
            self.code is None and self.job_succeeded and not self.error.uncaught
        )

    @property
    def ended_ns(self) -> int:
        """When it ended, rather too early than too late; 0 where nobody knows."""
        raised_ns = self.error.time_ns if self.error else 0
        return self.shutdown_ns or max(raised_ns, self.died_ns - LAG)

    @property
    def failed(self) -> bool:
        """Whether anything shows that it did not end well."""
        return not self.survived and bool(self.error is not None or self.signal or self.code)


def collect(node_dir: str, attempt: int) -> dict[int, ProcessEnd]:
    """Return {rank: end} of the last start of each rank of an attempt that still runs."""
    return _newest(last_step(starts(node_dir, attempt, {}), failed=False))


def _newest(ends: list[ProcessEnd]) -> dict[int, ProcessEnd]:
    return {end.rank: end for end in sorted(ends, key=lambda end: (end.started_ns, end.number))}


def starts(
    node_dir: str, attempt: int, exits: Mapping[int, Sequence[RankExit]]
) -> list[ProcessEnd]:
    """Return the end of each start of each rank of an attempt, torchrun's last restarts only."""
    logs = os.path.join(node_dir, "logs", f"attempt-{attempt}")
    ends: dict[tuple[int, int], ProcessEnd] = {}

    def end(rank: int, number: int) -> ProcessEnd:
        if (rank, number) not in ends:
            ends[rank, number] = ProcessEnd(rank, _log(logs, rank), number)
        return ends[rank, number]

    for key, path in _files(os.path.join(node_dir, "ranks"), attempt).items():
        with contextlib.suppress(OSError), open(path, errors="replace") as marker:
            end(*key).started_ns = os.fstat(marker.fileno()).st_mtime_ns
            end(*key).program = marker.read().partition("\n")[2].strip()
    for key, path in sorted(_files(os.path.join(node_dir, "records"), attempt).items()):
        _read_record(end(*key), path)
    for rank, rank_exits in exits.items():
        for exit_ in rank_exits:
            _read_exit(end(rank, exit_.number), exit_)
    last: dict[int, int] = {}  # step of the job -> number of its last restart
    for _, number in ends:
        last[number // STEP] = max(number, last.get(number // STEP, 0))
    counted = [ends[key] for key in sorted(ends) if key[1] == last[key[1] // STEP]]
    for rank_end in counted:
        _complete(rank_end)
    return counted


def last_step(ends: list[ProcessEnd], *, failed: bool) -> list[ProcessEnd]:
    """Return the last step of a job: the newest start, with what began or ran on beside it.

    `failed`: the job did. Then it is the last step of which a rank failed, where there is any.
    """
    if not ends:
        return []
    last = _beside(max(ends, key=lambda end: (end.started_ns, end.number)), ends)
    if failed and not any(end.failed for end in last):
        bad = [end for end in ends if end.failed and end.ended_ns]
        if bad:
            return _beside(max(bad, key=lambda end: end.ended_ns), ends)
    return last


def _beside(start: ProcessEnd, ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """Return a start and those of its step, and those that ran at the same time."""
    newest = _newest(ends)
    return [
        end
        for end in ends
        if end is start
        or (end.number == start.number and end is newest[end.rank])
        or (0 < start.started_ns <= end.ended_ns and not 0 < start.ended_ns < end.started_ns)
    ]


def add_block(
    last: list[ProcessEnd],
    ends: list[ProcessEnd],
    block: Mapping[int, ElasticFailure],
    logs: str,
    *,
    failed: bool,
) -> None:
    """Take from torchrun's block what nobody else has seen of the ranks of the last step.

    An earlier step, and what a rank has started, is left out. Where the job has not failed, a
    block adds no rank to those that have records: somebody has handled that failure.
    """
    earlier_pids = {end.pid for end in ends if end not in last and end.pid}
    had_ends = bool(last)
    for rank, entry in block.items():
        if entry.pid in earlier_pids:
            continue
        of_rank = [end for end in last if end.rank == rank]
        same = [end for end in of_rank if end.pid == entry.pid] or of_rank
        if not same:
            if had_ends and not failed:
                continue
            same = [ProcessEnd(rank, _log(logs, rank))]
            last.append(same[0])
        _read_entry(_newest(same)[rank], entry)
    for end in last:
        _complete(end)


def _complete(end: ProcessEnd) -> None:
    """Take from faulthandler's text what nobody saw, or from the log what it wrote there."""
    if end.signal in NATIVE and not end.fatal:  # the user has faulthandler too
        _, title, text = log_tails.read(end.log).rpartition("Fatal Python error: ")
        end.fatal = (title + text)[:FATAL] if title else ""
    if end.code is None and not end.signal:
        end.signal = next((s for text, s in FATAL_WORDS if text in end.fatal[:80]), "")


def _files(folder: str, attempt: int) -> dict[tuple[int, int], str]:
    """Return {(rank, number): path without suffix} of an attempt's markers or records."""
    files = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            hit = match.compiled(_FILE_NAME).match(name)
            if hit and int(hit.group(2)) == attempt:
                stem = os.path.join(folder, "rank-{}.{}.{}".format(*hit.groups()))
                files[int(hit.group(1)), int(hit.group(3))] = stem
    return files


def _read_record(end: ProcessEnd, stem: str) -> None:
    end.recorded = os.path.exists(stem + ".json")
    for event in _events(stem + ".json"):
        end.pid = event.pid or end.pid
        end.host = event.host or end.host
        if event.kind == "exit":
            end.is_orderly, end.shutdown_ns = True, event.time_ns
        elif event.kind == "exception" and event.thread is not None:
            end.threads.append(event)
        elif event.kind == "exception":
            end.error = event  # a later one replaces it: the interpreter ended with that
    end.fatal = log_tails.read(stem + ".fatal", FATAL).strip()
    end.host = end.host or os.uname().nodename


def _events(path: str) -> Iterator[RaisedException]:
    """Yield the lines of a record; half lines and the unused rest are skipped."""
    try:
        with open(path, "rb") as file:
            data = file.read(RECORD_LIMIT)
    except OSError:
        return
    for line in data.replace(b"\x00", b"").split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line.decode("utf-8", "replace"))
            if isinstance(event, dict):
                yield RaisedException.from_json(event)


def _read_exit(end: ProcessEnd, exit_: RankExit) -> None:
    end.code, end.signal, end.died_ns = exit_.code, exit_.signal, exit_.died_ns
    end.started_ns = exit_.started_ns or end.started_ns
    end.pid = end.pid or exit_.pid
    end.host = end.host or os.uname().nodename  # torchrun calls it localhost


def _read_entry(end: ProcessEnd, entry: ElasticFailure) -> None:
    """Take from torchrun's block what nobody else has seen."""
    if not end.host and entry.host != "localhost":
        end.host = entry.host
    if end.code is None and not end.signal and end.pid in (0, entry.pid):
        end.code, end.signal, end.pid = entry.code, entry.signal, entry.pid
    if not end.died_ns:
        end.died_ns, end.is_rounded = _nanoseconds(entry.time), True
        end.named_first = entry.first
    if end.error is None and entry.traceback.startswith("Traceback"):
        last = entry.traceback.rstrip().rpartition("\n")[2].strip()
        kind, _, message = last.partition(": ")
        end.error = RaisedException(type=kind, message=message, traceback=entry.traceback)


def mark_signals(
    ends: list[ProcessEnd],
    block: Mapping[int, ElasticFailure],
    signalled: set[int],
    launcher_ns: int,
) -> None:
    """Mark the ranks that a signal ended which the agent had not sent before its own end.

    The agent reports pid and signal of each of its processes, and to which it has sent one: only
    to those that still ran.
    """
    for end in ends:
        entry = block.get(end.rank)
        if not entry or not entry.signal or end.pid != entry.pid or end.pid in signalled:
            continue
        is_after = 0 < launcher_ns < end.died_ns
        end.from_outside = not is_after and end.signal == entry.signal


def mark_signals_in_grace(ends: list[ProcessEnd], grace: float) -> None:
    """Mark the ranks that a signal ended before their starter sends one to anybody.

    It waits for `grace` seconds after the first end that was no good one.
    """
    first = min([end.time_ns for end in ends if end.failed and end.time_ns], default=0)
    sent_ns = first + int(grace * 10**9) - LAG
    for end in ends:
        end.from_outside = bool(end.signal) and 0 < end.died_ns < sent_ns


def _nanoseconds(text: str) -> int:
    """Return the wall time of torchrun's `2026-11-21_14:38:12` (local time, whole seconds)."""
    try:
        return int(time.mktime(time.strptime(text, "%Y-%m-%d_%H:%M:%S"))) * 10**9
    except (ValueError, OverflowError):
        return 0


def _log(logs: str, rank: int) -> str:
    """Return the log that holds a rank's output: its own, else the launcher's."""
    own = os.path.join(logs, f"rank-{rank}.log")
    return own if os.path.exists(own) else os.path.join(logs, "launcher.log")
