"""What a check returns: a status, the evidence for it, and what to do."""

from __future__ import annotations

from typing import Any, NamedTuple

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"
STATUSES = (FAIL, WARN, SKIP, OK)  # the most important first
Question = tuple[Any, ...]  # kind and words: runtime/facts/questions.py


class Answer(NamedTuple):
    """The outcome of a check. Users follow `hint` literally."""

    status: str
    evidence: str
    hint: str = ""
    source: str = ""  # where the rule comes from, if it is not the check's own source


class NotKnown(Exception):  # noqa: N818 - reads as what happened
    """A check cannot decide, because this is missing."""


def ok(evidence: str) -> Answer:
    """Return that the check passed."""
    return Answer(OK, evidence)


def warn(evidence: str, hint: str, source: str = "") -> Answer:
    """Return that a start is possible, and what may go wrong."""
    return Answer(WARN, evidence, hint, source)


def fail(evidence: str, hint: str, source: str = "") -> Answer:
    """Return that a start is impossible, and what to do."""
    return Answer(FAIL, evidence, hint, source)


def skip(reason: str) -> Answer:
    """Return that the check could not decide."""
    return Answer(SKIP, reason)
