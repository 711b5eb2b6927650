"""What a check answers: a status, what was seen, and what to do."""

from __future__ import annotations

from typing import Any, NamedTuple

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
STATUSES = (FAIL, WARN, SKIP, OK)  # in the order of importance
Question = tuple[Any, ...]  # kind and words: runtime/facts/questions.py


class Answer(NamedTuple):
    """What a check found. `evidence` is what was seen, `hint` what to do, followed literally."""

    status: str
    evidence: str
    hint: str = ""
    source: str = ""  # where the rule comes from, if not the check's own


class NotKnown(Exception):  # noqa: N818 - reads as what happened
    """A check has no answer, for want of what it must know; says why."""


def ok(evidence: str) -> Answer:
    """Return that the check passed."""
    return Answer(OK, evidence)


def warn(evidence: str, hint: str, source: str = "") -> Answer:
    """Return that a start is possible, and what may go wrong."""
    return Answer(WARN, evidence, hint, source)


def fail(evidence: str, hint: str, source: str = "") -> Answer:
    """Return that a start is impossible, and what to do."""
    return Answer(FAIL, evidence, hint, source)


def skip(why: str) -> Answer:
    """Return that it cannot be told, and why."""
    return Answer(SKIP, why)
