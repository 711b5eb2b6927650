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
TRIED_SHARE, OTHER_SHARE, LINE_SHARE = (
    0.95,
    0.85,
    0.85,
)  # shares: class of logs seen and unseen; root line


def failures() -> Iterator[Row]:
    """Yield the shares of right classes and root lines, of the logs here and of others."""
    logs = tests("support.inputs.failure_logs")
    yield from _shares("tests/data/failures", logs.records(), TRIED_SHARE)
    for path in filter(None, os.environ.get(MORE, "").split(os.pathsep)):
        yield from _shares("those kept apart", logs.records(Path(path)), OTHER_SHARE)


def _shares(where: str, records: Sequence[dict[str, str]], bound: float) -> Iterator[Row]:
    logs = tests("support.inputs.failure_logs")
    read = [logs.read(record) for record in records]
    for log in read:
        if not log.right:
            print(f"{log.record['id']}: {log.top_class or 'nothing'}", file=sys.stderr)
    count, right, near = logs.shares(read)
    healthy = [log for log in read if log.record["class"] == logs.HEALTHY]
    good = sum(log.right for log in healthy)
    short = [log for log in read if log.is_short and log not in healthy]
    yield _row(f"failure logs of {where}: right class first", right, count, bound)
    right_short = sum(log.right for log in short)
    yield Row("of them with one or two lines", f"{right_short}/{len(short)}", "-", ok=True)
    yield _row("root line, or one within 3 of it", near, count, LINE_SHARE)
    yield Row(
        "healthy ones without a failure", f"{good}/{len(healthy)}", "all", good == len(healthy)
    )
    yield Row("class by class", _classes(read), "-", ok=True)


def _row(what: str, good: int, count: int, bound: float) -> Row:
    ok = bool(count) and good >= bound * count
    return Row(what, f"{good}/{count} ({good / max(1, count):.1%})", f">= {bound:.0%}", ok)


def _classes(read: Sequence[object]) -> str:
    counts: dict[str, list[int]] = {}
    for log in read:
        tally = counts.setdefault(log.record["class"], [0, 0])  # type: ignore[attr-defined]
        tally[0] += log.right  # type: ignore[attr-defined]
        tally[1] += 1
    return ", ".join(f"{name} {good}/{count}" for name, (good, count) in sorted(counts.items()))
