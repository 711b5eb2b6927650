"""Reads the block by which torchrun says which ranks failed, as a part of a merged log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.runtime.failure import elastic_report

if TYPE_CHECKING:
    from safelaunch.diagnose.evidence import Candidate, ParsedExcerpt

_TITLE = "ChildFailedError"
_RULE = re.compile(r"^[│┃\s]*={20,}[│┃\s]*$")
_RANK = re.compile(r"^\W*rank\s*: (\d{1,9}) \(local_rank: ")
_ENTRY = re.compile(r"^\W*\[\d+\]:\W*$")
MAX_LINES = 2000  # of a block: sixteen ranks with their tracebacks have some hundreds
RULES = 2  # above and below the entries


class LauncherBlock:
    """The last block of an excerpt: its first and last line, and the failures that it lists."""

    def __init__(self, excerpt: ParsedExcerpt) -> None:
        lines = excerpt.lines
        titles = [index for index, line in enumerate(lines) if _TITLE in line]
        self.start = self.end = 0
        self.failures: dict[int, elastic_report.ElasticFailure] = {}
        if titles:
            rules = [
                index
                for index in range(titles[-1], min(len(lines), titles[-1] + MAX_LINES))
                if _RULE.match(lines[index])
            ][:RULES]
            last = rules[-1] if len(rules) == RULES else titles[-1]
            self.start, self.end = excerpt.number + titles[-1], excerpt.number + last
            self.failures = elastic_report.parse("\n".join(lines[titles[-1] : last + 1]))

    def is_consequence(self, candidate: Candidate) -> bool:
        """Whether a line is the entry of a rank that the agent ended after the first failure."""
        if not self.start <= candidate.number <= self.end:
            return False
        failure = self.failures.get(_entry_rank(candidate) or 0)
        return failure is not None and failure.signal == "SIGTERM" and not failure.first

    def rank_of(self, candidate: Candidate) -> int | None:
        """Return the rank of which a line without one is; None if the block does not say."""
        if (
            self.start <= candidate.number <= self.end
            and (rank := _entry_rank(candidate)) is not None
        ):
            return rank
        message = candidate.match.line[-200:]
        same = [rank for rank, entry in self.failures.items() if message in entry.traceback]
        first = [rank for rank, entry in self.failures.items() if entry.first]
        return next(iter(same or first), None)


def _entry_rank(candidate: Candidate) -> int | None:
    """Return the rank in the entry of the block in which a line stands."""
    lines = candidate.excerpt.lines
    for index in range(candidate.index, -1, -1):
        if match := _RANK.match(lines[index]):
            return int(match[1])
        if _ENTRY.match(lines[index]) or _TITLE in lines[index]:
            return None
    return None
