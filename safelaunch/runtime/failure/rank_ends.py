"""How each rank of an attempt ended: its own record, the exit that was seen, torchrun's block.

Puts together, judges nothing. Of torchrun's restarts only the last counts, of the steps of a job
the last one and what ran beside it. Never raises: what cannot be read is as if it were not there.
"""

from __future__ import annotations

import json
import os

from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.rank_exits import STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


FATAL = 64 << 10  # bytes of faulthandler's text: 100 frames for each of some threads
RECORD_LIMIT = 1 << 20  # bytes of one record file that are read; a rank writes some 16 KiB
LAG = 5 * 10**8  # ns by which a death may be noted late, on a machine with much to do


FATAL_WORDS = (
    ("Aborted", "SIGABRT"),
    ("Segmentation fault", "SIGSEGV"),
    ("Bus error", "SIGBUS"),
    ("Floating", "SIGFPE"),
    ("Illegal instruction", "SIGILL"),
)  # Modules/faulthandler.c
NATIVE = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")  # what faulthandler sees


class End(object):
    """The end of one rank; `code` is None and `signal` empty where neither is known."""

    def __init__(self, rank: int, log: str, number: int = 0) -> None:
        self.rank = rank
        self.log = log
        self.number = number  # of this start of the rank, as rank_exits.py has it
        self.made_ns = 0  # when it started; 0 where nobody knows
        self.host = ""
        self.pid = 0
        self.code = None  # type: int | None
        self.signal = ""
        self.died_ns = 0
        self.rough = False  # died_ns is torchrun's: whole seconds, rounded down
        self.named_first = False  # torchrun says so; believed where the times are its own
        self.recorded = False  # the rank had a record: hooks were in place
        self.in_order = False  # the interpreter shut down by itself
        self.exit_ns = 0  # when it began to
        self.from_outside = False  # the agent found it ended by a signal that it had not sent
        self.error = None  # type: dict[str, Any] | None
        self.threads = []  # type: list[dict[str, Any]]
        self.fatal = ""
        self.has_gaps = False  # a full disk has swallowed some of its output
        self.dropped = 0  # bytes of it, where it could still tell
        self.well = False  # the launcher, and so the job, ended with 0

    @property
    def time_ns(self) -> int:
        """When it failed: the exception, else the death; 0 where nobody saw."""
        told = self.error.get("time_ns") if self.error else 0
        return told if isinstance(told, int) and told > 0 else self.died_ns

    @property
    def left_ns(self) -> int:
        """When a rank that ended well did so; 0 for any other, and where nobody saw."""
        well = self.code == 0 if self.code is not None else self.in_order and self.error is None
        return (self.exit_ns or self.died_ns) if well and not self.signal else 0

    @property
    def survived(self) -> bool:
        """Whether it showed an exception and yet went on: the hook was called by hand.

        Where nobody saw its code, an exception that did not end the program, in a good job.
        """
        if self.error is None or self.signal:
            return False
        if self.code is None:
            return self.well and self.error.get("uncaught") is False
        return self.code == 0

    @property
    def over_ns(self) -> int:
        """When it was done, rather too early than too late; 0 where nobody knows."""
        told = self.error.get("time_ns") if self.error else 0
        known = told if isinstance(told, int) else 0
        return self.exit_ns or max(known, self.died_ns - LAG)

    @property
    def failed(self) -> bool:
        """Whether anything says that this rank did not end well."""
        if self.survived:
            return False
        return self.error is not None or bool(self.signal) or bool(self.code)


def collect(
    node_dir: str, attempt: int, exits: Mapping[Any, Any], block: Mapping[int, dict[str, Any]]
) -> dict[int, End]:
    """Return {rank: end} of the last start of each rank of an attempt that counts."""
    last = last_step(starts(node_dir, attempt, exits), failed=False)
    add_block(last, last, block, os.path.join(node_dir, "logs", "attempt-%d" % attempt))
    found = {}  # type: dict[int, End]
    for end in sorted(last, key=lambda end: (end.made_ns, end.number)):
        found[end.rank] = end
    return found


def starts(node_dir: str, attempt: int, exits: Mapping[Any, Any]) -> list[End]:
    """Return the end of each start of each rank of an attempt, torchrun's last restarts only."""
    logs = os.path.join(node_dir, "logs", "attempt-%d" % attempt)
    found = {}  # type: dict[tuple[int, int], End]

    def end(rank: int, number: int) -> End:
        if (rank, number) not in found:
            found[rank, number] = End(rank, _log(logs, rank), number)
        return found[rank, number]

    for (rank, number), made in _made(node_dir, attempt).items():
        end(rank, number).made_ns = made
    for (rank, number), path in sorted(_files(node_dir, attempt).items()):
        _read_record(end(rank, number), path)
    for rank, exit_ in exits.items():
        if isinstance(exit_, dict) and str(rank).isdigit():
            for one in (exit_, *(exit_.get("earlier") or ())):
                _read_exit(end(int(rank), _whole(one, "restart")), one)
    top = {}  # type: dict[int, int]
    for _, number in found:
        top[number // STEP] = max(number, top.get(number // STEP, 0))
    kept = [found[key] for key in sorted(found) if key[1] == top[key[1] // STEP]]
    for one in kept:
        _complete(one)
    return kept


def last_step(found: list[End], *, failed: bool) -> list[End]:
    """Return the last step of a job: the newest start, with what began or lived on beside it.

    `failed`: the job did. Then it is the last step of which a rank failed, where there is any.
    """
    if not found:
        return []
    last = _beside(max(found, key=lambda end: (end.made_ns, end.number)), found)
    if failed and not any(end.failed for end in last):
        bad = [end for end in found if end.failed and end.over_ns]
        if bad:
            return _beside(max(bad, key=lambda end: end.over_ns), found)
    return last


def _beside(one: End, found: list[End]) -> list[End]:
    """Return a start and those of its step, and those that lived at the same time."""
    newest = {}  # type: dict[int, End]
    for end in sorted(found, key=lambda end: (end.made_ns, end.number)):
        newest[end.rank] = end
    return [
        end
        for end in found
        if end is one
        or (end.number == one.number and end is newest[end.rank])
        or (0 < one.made_ns <= end.over_ns and not 0 < one.over_ns < end.made_ns)
    ]


def add_block(
    last: list[End],
    found: list[End],
    block: Mapping[int, dict[str, Any]],
    logs: str,
    *,
    failed: bool = True,
) -> None:
    """Take from torchrun's block what nobody else has seen of the ranks of the last step.

    What an earlier step was, or was started by a rank, is not of it. Where the job has not failed,
    a block adds no rank to those that have told of themselves: somebody has handled that failure.
    """
    gone = {end.pid for end in found if end not in last and end.pid}
    spoken = bool(last)
    for rank, entry in block.items():
        if entry["pid"] in gone:
            continue
        of_rank = [end for end in last if end.rank == rank]
        same = [end for end in of_rank if end.pid == entry["pid"]] or of_rank
        if not same:
            if spoken and not failed:
                continue
            same = [End(rank, _log(logs, rank))]
            last.append(same[0])
        _read_entry(max(same, key=lambda end: (end.made_ns, end.number)), entry)
    for end in last:
        _complete(end)


def _complete(end: End) -> None:
    """Take from faulthandler's words what nobody saw, or from the log what it wrote there."""
    if end.signal in NATIVE and not end.fatal:
        end.fatal = _fatal(log_tails.read(end.log))  # the user has faulthandler too
    if end.code is None and not end.signal:
        end.signal = next((s for text, s in FATAL_WORDS if text in end.fatal[:80]), "")


def _made(node_dir: str, attempt: int) -> dict[tuple[int, int], int]:
    """Return {(rank, number): when its marker was made} of an attempt."""
    folder = os.path.join(node_dir, "ranks")
    made = {}  # type: dict[tuple[int, int], int]
    try:
        for name in os.listdir(folder):
            parts = name[len("rank-") :].split(".") if name.startswith("rank-") else []
            if len(parts) != 3 or not all(p.isdigit() and len(p) < 10 for p in parts):  # noqa: PLR2004
                continue
            if int(parts[1]) == attempt:
                at = os.stat(os.path.join(folder, name)).st_mtime_ns
                made[int(parts[0]), int(parts[2])] = at
    except OSError:
        pass
    return made


def _fatal(text: str) -> str:
    """Return faulthandler's text in a log, from the last time it wrote there."""
    at = text.rfind("Fatal Python error: ")
    return text[at : at + FATAL] if at >= 0 else ""


def _files(node_dir: str, attempt: int) -> dict[tuple[int, int], str]:
    """Return {(rank, restart): path without suffix} of the records of an attempt."""
    folder = os.path.join(node_dir, "records")
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found = {}
    for name in names:
        parts = name[len("rank-") :].split(".") if name.startswith("rank-") else []
        if len(parts) != 4 or not all(p.isdigit() and len(p) < 10 for p in parts[:3]):  # noqa: PLR2004
            continue
        if int(parts[1]) == attempt:
            found[int(parts[0]), int(parts[2])] = os.path.join(folder, name.rpartition(".")[0])
    return found


def _read_record(end: End, stem: str) -> None:
    for record in _objects(stem + ".json"):
        end.recorded = True
        end.pid = _whole(record, "pid") or end.pid
        end.host = str(record.get("host") or end.host)
        if record.get("kind") == "exit":
            end.in_order, end.exit_ns = True, _whole(record, "time_ns")
            end.dropped = _whole(record, "dropped")
        elif record.get("kind") == "gap":
            end.has_gaps = True
        elif record.get("kind") == "exception":
            if record.get("thread") is not None:
                end.threads.append(record)
            else:
                end.error = record  # a later one replaces it: the interpreter ended with that
    end.recorded = end.recorded or os.path.exists(stem + ".json")
    end.fatal = log_tails.read(stem + ".fatal", FATAL).strip()
    end.host = end.host or os.uname().nodename


def _objects(path: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a record; half lines and the unused rest are skipped."""
    try:
        with open(path, "rb") as file:
            data = file.read(RECORD_LIMIT)
    except OSError:
        return
    for line in data.replace(b"\x00", b"").split(b"\n"):
        try:
            found = json.loads(line.decode("utf-8", "replace")) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _read_exit(end: End, exit_: dict[str, Any]) -> None:
    code = exit_.get("code")
    end.code = code if isinstance(code, int) else None
    end.signal = str(exit_.get("signal") or "")
    end.died_ns = _whole(exit_, "time_ns")
    end.made_ns = _whole(exit_, "made_ns") or end.made_ns
    end.pid = end.pid or _whole(exit_, "pid")
    end.host = end.host or os.uname().nodename  # torchrun calls it localhost


def _read_entry(end: End, entry: dict[str, Any]) -> None:
    """Take from torchrun's block what nobody else has seen."""
    if not end.host and entry["host"] != "localhost":
        end.host = str(entry["host"])
    if end.code is None and not end.signal and end.pid in (0, entry["pid"]):
        end.code, end.signal = entry["code"], entry["signal"]
        end.pid = entry["pid"]
    if not end.died_ns:
        end.died_ns, end.rough = _nanoseconds(str(entry["time"])), True
        end.named_first = bool(entry["first"])
    text = str(entry["traceback"])
    if end.error is None and text.startswith("Traceback"):
        last = text.rstrip().rpartition("\n")[2].strip()
        kind, _, message = last.partition(": ")
        end.error = {"type": kind, "message": message, "traceback": text}


def mark_signals(
    ends: list[End], block: Mapping[int, dict[str, Any]], asked: set[int], over: int
) -> None:
    """Find the ranks that a signal ended which the agent had not sent; `over` is its own end.

    The agent tells pid and signal of each of its processes, and to which it has sent one: only to
    those that still lived.
    """
    for end in ends:
        entry = block.get(end.rank)
        if not entry or not entry["signal"] or end.pid != entry["pid"] or end.pid in asked:
            continue
        before = not (over and end.died_ns > over)
        end.from_outside = before and end.signal == entry["signal"]


def _nanoseconds(text: str) -> int:
    """Return the wall time of torchrun's `2026-11-21_14:38:12` (local time, whole seconds)."""
    import time  # noqa: PLC0415 - only where something failed

    try:
        return int(time.mktime(time.strptime(text, "%Y-%m-%d_%H:%M:%S"))) * 1000000000
    except (ValueError, OverflowError):
        return 0


def _whole(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _log(logs: str, rank: int) -> str:
    """Return the log that holds a rank's output: its own, else the launcher's."""
    own = os.path.join(logs, "rank-%d.log" % rank)
    return own if os.path.exists(own) else os.path.join(logs, "launcher.log")
