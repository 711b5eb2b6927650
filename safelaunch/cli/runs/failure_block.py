"""The failure of a run as lines for the screen: the one block that a person reads at 3 a.m.

Who failed first and with what, the user's own line of code, what the others then did, the proof,
and what to do next. The words come from failure.json; nothing is looked up here.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch.cli.output import wrap
from safelaunch.runtime.failure import blame
from safelaunch.runtime.signatures import classes
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def block(failure: Mapping[str, Any], width: int, run: str = "") -> list[str]:
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
    if failure.get("proof"):
        lines += folded("proof", str(failure["proof"]), width, _PROOF)
    lines += _output(failure, width)
    lines += _log(failure, width, run)
    return lines + _next(failure, width)


def _why(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return what the signature that recognised a failure says of its cause."""
    why = str(failure.get("why") or "")
    known = classes.meaning(str(failure.get("class")))
    return folded("why", why, width, 5) if why and why != known else []


def _next(failure: Mapping[str, Any], width: int) -> list[str]:
    remedy = failure.get("remedy")
    if isinstance(remedy, list) and remedy:
        return steps([str(step) for step in remedy[:_STEPS]], width)
    advice = str(failure.get("advice") or "")
    return folded("next", advice, width, 5) if advice else []


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


def _headline(failure: Mapping[str, Any]) -> str:
    """Return `rank 1 on gpu01 failed first: ValueError: bad batch 17`."""
    what = str(failure.get("what") or "nothing tells why")
    if failure.get("rank") is None or failure.get("class") == "hang":
        return what
    host = f" on {failure['host']}" if failure.get("host") else ""
    if what.startswith(blame.LEFT):
        return f"rank {failure['rank']}{host} {what}"
    first = " first" if failure.get("others") else ""
    if failure.get("exception") is None and not what.startswith("exited"):
        return f"rank {failure['rank']}{host} was the first to end: {what}"
    return f"rank {failure['rank']}{host} failed{first}: {what}"


def _kind(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return the class, as `recovery.classes` names it, and what it means."""
    name = str(failure.get("class"))
    meaning = classes.meaning(name, str(failure.get("signal") or ""))
    return folded("class", f"{name} ({meaning})", width, 3) if meaning else []


def _place(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return where in the user's code it was, and that line."""
    frame = failure.get("frame")
    if not isinstance(frame, dict) or not frame.get("file"):
        return []
    lines = list(_labelled("at", _frame(frame, width)))
    code = str(frame.get("code") or "").strip()
    indent = " " * (_LABEL + 2)
    return lines + [
        indent + line for line in wrap(code, width - len(indent), max_lines=_CODE, break_words=True)
    ]


def _frame(frame: Mapping[str, Any], width: int) -> list[str]:
    """Return `/home/me/train.py:17 in step`; of the user's own files the whole path."""
    function = str(frame.get("function") or "")
    tail = f":{frame.get('line')}" + (f" in {function}" if function else "")
    room = width - _LABEL
    file = str(frame["file"])
    if not frame.get("own", True):
        file = _middle(file, max(20, room - len(tail)))
    lines = []
    text = file + tail
    while len(text) > room:
        at = text.rfind("/", 1, room) if "/" in text[1:room] else room
        lines.append(text[:at])
        text = text[at:]
    return [*lines, text]


def _stack(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return the Python stack of a fatal signal, the user's own frames marked."""
    frames = [one for one in failure.get("stack") or () if isinstance(one, dict)]
    lines = []
    for frame in frames if len(frames) > 1 else ():
        place = f" ({frame.get('file')}:{frame.get('line')})"
        function = str(frame.get("function"))
        room = width - _LABEL - 2 - len(function)
        lines.append(f"{'>' if frame.get('own') else ' '} {function}{_middle(place, room)}")
    return list(_labelled("stack", lines))


def _causes(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return the exceptions from which the one above was raised."""
    lines: list[str] = []
    for cause in failure.get("causes") or ():
        if not isinstance(cause, dict):
            continue
        frame = cause.get("frame")
        place = ""
        if isinstance(frame, dict) and frame.get("file"):
            place = f", {os.path.basename(str(frame['file']))}:{frame.get('line')}"
        lines += folded("cause", f"{cause.get('what')}{place}", width, _WHAT)
    return lines


def _others(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return what the other ranks then did, those that did the same on one line."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for other in failure.get("others") or ():
        if isinstance(other, dict):
            what = _SOURCE.sub("", str(other.get("what") or "failed too"))
            groups.setdefault(what, []).append(other)
    lines: list[str] = []
    for what, members in list(groups.items())[:_GROUPS]:
        after = _after([member.get("after") for member in members])
        text = f"{_ranks(members)}{after}: {what}"
        lines += folded("" if lines else "then", text, width, 2 if len(groups) == 1 else 1)
    if len(groups) > _GROUPS:
        lines.append(" " * _LABEL + f"and {len(groups) - _GROUPS} other ways to end")
    return lines


def _after(times: Sequence[object]) -> str:
    """Return ` 21 ms later`, ` 21 to 40 ms later`, or nothing where it is not known."""
    known = sorted(float(t) for t in times if isinstance(t, (int, float)))
    if not known or known[0] < 0:
        return ""
    low, high = duration(known[0]), duration(known[-1])
    if low == high:
        return f", {high} later"
    number, unit = low.split(" ", 1)
    short = number if unit == high.split(" ", 1)[1] else low
    return f", {short} to {high} later"


def _ranks(members: Sequence[Mapping[str, Any]]) -> str:
    """Return `rank 0`, `ranks 0, 2-5`; the launcher has no rank."""
    numbers = sorted(one["rank"] for one in members if isinstance(one.get("rank"), int))
    if not numbers:
        hosts = list(dict.fromkeys(str(one["host"]) for one in members if one.get("host")))
        return "the launcher" + (f" on {', '.join(hosts[:3])}" if hosts else "")
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"rank{'s' if len(numbers) > 1 else ''} {words}"


def _output(failure: Mapping[str, Any], width: int) -> list[str]:
    """Return the end of the output where no exception and no frame tell more."""
    if failure.get("exception") or failure.get("frame"):
        return []
    shown = [str(line).rstrip() for line in failure.get("last_lines") or () if str(line).strip()]
    if shown and " ".join(shown[-1].split()) == failure.get("what"):
        shown.pop()  # the headline is that line
    lines = [
        part
        for line in shown[-_OUTPUT:]
        for part in wrap(line, width - _LABEL, max_lines=2, break_words=True)
    ]
    return list(_labelled("output", lines))


def _log(failure: Mapping[str, Any], width: int, run: str) -> list[str]:
    """Return the command that shows the log, or that there is nothing in it."""
    if not run:
        return []
    command = f"safelaunch logs {run}"
    if failure.get("printed") is not False:
        return [f"{'log':<{_LABEL}}{command}{_which(failure)}"]
    rank = failure.get("rank")
    who = "the launcher" if rank is None else f"rank {rank}"
    said = f"{who} printed nothing; all ranks:"
    if len(said) + 1 + len(command) + _LABEL <= width:
        return [f"{'log':<{_LABEL}}{said} {command}"]
    return [f"{'log':<{_LABEL}}{said}", " " * _LABEL + command]


def _which(failure: Mapping[str, Any]) -> str:
    rank, node = failure.get("rank"), failure.get("node")
    if rank is not None:
        return f" --rank {rank}"
    return " --launcher" if node is None else f" --launcher --node {node}"


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
