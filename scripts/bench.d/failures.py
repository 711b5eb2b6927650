"""Real failure logs: how many are diagnosed right, class by class."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kills import tests
from rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MORE = "SAFELAUNCH_FAILURE_LOGS"  # files of further records, which no signature was tried on
SEEN, UNSEEN, LINES = 0.95, 0.85, 0.85  # shares: class of logs seen and unseen; root line


def failures() -> Iterator[Row]:
    """Yield the shares of right classes and root lines, of the logs here and of others."""
    logs = tests("support.inputs.failure_logs")
    yield from _shares("tests/data/failures", logs.records(), SEEN)
    for path in filter(None, os.environ.get(MORE, "").split(os.pathsep)):
        yield from _shares("those kept apart", logs.records(Path(path)), UNSEEN)


def _shares(where: str, records: Sequence[dict[str, str]], bound: float) -> Iterator[Row]:
    logs = tests("support.inputs.failure_logs")
    read = [logs.read(record) for record in records]
    for one in read:
        if not one.right:
            print(f"{one.record['id']}: {one.top_class or 'nothing'}", file=sys.stderr)
    count, right, near = logs.shares(read)
    healthy = [one for one in read if one.record["class"] == logs.HEALTHY]
    good = sum(one.right for one in healthy)
    short = [one for one in read if one.is_short and one not in healthy]
    yield _row(f"failure logs of {where}: right class first", right, count, bound)
    told = sum(one.right for one in short)
    yield Row("of them with one or two lines", f"{told}/{len(short)}", "-", ok=True)
    yield _row("root line, or one within 3 of it", near, count, LINES)
    yield Row(
        "healthy ones without a failure", f"{good}/{len(healthy)}", "all", good == len(healthy)
    )
    yield Row("class by class", _classes(read), "-", ok=True)


def _row(what: str, good: int, count: int, bound: float) -> Row:
    ok = bool(count) and good >= bound * count
    return Row(what, f"{good}/{count} ({good / max(1, count):.1%})", f">= {bound:.0%}", ok)


def _classes(read: Sequence[object]) -> str:
    counts: dict[str, list[int]] = {}
    for one in read:
        found = counts.setdefault(one.record["class"], [0, 0])  # type: ignore[attr-defined]
        found[0] += one.right  # type: ignore[attr-defined]
        found[1] += 1
    return ", ".join(f"{name} {good}/{count}" for name, (good, count) in sorted(counts.items()))
