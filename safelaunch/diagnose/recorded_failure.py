"""The failure that a run of our own has recorded: the first evidence, before what its log tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.diagnose.evidence import Frame
from safelaunch.diagnose.root_cause import HIGH, MEDIUM, Diagnosis, Finding
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAME = 60  # characters of a message by which its line in the log is known


def first(told: Diagnosis, failure: Mapping[str, Any], log: str) -> None:
    """Put the failure that a run has recorded (failure.json) before all that its log tells.

    Its line is the one of the log that shows it; there is none of a rank that vanished.
    """
    recorded = _finding(failure, log)
    same = [one for one in (*told.causes, *told.others) if _shows(one, recorded)]
    if same:
        line = same[0]
        recorded = replace(
            recorded, path=line.path, line=line.line, number=line.number, evidence=line.evidence
        )
    told.others = [one for one in (*told.causes, *told.others) if one not in same[:1]]
    told.causes = [recorded]


def _shows(one: Finding, recorded: Finding) -> bool:
    if one.rank is not None and recorded.rank is not None and one.rank != recorded.rank:
        return False
    return recorded.line[:_SAME] in one.line


def _finding(failure: Mapping[str, Any], log: str) -> Finding:
    name = str(failure.get("class") or classes.USER)
    kind = classes.TABLE.get(name, classes.TABLE[classes.USER])
    restart = str(failure.get("restart") or ("may-help" if kind.restart else "useless"))
    steps = failure.get("remedy") or [failure.get("advice") or kind.advice]
    role, rank = str(failure.get("role") or "unknown"), failure.get("rank")
    return Finding(
        id=str(failure.get("signature") or name),
        name=name,
        role=role,
        path=log,
        line=str(failure.get("what") or ""),
        number=0,
        rank=rank if isinstance(rank, int) else None,
        host=str(failure.get("host") or ""),
        cause=str(failure.get("why") or classes.meaning(name, str(failure.get("signal") or ""))),
        remedy=tuple(map(str, steps)),
        restart=restart,
        confidence=HIGH if role == "root" else MEDIUM,
        source=tuple(map(str, failure.get("source") or ())),
        frame=_frame(failure.get("frame")),
    )


def _frame(frame: object) -> Frame | None:
    if not isinstance(frame, dict) or not frame.get("file"):
        return None
    line = frame.get("line")
    return Frame(
        str(frame["file"]),
        line if isinstance(line, int) else 0,
        str(frame.get("function") or ""),
        str(frame.get("code") or ""),
        bool(frame.get("own")),
    )
