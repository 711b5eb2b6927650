"""The failure of a run as lines for the screen: the one block that a person reads at 3 a.m.

Who failed first and with what, the user's own line of code, what the others then did, the proof,
and what to do next. The words come from failure.json; nothing is looked up here.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.cli.output import wrap
from safelaunch.runtime.failure import blame
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runtime.records import Failure, RankFailure, StackFrame

# `[../third_party/gloo/gloo/transport/tcp/pair.cc:534] ` says nothing to who trains
_SOURCE = re.compile(r"\[[^\]]*\.(?:cc|cpp|cu):\d+\] ?")
_LABEL = 10  # columns of `failure   `, as the other lines below a run's state
_LEAST = 40  # columns that a block wants, however narrow the terminal
_WHAT = 3  # lines of the message
_GROUPS = 3  # lines about the other ranks
_OUTPUT = 4  # last lines of output, where nothing better tells
_STEPS = 4  # of a remedy in a run's block; `diagnose` shows all
_STEP = 6  # lines of one
_CODE = 3  # lines of the user's line of code
_PROOF = 6  # lines of proof: of a hang it says what each rank does


def block(failure: Failure, width: int, run: str = "") -> list[str]:
    """Return the lines about a failure, at most `width` columns where that can be done.

    `run` is the id with which its log can be asked for.
    """
    width = max(width, _LEAST)
    lines = folded("failure", _headline(failure), width, _WHAT, break_words=True)
    lines += _kind(failure, width)
    lines += _why(failure, width)
    lines += _place(failure, width)
    lines += _stack(failure, width)
    lines += _causes(failure, width)
    lines += _others(failure, width)
    if failure.proof:
        lines += folded("proof", failure.proof, width, _PROOF)
    lines += _output(failure, width)
    lines += _log(failure, width, run)
    return lines + _next(failure, width)


def _why(failure: Failure, width: int) -> list[str]:
    """Return what the signature that recognised a failure says of its cause."""
    why = failure.why
    return folded("why", why, width, 5) if why and why != failure.meaning else []


def _next(failure: Failure, width: int) -> list[str]:
    if failure.remedy:
        return steps(failure.remedy[:_STEPS], width)
    return folded("next", failure.advice, width, 5) if failure.advice else []


def steps(remedy: Sequence[str], width: int) -> list[str]:
    """Return what to do as a numbered list behind the label `next`; a single step has no number."""
    if len(remedy) == 1:
        return folded("next", remedy[0], width, _STEP)
    lines: list[str] = []
    for index, step in enumerate(remedy):
        first, *rest = folded("", step, width - 3, _STEP)
        lines.append(f"{'' if index else 'next':<{_LABEL}}{index + 1}. {first[_LABEL:]}")
        lines += [" " * 3 + line for line in rest]
    return lines


def _headline(failure: Failure) -> str:
    """Return `rank 1 on gpu01 failed first: ValueError: bad batch 17`."""
    what = failure.what or "nothing tells why"
    if failure.rank is None or failure.class_name == "hang":
        return what
    rank = f"rank {failure.rank}" + (f" on {failure.host}" if failure.host else "")
    if what.startswith(blame.LEFT):
        return f"{rank} {what}"
    first = " first" if failure.others else ""
    if failure.exception is None and not what.startswith("exited"):
        return f"{rank} was the first to end: {what}"
    return f"{rank} failed{first}: {what}"


def _kind(failure: Failure, width: int) -> list[str]:
    """Return the class, as `recovery.classes` names it, and what it means."""
    name, meaning = failure.class_name, failure.meaning
    return folded("class", f"{name} ({meaning})", width, 3) if meaning else []


def _place(failure: Failure, width: int) -> list[str]:
    """Return where in the user's code it was, and that line."""
    frame = failure.frame
    if frame is None or not frame.file:
        return []
    lines = list(_labelled("at", _frame(frame, width)))
    code = frame.code.strip()
    indent = " " * (_LABEL + 2)
    return lines + [
        indent + line for line in wrap(code, width - len(indent), max_lines=_CODE, break_words=True)
    ]


def _frame(frame: StackFrame, width: int) -> list[str]:
    """Return `/home/me/train.py:17 in step`; of the user's own files the whole path."""
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
    """Return the Python stack of a fatal signal, the user's own frames marked."""
    lines = []
    for frame in failure.stack if len(failure.stack) > 1 else ():
        place = f" ({frame.file}:{frame.line})"
        room = width - _LABEL - 2 - len(frame.function)
        lines.append(f"{'>' if frame.own else ' '} {frame.function}{_middle(place, room)}")
    return list(_labelled("stack", lines))


def _causes(failure: Failure, width: int) -> list[str]:
    """Return the exceptions from which the one above was raised."""
    lines: list[str] = []
    for cause in failure.causes:
        place, frame = "", cause.frame
        if frame is not None and frame.file:
            place = f", {os.path.basename(frame.file)}:{frame.line}"
        lines += folded("cause", f"{cause.what}{place}", width, _WHAT)
    return lines


def _others(failure: Failure, width: int) -> list[str]:
    """Return what the other ranks then did, those that did the same on one line."""
    groups: dict[str, list[RankFailure]] = {}
    for other in failure.others:
        what = _SOURCE.sub("", other.what or "failed too")
        groups.setdefault(what, []).append(other)
    lines: list[str] = []
    for what, members in list(groups.items())[:_GROUPS]:
        after = _after([member.after for member in members])
        text = f"{_ranks(members)}{after}: {what}"
        lines += folded("" if lines else "then", text, width, 2 if len(groups) == 1 else 1)
    if len(groups) > _GROUPS:
        lines.append(" " * _LABEL + f"and {len(groups) - _GROUPS} other ways to end")
    return lines


def _after(times: Sequence[float | None]) -> str:
    """Return ` 21 ms later`, ` 21 to 40 ms later`, or nothing where it is not known."""
    known = sorted(time for time in times if time is not None)
    if not known or known[0] < 0:
        return ""
    low, high = duration(known[0]), duration(known[-1])
    if low == high:
        return f", {high} later"
    number, unit = low.split(" ", 1)
    short = number if unit == high.split(" ", 1)[1] else low
    return f", {short} to {high} later"


def _ranks(members: Sequence[RankFailure]) -> str:
    """Return `rank 0`, `ranks 0, 2-5`; the launcher has no rank."""
    numbers = sorted(member.rank for member in members if member.rank is not None)
    if not numbers:
        hosts = list(dict.fromkeys(member.host for member in members if member.host))
        return "the launcher" + (f" on {', '.join(hosts[:3])}" if hosts else "")
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"rank{'s' if len(numbers) > 1 else ''} {words}"


def _output(failure: Failure, width: int) -> list[str]:
    """Return the end of the output where no exception and no frame tell more."""
    if failure.exception or failure.frame:
        return []
    shown = [line.rstrip() for line in failure.last_lines if line.strip()]
    if shown and " ".join(shown[-1].split()) == failure.what:
        shown.pop()  # the headline is that line
    lines = [
        part
        for line in shown[-_OUTPUT:]
        for part in wrap(line, width - _LABEL, max_lines=2, break_words=True)
    ]
    return list(_labelled("output", lines))


def _log(failure: Failure, width: int, run: str) -> list[str]:
    """Return the command that shows the log, or that there is nothing in it."""
    if not run:
        return []
    command = f"safelaunch logs {run}"
    if failure.printed:
        return [f"{'log':<{_LABEL}}{command}{_which(failure)}"]
    source = "the launcher" if failure.rank is None else f"rank {failure.rank}"
    text = f"{source} printed nothing; all ranks:"
    if len(text) + 1 + len(command) + _LABEL <= width:
        return [f"{'log':<{_LABEL}}{text} {command}"]
    return [f"{'log':<{_LABEL}}{text}", " " * _LABEL + command]


def _which(failure: Failure) -> str:
    if failure.rank is not None:
        return f" --rank {failure.rank}"
    return " --launcher" if failure.node is None else f" --launcher --node {failure.node}"


def folded(label: str, text: str, width: int, most: int, break_words: bool = False) -> list[str]:
    """Return text behind a label, folded at blanks; long words (paths) shortened or broken."""
    room = width - _LABEL
    if not break_words:
        text = " ".join(_middle(word, room) for word in text.split())
    lines = wrap(text, room, max_lines=most, break_words=True)
    return list(_labelled(label, lines or [""]))


def _labelled(label: str, lines: Sequence[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"{label if not index else '':<{_LABEL}}{line}"


def _middle(text: str, width: int) -> str:
    """Return a path shortened in its middle: its end says most."""
    if len(text) <= width:
        return text
    head = (width - 3) // 3
    return text[:head] + "..." + text[len(text) - (width - 3 - head) :]
