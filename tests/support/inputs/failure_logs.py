"""Real failure logs, and how `diagnose` reads them: used by tests and by the bench."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.diagnose.logs.sources import LogReader, LogSource
from safelaunch.diagnose.root_cause import Diagnosis, diagnose
from support import DATA

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = DATA / "failures" / "failure-logs.jsonl"
HEALTHY = "healthy"
NEAR = 3  # lines that a root line may be away
SHORT = 2  # lines of an excerpt that hardly shows more than one message


class Read(NamedTuple):
    """How a record was read."""

    record: dict[str, Any]
    top_class: str  # the class that was named first, "" for none
    right: bool
    near: bool  # the root line, or one within three of it

    @property
    def is_short(self) -> bool:
        """Whether the excerpt has a line or two."""
        return len(self.record["log"].strip().splitlines()) <= SHORT


def records(path: Path = FILE) -> list[dict[str, Any]]:
    """Return the records of a file."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def diagnosed(log: str) -> Diagnosis:
    """Return what `diagnose` says of a text."""
    return diagnose([LogReader(LogSource("-"), io.BytesIO(log.encode()))])


def read(record: dict[str, Any]) -> Read:
    """Return how a record is read."""
    diagnosis = diagnosed(record["log"])
    first = diagnosis.causes[0] if diagnosis.causes else None
    if record["class"] == HEALTHY:
        name = first.name if first and diagnosis.failed else ""
        return Read(record, name, not diagnosis.failed, near=True)
    name = first.name if first else ""
    lines = [line.strip() for line in record["log"].split("\n")]
    roots = [i + 1 for i, line in enumerate(lines) if line == record["root_line"].strip()]
    near = first is not None and any(abs(first.number - root) <= NEAR for root in roots)
    return Read(record, name, name == record["class"], near)


def shares(results: Iterable[Read]) -> tuple[int, int, int]:
    """Return how many failures there are, how many have the right class, and a near line."""
    failures = [result for result in results if result.record["class"] != HEALTHY]
    return len(failures), sum(r.right for r in failures), sum(r.near for r in failures)
