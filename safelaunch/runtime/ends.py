"""How each rank of an attempt ended: its own record, the exit that was seen, torchrun's block.

Puts together, judges nothing. Only the last restart counts. Never raises: what cannot be read is
as if it were not there.
"""

from __future__ import annotations

import json
import os

from safelaunch.runtime import tails

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


FATAL = 64 << 10  # bytes of faulthandler's text: 100 frames for each of some threads
RECORD_LIMIT = 1 << 20  # bytes of one record file that are read; a rank writes some 16 KiB


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

    def __init__(self, rank: int, log: str) -> None:
        self.rank = rank
        self.log = log
        self.host = ""
        self.pid = 0
        self.code = None  # type: int | None
        self.signal = ""
        self.died_ns = 0
        self.rough = False  # died_ns is torchrun's: whole seconds, rounded down
        self.named_first = False  # torchrun says so; believed where the times are its own
        self.recorded = False  # the rank had a record: hooks were in place
        self.in_order = False  # the interpreter shut down by itself
        self.error = None  # type: dict[str, Any] | None
        self.threads = []  # type: list[dict[str, Any]]
        self.fatal = ""

    @property
    def time_ns(self) -> int:
        """When it failed: the exception, else the death; 0 where nobody saw."""
        told = self.error.get("time_ns") if self.error else 0
        return told if isinstance(told, int) and told > 0 else self.died_ns

    @property
    def survived(self) -> bool:
        """Whether it showed an exception and yet ended with 0: the hook was called by hand."""
        return self.error is not None and self.code == 0 and not self.signal

    @property
    def failed(self) -> bool:
        """Whether anything says that this rank did not end well."""
        if self.survived:
            return False
        return self.error is not None or bool(self.signal) or bool(self.code)


def collect(
    node_dir: str, attempt: int, exits: Mapping[Any, Any], block: Mapping[int, dict[str, Any]]
) -> dict[int, End]:
    """Return {rank: end} of the last restart of an attempt."""
    logs = os.path.join(node_dir, "logs", "attempt-%d" % attempt)
    records = _files(node_dir, attempt)
    seen = {rank: exit_ for rank, exit_ in exits.items() if isinstance(exit_, dict)}
    last = _last(node_dir, attempt)
    if last is None:
        numbers = [restart for _, restart in records]
        last = max([*numbers, *[_whole(e, "restart") for e in seen.values()], 0])
    ends = {}  # type: dict[int, End]

    def end(rank: int) -> End:
        if rank not in ends:
            ends[rank] = End(rank, _log(logs, rank))
        return ends[rank]

    for (rank, restart), path in sorted(records.items()):
        if restart == last:
            _read_record(end(rank), path)
    for rank, exit_ in seen.items():
        if _whole(exit_, "restart") == last and str(rank).isdigit():
            _read_exit(end(int(rank)), exit_)
    for rank, entry in block.items():
        _read_entry(end(rank), entry)
    for one in ends.values():
        _complete(one)
    return ends


def _complete(end: End) -> None:
    """Take from faulthandler's words what nobody saw, or from the log what it wrote there."""
    if end.signal in NATIVE and not end.fatal:
        end.fatal = _fatal(tails.read(end.log))  # the user has faulthandler too
    if end.code is None and not end.signal:
        end.signal = next((s for text, s in FATAL_WORDS if text in end.fatal[:80]), "")


def _last(node_dir: str, attempt: int) -> int | None:
    """Return the number of the last start: a restart of torchrun's, or another step of the job.

    The newest marker tells: steps of a shell and ranks of a torchrun are counted on their own.
    """
    folder = os.path.join(node_dir, "ranks")
    made = []
    try:
        for name in os.listdir(folder):
            parts = name.split(".")
            if len(parts) == 3 and parts[1] == str(attempt) and parts[2].isdigit():  # noqa: PLR2004
                made.append((os.stat(os.path.join(folder, name)).st_mtime_ns, int(parts[2])))
    except OSError:
        return None
    return max(made)[1] if made else None


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
            end.in_order = True
        elif record.get("kind") == "exception":
            if record.get("thread") is not None:
                end.threads.append(record)
            else:
                end.error = record  # a later one replaces it: the interpreter ended with that
    end.recorded = end.recorded or os.path.exists(stem + ".json")
    end.fatal = tails.read(stem + ".fatal", FATAL).strip()


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
    end.pid = end.pid or _whole(exit_, "pid")


def _read_entry(end: End, entry: dict[str, Any]) -> None:
    """Take from torchrun's block what nobody else has seen."""
    end.host = end.host or str(entry["host"])
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
