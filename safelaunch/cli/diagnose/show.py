"""Formats a diagnosis as lines for the screen and as JSON."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch.cli.runs.failure_block import headline, labelled, steps
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.signatures import classes
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.diagnose.evidence import EvidenceLine
    from safelaunch.diagnose.root_cause import Diagnosis, Finding

_CONFIDENCE = {"high": "", "medium": "most likely: ", "low": "perhaps: "}
_RESTART = {
    "useless": "a restart alone fails the same way",
    "may-help": "a restart may help",
    "helps": "a restart helps",
}
_BLANKS = "\xa0\u3000"  # spaces of French and Chinese text, which are harmless
_LABEL_WIDTH = 10
# what loggers write before a message: removed first from a long line
_LOGGER_PREFIX = re.compile(
    r"^((?:\[(?:rank|default)\d+\]: ?)?)"
    r"(?:(?:\[rank\d+\]:|\[PG [^\]]*\]|\[Rank \d+\]|\([\w.:]+,? pid=[^)]*\)"
    r"|\[?[EWIF]\d{0,4} [\d:.]+ (?:\d+ )?[\w./-]+:\d+\]"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: \d\d-\d\d [\d:.]+)? \[[\w.]+:\d+\]"
    r"|\[?\d{4}-\d\d-\d\d[ T][\d:.,]+(?: [A-Z]+\d+)*\]?|\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]"
    r"|\[[\w.]+\.py:\d+:\w+\]) *)*"
)
_FILE = re.compile(r'^(.*?File ")([^"]+)(".*)$')
_MAX_WIDTH = 100  # columns: longer lines of prose are hard to read


def format_diagnosis(diagnosis: Diagnosis, width: int, *, show_all: bool) -> Iterator[str]:
    """Yield the lines of a diagnosis, at most `width` columns where that can be done.

    Control characters of a log cannot move the cursor or change the terminal.
    """
    for line in _lines(diagnosis, max(40, min(width, _MAX_WIDTH)), show_all=show_all):
        yield printable(line, keep=_BLANKS)


def _lines(diagnosis: Diagnosis, width: int, *, show_all: bool) -> Iterator[str]:
    if diagnosis.causes and not diagnosis.failed:
        yield _no_failure(diagnosis)
        yield ""
    if diagnosis.causes:
        yield from _cause(diagnosis.causes[0], width, several=diagnosis.logs > 1)
        for rival in diagnosis.causes[1:]:
            text = _LOGGER_PREFIX.sub(r"\1", rival.line) or rival.line
            yield from labelled("or", f"{rival.name} ({_location(rival)}): {text}", width, 2)
    else:
        yield _no_failure(diagnosis)
    if show_all:
        yield from _finding_list("also found", diagnosis.others, width)
        yield from _finding_list(
            "false alarms (the job continued after them)", diagnosis.false_alarms, width
        )
    elif diagnosis.causes and diagnosis.others:
        yield ""
        yield f"{quantity(len(diagnosis.others), 'more finding')}: --all lists them"


def _no_failure(diagnosis: Diagnosis) -> str:
    text = f"no failure found in {diagnosis.lines:,} lines"
    if diagnosis.logs > 1:
        text += f" of {diagnosis.logs} logs"
    if diagnosis.false_alarms:
        count = quantity(len(diagnosis.false_alarms), "false alarm")
        text += f"; {count} after which the job continued: --all lists them"
    return text


def _cause(finding: Finding, width: int, *, several: bool) -> Iterator[str]:
    location = "" if finding.rank is None else f"rank {finding.rank}"
    location += f" on {finding.host}" if finding.host else ""
    label = "failure" if finding.role != "warning" else "warning"
    line = " ".join(finding.line.split())
    line = line if len(line) <= width - _LABEL_WIDTH else _LOGGER_PREFIX.sub("", line) or line
    yield from headline(label, line, finding.message, width)
    meaning = classes.meaning(finding.name)
    if finding.role != "warning":
        yield from labelled(
            "class", f"{_CONFIDENCE[finding.confidence]}{finding.name} ({meaning})", width, 2
        )
    if finding.cause != meaning:
        yield from labelled("why", ("likely: " if finding.likely else "") + finding.cause, width, 6)
    yield from labelled("in", f"{_location(finding)}{', ' if location else ''}{location}", width, 2)
    frame = finding.frame
    if frame is not None:
        yield from labelled("at", f"{frame.file}:{frame.line} in {frame.function}", width, 2)
        yield from labelled("", f"  {frame.code}", width, 1) if frame.code else ()
    yield from _evidence(finding.evidence, finding, width, several=several)
    yield from steps(finding.remedy, width)
    restart = _RESTART[finding.restart]
    if finding.role != "warning" and not any(restart in step for step in finding.remedy):
        yield from labelled("restart", restart, width, 2)
    for index, url in enumerate(finding.source):
        yield f"{'more' if not index else '':<{_LABEL_WIDTH}}{url}"


def _location(finding: Finding) -> str:
    relative = os.path.relpath(finding.path)
    name = relative if len(relative) <= len(finding.path) else finding.path
    name = "standard input" if name == "-" else name
    return f"{name}:{finding.number}" if finding.number else name


def _evidence(
    lines: Iterable[EvidenceLine], finding: Finding, width: int, *, several: bool
) -> Iterator[str]:
    shown = list(lines)
    digits = max((len(str(line.number)) for line in shown), default=1)
    path = finding.path
    for index, line in enumerate(shown):
        if several and line.path != path:
            path = line.path
            yield " " * _LABEL_WIDTH + f"{os.path.relpath(path)}:"
        mark = ">" if (line.path, line.number) == (finding.path, finding.number) else " "
        head = f"{line.number:>{digits}} {mark} "
        content = " ".join(line.text.expandtabs(4).split(chr(0)))
        label = "proof" if not index else ""
        yield f"{label:<{_LABEL_WIDTH}}{head}{_fit_line(content, width - _LABEL_WIDTH - len(head))}"


def _fit_line(text: str, width: int) -> str:
    """Return a log line within a width: first without logger prefixes, then cut."""
    if len(text) <= width:
        return text
    text = _LOGGER_PREFIX.sub(r"\1", text) or text
    frame = _FILE.match(text)
    if frame is not None and len(text) > width:
        start, path, end = frame.groups()
        left = max(width - len(start) - len(end) - 3, len(path.rpartition("/")[2]))
        text = f"{start}...{path[-left:]}{end}"
    return text if len(text) <= width else text[: width - 4] + " ..."


def _finding_list(title: str, findings: Iterable[Finding], width: int) -> Iterator[str]:
    shown = list(findings)
    if not shown:
        return
    yield ""
    yield f"{title}:"
    for finding in shown:
        rank = "" if finding.rank is None else f", rank {finding.rank}"
        head = f"  {finding.name} ({finding.role}) {_location(finding)}{rank}: {finding.line}"
        yield head if len(head) <= width else head[: width - 4] + " ..."


def to_json(diagnosis: Diagnosis, *, show_all: bool) -> dict[str, Any]:
    """Return a diagnosis as `diagnose --json` prints it: the first finding is the root cause."""
    findings = [*diagnosis.causes, *diagnosis.others] if show_all else diagnosis.causes
    return {
        "version": 1,
        "findings": [_finding(finding) for finding in findings],
        "went_on": [_finding(finding) for finding in diagnosis.false_alarms] if show_all else [],
        "notes": diagnosis.notes,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    frame = finding.frame
    return {
        "id": finding.id,
        "class": finding.name,
        "role": finding.role,
        "file": finding.path,
        "line": finding.line,
        "line_number": finding.number or None,
        "rank": finding.rank,
        "host": finding.host or None,
        "cause": finding.cause,
        "remedy": list(finding.remedy),
        "restart": finding.restart,
        "confidence": finding.confidence,
        "likely": finding.likely,
        "source": list(finding.source),
        "message": finding.message or None,
        "library": None if finding.library is None else finding.library.to_json(),
        "frame": None if frame is None else frame._asdict(),
        "evidence": [line._asdict() for line in finding.evidence],
    }
