"""Adds the failure that one of our own runs recorded to the diagnosis of its log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.diagnose.evidence import Frame
from safelaunch.diagnose.root_cause import HIGH, LOW, MEDIUM, Diagnosis, Finding
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from safelaunch.runtime.records import Failure, StackFrame

_MESSAGE_PREFIX_LENGTH = 60  # characters, by which the line of a message is found in the log


def put_first(diagnosis: Diagnosis, failure: Failure, log: str) -> None:
    """Make the recorded failure of a run (failure.json) the cause, before the findings of its log.

    It takes the line of the log that shows it; a rank that vanished has none.
    """
    recorded = _finding(failure, log)
    findings = (*diagnosis.causes, *diagnosis.others)
    message = recorded.line[:_MESSAGE_PREFIX_LENGTH]
    same = [
        finding
        for finding in findings
        if message in finding.line
        and (None in (finding.rank, recorded.rank) or finding.rank == recorded.rank)
    ]
    if same:
        shown = {key: getattr(same[0], key) for key in ("path", "line", "number", "evidence")}
        recorded = replace(recorded, **shown)
    diagnosis.others = [finding for finding in findings if finding not in same[:1]]
    diagnosis.causes = [recorded]


def _finding(failure: Failure, log: str) -> Finding:
    name = failure.class_name or classes.USER
    kind = classes.TABLE.get(name, classes.TABLE[classes.USER])
    confidence = HIGH if failure.role == "root" else MEDIUM
    return Finding(
        id=failure.signature or name,
        name=name,
        role=failure.role,
        path=log,
        line=failure.what,
        number=0,
        rank=failure.rank,
        host=failure.host,
        cause=failure.why or failure.meaning or classes.meaning(name),
        remedy=tuple(failure.remedy or [failure.advice or kind.advice]),
        restart=failure.restart or ("may-help" if kind.restart else "useless"),
        confidence=LOW if failure.is_unrecognised else confidence,
        source=tuple(failure.source),
        frame=_frame(failure.frame),
        message=failure.whole_message,
        library=failure.library,
    )


def _frame(frame: StackFrame | None) -> Frame | None:
    if frame is None or not frame.file:
        return None
    return Frame(frame.file, frame.line, frame.function, frame.code, frame.own)
