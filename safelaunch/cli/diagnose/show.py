"""A diagnosis as lines for the screen, and as JSON: the words stand in the findings."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch.cli.runs.failure_block import folded, steps
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.diagnose.evidence import EvidenceLine, Frame
    from safelaunch.diagnose.root_cause import Diagnosis, Finding

_SURE = {"high": "", "medium": "most likely: ", "low": "perhaps: "}
_RESTART = {
    "useless": "a restart alone fails the same way",
    "may-help": "a restart may help",
    "helps": "a restart helps",
}
_BLANKS = "\xa0\u3000"  # blanks of French and Chinese text, which are harmless
# control characters, and those that turn the direction of what follows
_UNSEEN = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
_LABEL = 10
# what loggers write before a message: of a line that is too long it says least
_HEAD = re.compile(
    r"^((?:\[(?:rank|default)\d+\]: ?)?)"
    r"(?:(?:\[rank\d+\]:|\[PG [^\]]*\]|\[Rank \d+\]|\([\w.:]+,? pid=[^)]*\)"
    r"|\[?[EWIF]\d{0,4} [\d:.]+ (?:\d+ )?[\w./-]+:\d+\]"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: \d\d-\d\d [\d:.]+)? \[[\w.]+:\d+\]"
    r"|\[?\d{4}-\d\d-\d\d[ T][\d:.,]+(?: [A-Z]+\d+)*\]?|\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]"
    r"|\[[\w.]+\.py:\d+:\w+\]) *)*"
)
_FILE = re.compile(r'^(.*?File ")([^"]+)(".*)$')
_WIDEST = 100  # columns: longer lines of prose are hard to read


def screen(told: Diagnosis, width: int, *, show_all: bool) -> Iterator[str]:
    """Yield the lines of a diagnosis, at most `width` columns where that can be done.

    What a log holds cannot move the cursor or change the terminal.
    """
    for line in _lines(told, max(40, min(width, _WIDEST)), show_all=show_all):
        yield printable(line, keep=_BLANKS)


def _lines(told: Diagnosis, width: int, *, show_all: bool) -> Iterator[str]:
    if told.causes and not told.failed:
        yield _nothing(told)
        yield ""
    if told.causes:
        yield from _cause(told.causes[0], width, several=told.logs > 1)
        for rival in told.causes[1:]:
            said = _HEAD.sub(r"\1", rival.line) or rival.line
            yield from folded("or", f"{rival.name} ({_place(rival)}): {said}", width, 2)
    else:
        yield _nothing(told)
    if show_all:
        yield from _rest("also found", told.others, width)
        yield from _rest("alarms after which it went on", told.false_alarms, width)
    elif told.causes and told.others:
        count = len(told.others)
        yield ""
        yield f"{count} more finding{'s' if count > 1 else ''}: --all lists them"


def _nothing(told: Diagnosis) -> str:
    what = f"{told.lines:,} lines"
    if told.logs > 1:
        what += f" of {told.logs} logs"
    said = f"no failure found in {what}"
    if told.false_alarms:
        said += f"; {len(told.false_alarms)} alarms after which it went on: --all lists them"
    return said


def _cause(one: Finding, width: int, *, several: bool) -> Iterator[str]:
    who = "" if one.rank is None else f"rank {one.rank}"
    who += f" on {one.host}" if one.host else ""
    label = "failure" if one.role != "warning" else "warning"
    said = " ".join(one.line.split())
    said = said if len(said) <= width - _LABEL else _HEAD.sub("", said) or said
    yield from folded(label, said, width, 3, break_words=True)
    meaning = classes.meaning(one.name)
    if one.role != "warning":
        yield from folded("class", f"{_SURE[one.confidence]}{one.name} ({meaning})", width, 2)
    if one.cause != meaning:
        yield from folded("why", ("likely: " if one.likely else "") + one.cause, width, 6)
    yield from folded("in", f"{_place(one)}{', ' if who else ''}{who}", width, 2)
    if one.frame is not None:
        yield from _at(one.frame, width)
    yield from _proof(one.evidence, one, width, several=several)
    yield from steps(one.remedy, width)
    restart = _RESTART[one.restart]
    if one.role != "warning" and not any(restart in step for step in one.remedy):
        yield from folded("restart", restart, width, 2)
    for index, url in enumerate(one.source):
        yield f"{'more' if not index else '':<{_LABEL}}{url}"


def _place(one: Finding) -> str:
    near = os.path.relpath(one.path)
    name = near if len(near) <= len(one.path) else one.path
    name = "standard input" if name == "-" else name
    return f"{name}:{one.number}" if one.number else name


def _at(frame: Frame, width: int) -> Iterator[str]:
    yield from folded("at", f"{frame.file}:{frame.line} in {frame.function}", width, 2)
    if frame.code:
        yield from folded("", f"  {frame.code}", width, 1)


def _proof(
    lines: Iterable[EvidenceLine], one: Finding, width: int, *, several: bool
) -> Iterator[str]:
    shown = list(lines)
    digits = max((len(str(line.number)) for line in shown), default=1)
    path = one.path
    for index, line in enumerate(shown):
        if several and line.path != path:
            path = line.path
            yield " " * _LABEL + f"{os.path.relpath(path)}:"
        mark = ">" if (line.path, line.number) == (one.path, one.number) else " "
        head = f"{line.number:>{digits}} {mark} "
        said = " ".join(line.text.expandtabs(4).split(chr(0)))
        label = "proof" if not index else ""
        yield f"{label:<{_LABEL}}{head}{_fitted(said, width - _LABEL - len(head))}"


def _fitted(text: str, room: int) -> str:
    """Return a line of a log in so many columns: without what says least, then cut."""
    if len(text) <= room:
        return text
    text = _HEAD.sub(r"\1", text) or text
    frame = _FILE.match(text)
    if frame is not None and len(text) > room:
        begin, path, end = frame.groups()
        left = max(room - len(begin) - len(end) - 3, len(path.rpartition("/")[2]))
        text = f"{begin}...{path[-left:]}{end}"
    return text if len(text) <= room else text[: room - 4] + " ..."


def _rest(title: str, findings: Iterable[Finding], width: int) -> Iterator[str]:
    shown = list(findings)
    if not shown:
        return
    yield ""
    yield f"{title}:"
    for one in shown:
        rank = "" if one.rank is None else f", rank {one.rank}"
        head = f"  {one.name} ({one.role}) {_place(one)}{rank}: {one.line}"
        yield head if len(head) <= width else head[: width - 4] + " ..."


def to_json(told: Diagnosis, *, show_all: bool) -> dict[str, Any]:
    """Return a diagnosis as `diagnose --json` prints it: the first finding is the root cause."""
    findings = [*told.causes, *told.others] if show_all else told.causes
    return {
        "version": 1,
        "findings": [_finding(one) for one in findings],
        "went_on": [_finding(one) for one in told.false_alarms] if show_all else [],
        "notes": told.notes,
    }


def _finding(one: Finding) -> dict[str, Any]:
    frame = one.frame
    return {
        "id": one.id,
        "class": one.name,
        "role": one.role,
        "file": one.path,
        "line": one.line,
        "line_number": one.number or None,
        "rank": one.rank,
        "host": one.host or None,
        "cause": one.cause,
        "remedy": list(one.remedy),
        "restart": one.restart,
        "confidence": one.confidence,
        "likely": one.likely,
        "source": list(one.source),
        "frame": None if frame is None else frame._asdict(),
        "evidence": [line._asdict() for line in one.evidence],
    }
