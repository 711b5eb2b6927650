"""Reads the dumps of torch's flight recorder: what each rank waits in, and what it did last.

A dump is a pickle of plain containers, numbers and texts. It is read without any class, so nothing
of it is run. Formats 1 to 2.10 (torch 2.2 to 2.13, FlightRecorder.hpp, `version_val`).
"""

# ruff: noqa: PLC0415 - pickle, 5 ms: only a job that hangs or times out has dumps

from __future__ import annotations

import io
import os
import time

from safelaunch.runtime.records import Collective, RankCollectives, StackFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Optional

    # the user's own frame of a stack whose innermost frame is the last
    FrameChoice = Callable[[Sequence[StackFrame]], Optional[StackFrame]]

PREFIX = "flight-"
MAX_DUMP = 64 << 20  # bytes of a dump: 2,000 entries have less than 1 MB
MAX_RANKS = 64  # dumps of one node that are read
LIMIT = 10.0  # seconds for all dumps of a node: one of 2,000 entries takes 0.02
STALE = 300.0  # seconds before the newest: a rank dumps within a minute of the first
MAX_GROUPS = 4  # process groups of one rank that are kept, those that wait first
MAX_EARLIER = 1  # complete operations that are kept of a group in which the rank waits
MAX_SIZES = 80  # characters of the sizes of an operation


def folder(node_dir: str, attempt: int) -> str:
    """Return the folder of what ranks record of their collectives in an attempt."""
    return os.path.join(node_dir, "nccl", f"attempt-{attempt}")


def paths(path: str, prefix: str = PREFIX) -> dict[int, str]:
    """Return {rank: path} of the dumps in a folder that belong together."""
    stamps: dict[int, float] = {}
    try:
        names = os.listdir(path)
    except OSError:
        return {}
    for name in names:
        rank = name[len(prefix) :]
        if name.startswith(prefix) and rank.isdigit():
            try:
                stamps[int(rank)] = os.stat(os.path.join(path, name)).st_mtime
            except OSError:
                continue
    newest = max(stamps.values(), default=0.0)
    ranks = sorted(rank for rank, stamp in stamps.items() if newest - stamp < STALE)
    return {rank: os.path.join(path, f"{prefix}{rank}") for rank in ranks[:MAX_RANKS]}


def read_all(dumps: Mapping[int, str], choose: FrameChoice) -> dict[str, RankCollectives]:
    """Return {rank: what it was in}; a dump that cannot be read is left out."""
    until = time.monotonic() + LIMIT
    ranks = {}
    for rank, path in dumps.items():
        if time.monotonic() > until:
            break
        state = read(path, choose)
        if state is not None:
            ranks[str(rank)] = state
    return ranks


def read(path: str, choose: FrameChoice) -> RankCollectives | None:
    """Return what the rank of a dump was in; None where it cannot be read."""
    try:
        if os.path.getsize(path) > MAX_DUMP:
            return None
        with open(path, "rb") as file:
            return _state(_load(file.read(MAX_DUMP)), choose)
    except Exception:  # noqa: BLE001 - a dump that was cut off, or is none, is no evidence
        return None


def _load(data: bytes) -> Any:
    """Return what a pickle of plain containers, numbers and texts holds. Raises if it has more."""
    import pickle

    class PlainUnpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError(f"a dump has no class, here {module}.{name}")

        def persistent_load(self, pid: Any) -> Any:
            raise pickle.UnpicklingError(f"a dump refers to nothing, here {pid!r}")

    return PlainUnpickler(io.BytesIO(data)).load()


def _state(dump: Any, choose: FrameChoice) -> RankCollectives:
    entries = dump["entries"] if isinstance(dump, dict) else dump
    members = _members(dump.get("pg_config")) if isinstance(dump, dict) else {}
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for entry in entries:  # sends and recvs have numbers and an order of their own
        groups.setdefault((_group(entry), bool(entry.get("is_p2p"))), []).append(entry)
    waits, last, earlier = [], [], []
    for (group, is_p2p), rows in groups.items():
        own = members.get(str(_name(rows[-1])[0]))
        pending = _first_pending(rows)
        if pending is not None:
            waits.append(_collective(group, own, pending, choose))
            before = rows[: rows.index(pending)][-MAX_EARLIER:]
            earlier += [_collective(group, own, row, choose) for row in before]
        if not is_p2p:
            last.append((rows[-1].get("record_id", 0), _collective(group, own, rows[-1], choose)))
    waits.sort(key=lambda wait: wait.time or 0.0)
    waiting = {wait.group for wait in waits[:MAX_GROUPS]}
    last.sort(key=lambda pair: (pair[1].group in waiting, pair[0]), reverse=True)
    newest = entries[-1] if entries else None
    return RankCollectives(
        waits=waits[:MAX_GROUPS],
        earlier=[row for row in earlier if row.group in waiting],
        last=[row for _, row in last[:MAX_GROUPS]],
        newest=None
        if newest is None
        else _collective(_group(newest), members.get(str(_name(newest)[0])), newest, choose),
    )


def _first_pending(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first entry of a group that is not complete.

    A group runs in order. Parts of a coalesced operation are never marked: what stands before a
    complete entry is complete too.
    """
    completed = [index for index, row in enumerate(rows) if _is_completed(row)]
    rest = rows[completed[-1] + 1 :] if completed else rows
    return rest[0] if rest else None


def _is_completed(row: Mapping[str, Any]) -> bool:
    # gloo's entries are only ever retired, also where they timed out
    is_gloo = str(row.get("profiling_name", "")).startswith("gloo:")
    return row.get("state") == "completed" or (is_gloo and bool(row.get("retired")))


def _name(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and description of the process group of an entry."""
    group = row.get("process_group") or row.get("pg_name") or row.get("pg_id", "")
    if isinstance(group, (tuple, list)):
        return str(group[0]), str(group[1]) if len(group) > 1 else ""
    return str(group), ""


def _group(row: Mapping[str, Any]) -> str:
    name, description = _name(row)
    if description in ("", "undefined"):
        return f"group {name}"
    return description if description == "default_pg" else f"{description} ({name})"


def _members(config: Any) -> dict[str, list[int]]:
    """Return {name of a process group: its global ranks}."""
    members = {}
    for name, group in config.items() if isinstance(config, dict) else ():
        ranks = group.get("ranks", "")
        words = ranks.strip("[]").split(",") if isinstance(ranks, str) else ranks
        numbers = [int(word) for word in words if str(word).strip().isdigit()]
        if str(name) and numbers:  # gloo's groups have no name
            members[str(name)] = numbers
    return members


def _collective(
    group: str, members: Sequence[int] | None, row: Mapping[str, Any], choose: FrameChoice
) -> Collective:
    operation = str(row.get("profiling_name", "")).partition(":")[2] or "operation"
    is_p2p = bool(row.get("is_p2p"))
    number = row.get("p2p_seq_id" if is_p2p else "collective_seq_id", row.get("seq_id", 0))
    inputs, outputs = row.get("input_sizes") or [], row.get("output_sizes") or []
    shown = ", ".join(map(str, inputs or outputs))
    collective = Collective(
        group=group,
        number=int(number),
        operation=operation.split(" ")[0],
        sizes=shown if len(shown) <= MAX_SIZES else shown[: MAX_SIZES - 4] + " ...",
        elements=[sum(map(_product, inputs)), sum(map(_product, outputs))],
        types=",".join(map(str, row.get("input_dtypes") or ())),
        state=str(row.get("state", "")),
        time=row.get("time_created_ns", 0) / 1e9,
        is_p2p=is_p2p,
    )
    if members is not None:
        collective.members = list(members)
    if is_p2p:
        collective.peer = _peer(operation, members)
    frames = [
        StackFrame(file=str(f["filename"]), line=int(f["line"]), function=str(f["name"]))
        for f in row.get("frames") or ()
    ]
    collective.frame = choose(frames[::-1])  # the innermost is the first
    return collective


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= int(size)
    return product


def _peer(operation: str, members: Sequence[int] | None) -> int | None:
    """Return the rank at the other end: `send 0->1`, `recv 1<-0` count in the group."""
    words = operation.replace("->", " ").replace("<-", " ").split()
    if len(words) != 3 or not words[2].isdigit():  # noqa: PLR2004 - the verb, its two ranks
        return None
    index, ordered = int(words[2]), sorted(members or ())
    if not members:
        return index
    return ordered[index] if index < len(ordered) else None
