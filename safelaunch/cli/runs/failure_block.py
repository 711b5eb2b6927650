"""Formats the failure of a run for the terminal.

First the rank that failed first and its error, the user's line of code, what the other ranks did,
evidence, and what to do next. All text comes from failure.json.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.cli.output import escape, wrap
from safelaunch.runtime.failure import blame
from safelaunch.runtime.units import duration, name_ranks, starter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.records import Failure, RankFailure, StackFrame

# `[../third_party/gloo/gloo/transport/tcp/pair.cc:534] ` is of no use to a user
_CPP_LOCATION = re.compile(r"\[[^\]]*\.(?:cc|cpp|cu):\d+\] ?")
_LABEL = 10  # columns, as of the other lines below a run's state
_MIN_WIDTH = 40  # columns of a block in a terminal that is narrower
_MAX_GROUPS = 3  # lines about the other ranks
_MAX_STEPS = 4  # of a remedy; `diagnose` shows all
_STEP_LINES = 6


def block(failure: Failure, width: int, run: str = "", start: str | None = None) -> list[str]:
    """Return the lines about a failure, at most `width` columns where that is possible.

    With `run`, the id of the run, also the command that shows its log. `start` is of its status.
    """
    width = max(width, _MIN_WIDTH)
    lines = headline("failure", _headline(failure), failure.whole_message, width)
    if failure.meaning:  # of the class, which is named as in `recovery.classes`
        lines += labelled("class", f"{failure.class_name} ({failure.meaning})", width, 3)
    if failure.why and failure.why != failure.meaning:
        lines += labelled("why", failure.why, width, 5)
    if failure.frame is not None and failure.frame.file:
        lines += with_label("at", _frame(failure.frame, width))
        indent = " " * (_LABEL + 2)
        code = failure.frame.code.strip()
        code_lines = wrap(code, width - len(indent), max_lines=3, break_words=True)
        lines += [indent + line for line in code_lines]
    lines += _stack(failure, width)
    for cause in failure.causes:  # the exceptions from which the first one was raised
        frame, place = cause.frame, ""
        if frame is not None and frame.file:
            place = f", {os.path.basename(frame.file)}:{frame.line}"
        lines += labelled("cause", f"{cause.what}{place}", width, 3)
    lines += _others(failure, width, starter(start))
    if failure.proof:  # of a hang: what each rank does
        lines += labelled("proof", failure.proof, width, 6)
    lines += _nccl(failure, width)
    lines += _output(failure, width)
    lines += _log(failure, width, run, starter(start))
    if failure.remedy:
        lines += steps(failure.remedy[:_MAX_STEPS], width)
    elif failure.advice:
        lines += labelled("next", failure.advice, width, 5)
    return lines


def _nccl(failure: Failure, width: int) -> list[str]:
    """Return what NCCL had chosen, and where the dumps of the ranks are."""
    lines = labelled("nccl", failure.nccl, width, 4) if failure.nccl else []
    if failure.collectives is not None and failure.collectives.folder:
        lines += with_label("dumps", [failure.collectives.folder])
    return lines


def steps(remedy: Sequence[str], width: int) -> list[str]:
    """Return a remedy with the label `next`, as a numbered list if it has several steps."""
    if len(remedy) == 1:
        return labelled("next", remedy[0], width, _STEP_LINES)
    lines: list[str] = []
    for index, step in enumerate(remedy):
        first, *rest = labelled("", step, width - 3, _STEP_LINES)
        lines.append(f"{'' if index else 'next':<{_LABEL}}{index + 1}. {first[_LABEL:]}")
        lines += [" " * 3 + line for line in rest]
    return lines


def _headline(failure: Failure) -> str:
    """Return `rank 1 on gpu01 failed first: ValueError: bad batch 17`."""
    what = failure.what or "the reason is not known"
    if failure.rank is None or failure.class_name == "hang":
        return what
    rank = f"rank {failure.rank}" + (f" on {failure.host}" if failure.host else "")
    if what.startswith(blame.LEFT):
        return f"{rank} {what}"
    first = " first" if failure.others else ""
    if failure.exception is None and not what.startswith("exited"):
        return f"{rank} ended first: {what}"
    return f"{rank} failed{first}: {what}"


def _frame(frame: StackFrame, width: int) -> list[str]:
    """Return `/home/me/train.py:17 in step`, with the whole path for the user's own files."""
    tail = f":{frame.line}" + (f" in {frame.function}" if frame.function else "")
    room = width - _LABEL
    file = frame.file
    if "own" in frame and not frame.own:
        file = _middle(file, max(20, room - len(tail)))
    lines = []
    text = file + tail
    while len(text) > room:
        at = text.rfind("/", 1, room) if "/" in text[1:room] else room
        lines.append(text[:at])
        text = text[at:]
    return [*lines, text]


def _stack(failure: Failure, width: int) -> list[str]:
    """Return the Python stack of a fatal signal; `>` marks the user's own frames."""
    lines = []
    for frame in failure.stack if len(failure.stack) > 1 else ():
        place = f" ({frame.file}:{frame.line})"
        room = width - _LABEL - 2 - len(frame.function)
        lines.append(f"{'>' if frame.own else ' '} {frame.function}{_middle(place, room)}")
    return with_label("stack", lines)


def _others(failure: Failure, width: int, name: str) -> list[str]:
    """Return what the other ranks did after it, one line for each group of ranks."""
    groups: dict[str, list[RankFailure]] = {}
    for other in failure.others:
        what = _CPP_LOCATION.sub("", other.what or "failed too")
        groups.setdefault(what, []).append(other)
    lines: list[str] = []
    for what, members in list(groups.items())[:_MAX_GROUPS]:
        after = _after([member.after for member in members])
        text = f"{_ranks(members, name)}{after}: {what}"
        lines += labelled("" if lines else "then", text, width, 2 if len(groups) == 1 else 1)
    if len(groups) > _MAX_GROUPS:
        lines.append(" " * _LABEL + f"and {len(groups) - _MAX_GROUPS} other errors")
    return lines


def _after(times: Sequence[float | None]) -> str:
    """Return `, 21 ms later` or `, 21 to 40 ms later`; empty if not known."""
    seconds = sorted(time for time in times if time is not None)
    if not seconds or seconds[0] < 0:
        return ""
    low, high = duration(seconds[0]), duration(seconds[-1])
    if low == high:
        return f", {high} later"
    number, unit = low.split(" ", 1)
    short = number if unit == high.split(" ", 1)[1] else low
    return f", {short} to {high} later"


def _ranks(members: Sequence[RankFailure], name: str) -> str:
    """Return `rank 0`, `ranks 0, 2-5`, or the name of the launcher, which has no rank."""
    numbers = sorted(member.rank for member in members if member.rank is not None)
    if not numbers:
        hosts = list(dict.fromkeys(member.host for member in members if member.host))
        return name + (f" on {', '.join(hosts[:3])}" if hosts else "")
    return name_ranks(numbers)


def _output(failure: Failure, width: int) -> list[str]:
    """Return the end of the output, without an exception or a frame."""
    if failure.exception or failure.frame:
        return []
    shown = [line.rstrip() for line in failure.last_lines if line.strip()]
    if shown and failure.what.endswith(" ".join(shown[-1].split())):
        shown.pop()  # the headline has that line
    lines = [
        part
        for line in shown[-4:]
        for part in wrap(line, width - _LABEL, max_lines=2, break_words=True)
    ]
    return with_label("output", lines)


def _log(failure: Failure, width: int, run: str, name: str) -> list[str]:
    """Return the command that shows the log, or that the log is empty."""
    if not run:
        return []
    command = f"safelaunch logs {failure.run or run}"
    if failure.printed or failure.run:
        # a node that was started by hand has a run of its own, on its machine
        node = "" if failure.node is None or failure.run else f" --node {failure.node}"
        option = f"--launcher{node}" if failure.rank is None else f"--rank {failure.rank}"
        if failure.service is not None:
            option = f"--service {failure.service}"
        if failure.part is not None:
            option = f"--part {failure.part}"
        place = f"on {failure.host}: " if failure.run else ""
        return with_label("log", [f"{place}{command} {option}"])
    source = name if failure.rank is None else f"rank {failure.rank}"
    text = f"{source} printed nothing; all ranks:"
    fits = _LABEL + len(f"{text} {command}") <= width
    return with_label("log", [f"{text} {command}"] if fits else [text, command])


def headline(label: str, text: str, message: str, width: int) -> list[str]:
    """Return what failed, at most three lines; where nothing else explains it, the whole message.

    Its last lines often say what to do.
    """
    if not message:
        return labelled(label, text, width, 3, break_words=True)
    if "\n" not in message and " ".join(message.split()) in text:
        return labelled(label, text, width, None, break_words=True)
    return labelled(label, text, width, 1, break_words=True) + with_label(
        "message",
        [
            part
            for line in message.split("\n")
            for part in wrap(line, width - _LABEL, break_words=True)
        ],
    )


def labelled(
    label: str, text: str, width: int, max_lines: int | None, *, break_words: bool = False
) -> list[str]:
    """Return a text after a label, wrapped; words longer than a line are shortened or broken."""
    room = width - _LABEL
    if not break_words:
        text = " ".join(_middle(word, room) for word in text.split())
    lines = wrap(text, room, max_lines=max_lines, break_words=True)
    return with_label(label, lines or [""])


def with_label(label: str, lines: Sequence[str]) -> list[str]:
    """Return lines after a label, their control characters escaped."""
    return [f"{'' if index else label:<{_LABEL}}{escape(line)}" for index, line in enumerate(lines)]


def _middle(text: str, width: int) -> str:
    """Return a path shortened in its middle: its end matters most."""
    if len(text) <= width:
        return text
    head = (width - 3) // 3
    return text[:head] + "..." + text[len(text) - (width - 3 - head) :]
