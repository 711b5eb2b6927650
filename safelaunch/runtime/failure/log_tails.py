"""Reads the ends of logs: at most a tail of each, as a person would see it. Never raises.

A log may be half, gone, gigabytes long, full of control codes, or have a hole punched into it.
"""

from __future__ import annotations

import os

from safelaunch.runtime.records import RankEvent, StackFrame
from safelaunch.runtime.signatures import match, tracebacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL = 256 << 10  # bytes: some thousand lines, read in a millisecond
SEARCH = 16 << 20  # bytes in which a traceback is searched that the tail does not hold
CLASSIFIED = 64 << 10  # bytes that are searched for signatures: a tenth of a second
TRACEBACK = 6000  # characters of a traceback, its head and its tail
SHOWN = 20  # lines
WIDTH = 500  # characters of a shown line
_BEGIN = "Traceback (most recent call last):"
_FRAME = r'^\s*File "(.+)", line (\d+)(?:,)? in (.+?)\s*$'
# rich.traceback draws a box: `│ /a/b.py:14 in f   │`, and the lines of code with `❱` at the one
_BOX_FRAME = r"^│ (\S.*?):(\d+) in ?(\S*)\s*│?$"
_BOX_CODE = r"^│ ❱ +\d+ [│ ]*(.*?)\s*│?$"
_CHAIN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# torch._utils.ExceptionWrapper: what failed in a worker or thread is raised again in the rank
_WRAPPED = r"\ACaught ([\w.]+) in (.+?)\.\s*$"
_ORIGINAL = "Original Traceback (most recent call last):"
# multiprocessing.pool and concurrent.futures.process: the worker's own traceback, quoted
_REMOTE = r'RemoteTraceback: *\n"""\n((?:.*\n)*?)"""'
_NAME = r"([A-Za-z_][\w.]*)(?:: ?|$)"
CAUSES = 3


class RaisedException(RankEvent):
    """An exception, as a rank recorded it or as its traceback in a log shows it.

    where: worker or thread of the rank that raised it
    explicit: whether another was raised `from` it
    rest: what stands below the first line of its message in a log: shown, but no evidence, because
        something else may have printed it
    """

    where: str = ""
    explicit: bool = False
    rest: str = ""

    @property
    def short_type(self) -> str:
        """Name of its class, without the module."""
        return self.type.rpartition(".")[2]


def read(path: str, size: int = TAIL) -> str:
    """Return the last `size` bytes of a file as text, without NULs; "" where there is none."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            data = file.read(size)
    except (OSError, ValueError):
        return ""
    if end > size:
        data = data.partition(b"\n")[2] or data  # the first line is a half one
    return data.replace(b"\x00", b"").decode("utf-8", "replace")


def last_lines(text: str, count: int = SHOWN) -> list[str]:
    """Return the last lines as a terminal would show them, blank ones at the end left out."""
    lines = match.plain(text[-(TAIL // 4) :])
    while lines and not lines[-1].strip():
        lines.pop()
    return [line[:WIDTH].rstrip() for line in lines[-count:]]


def exception(path: str, rank: int | None = None) -> RaisedException | None:
    """Return the last exception in a log, or None; chained ones are one.

    `rank`: that rank's, if prefixes show whose they are. The search goes back further than the tail
    where that has none.
    """
    last = last_exception(read(path), rank)
    if last is not None:
        return last
    text = read(path, SEARCH)
    at = text.rfind(_BEGIN)
    return last_exception(text[max(0, at - TAIL // 2) : at + TAIL // 2], rank) if at >= 0 else None


def last_exception(text: str, rank: int | None = None) -> RaisedException | None:
    """Return the type, message and traceback of the last exception in a text, or None."""
    lines = _of_one_writer(text, rank)
    starts = [index for index, line in enumerate(lines) if line.strip() == _BEGIN]
    ends = list(tracebacks.raised(lines))
    for start in reversed(starts):
        end = next((index for index in ends if index > start), None)
        if end is None:
            continue
        kind, _, message = lines[end].strip().partition(": ")
        rest = lines[end + 1 : end + tracebacks.message_lines(lines[end:])]
        last = _original_end(lines, end, ends)
        first = _first_open(lines, start, starts)
        block = lines[_chained(lines, first, starts) : first]
        text = "\n".join(
            block + _without_begins(lines[first : end + 1]) + lines[end + 1 : last + 1]
        )
        if len(text) > TRACEBACK:
            half = TRACEBACK // 2 - 10
            text = text[:half] + f"\n{tracebacks.CUT}\n" + text[-half:]
        return RaisedException(
            type=kind, message=tracebacks.shorten(message), traceback=text, rest="\n".join(rest)
        )
    return None


def _of_one_writer(text: str, rank: int | None) -> list[str]:
    """Return the cleaned lines of the rank whose exception is the last one, or of `rank`.

    Without prefixes all lines are one writer's.
    """
    pairs = list(map(match.split_prefix, match.plain(text)))
    lines = [line for line, _ in pairs]
    writers = [pairs[index][1] for index in tracebacks.raised(lines)]
    writer = str(rank) if str(rank) in writers else next(reversed(writers), "")
    return [line for line, other in pairs if other == writer] if writer else lines


def _first_open(lines: list[str], start: int, starts: list[int]) -> int:
    """Return where the first traceback starts that had no end when another rank's began."""
    raised = match.compiled(match.EXCEPTION)
    for above in reversed([index for index in starts if start - tracebacks.FRAMES < index < start]):
        if any(raised.match(line) for line in lines[above:start]):
            break
        start = above
    return start


def _without_begins(lines: list[str]) -> list[str]:
    """Return a traceback without the outermost frames of others that were written into it."""
    own: list[str] = []
    begins, is_source = 0, False
    for line in lines:
        if line.strip() == _BEGIN:
            begins += 1
        if (begins > 1 and line.strip() == _BEGIN) or (is_source and line.startswith("    ")):
            continue
        is_source = begins > 1 and _is_outermost(line) and any(map(_is_outermost, own))
        if not is_source:
            own.append(line)
    return own


def _is_outermost(line: str) -> bool:
    return line.endswith(", in <module>") and tracebacks.is_frame(line)


def _chained(lines: list[str], start: int, starts: list[int]) -> int:
    """Return where the first traceback of a chain starts."""
    while any(line.strip() in _CHAIN for line in lines[max(0, start - 3) : start]):
        above = [index for index in starts if index < start]
        if not above:
            break
        start = above[-1]
    return start


def _original_end(lines: list[str], end: int, ends: list[int]) -> int:
    """Return where the traceback ends that torch has put into a message, else `end` itself."""
    if lines[end + 1 : end + 2] != [_ORIGINAL]:
        return end
    for last in (index for index in ends if index > end):
        if not any(line.strip() in _CHAIN for line in lines[last + 1 : last + 4]):
            return last
    return end


def unwrapped(error: RaisedException) -> RaisedException:
    """Return an exception that came from a worker as it was there; any other as it is."""
    wrapped = match.compiled(_WRAPPED).search(error.message)
    at = error.traceback.rfind(_ORIGINAL)
    if wrapped and at >= 0:
        return _from_worker(error, error.traceback[at:], *wrapped.groups())
    remote = match.compiled(_REMOTE).search(error.traceback)
    worker_frames = frames(remote.group(1)) if remote else []
    if worker_frames:
        error = error.copy()
        error.frames, error.where = worker_frames, "worker process"
    return error


def _from_worker(error: RaisedException, text: str, name: str, where: str) -> RaisedException:
    lines = text.split("\n")
    for index in range(len(lines) - 1, 0, -1):
        original = _exception_at(lines, index)
        if original is None or original.short_type != name.rpartition(".")[2]:
            continue
        above = "\n".join(lines[:index])
        start = max(above.rfind(sign) for sign in (_BEGIN, _ORIGINAL))
        original.frames = frames(above[start:])
        original.where = where.replace("worker process", "worker")
        error = error.copy()
        error.update(original)
        break
    return error


def _exception_at(lines: list[str], index: int) -> RaisedException | None:
    """Return the exception whose type and message start at a line, or None."""
    hit = match.compiled(_NAME).match(lines[index])
    if hit is None:
        return None
    message = "\n".join([lines[index][hit.end() :], *lines[index + 1 :]]).strip()
    return RaisedException(type=hit.group(1), message=message)


def causes(error: RaisedException) -> list[RaisedException]:
    """Return the exceptions behind one, the nearest first; the others were just being handled."""
    text = error.traceback
    if error.where:
        text = text[max(0, text.rfind(_ORIGINAL)) :]
    lines = text.split("\n")
    chain, start = [], 0
    for index, line in enumerate(lines):
        if line.strip() not in _CHAIN:
            continue
        cause = _cause(lines[start:index])
        if cause is not None:
            cause.explicit = line.strip() == _CHAIN[1]
            chain.append(cause)
        start = index + 1
    return chain[::-1][:CAUSES]


def _cause(lines: list[str]) -> RaisedException | None:
    """Return the exception at the end of one traceback of a chain."""
    if any("RemoteTraceback:" in line for line in lines):
        return None  # the same exception, as the worker saw it
    last = max([index for index, line in enumerate(lines) if tracebacks.is_frame(line)], default=-1)
    for index in range(last + 1, len(lines)):
        if (
            lines[index]
            and not lines[index][0].isspace()
            and lines[index] not in (_BEGIN, _ORIGINAL)
        ):
            cause = _exception_at(lines, index)  # None: the line was cut out of a long text
            if cause is not None:
                cause.frames = frames("\n".join(lines[:index]))
            return cause
    return None


def frames(text: str) -> list[StackFrame]:
    """Return the frames of a traceback's or faulthandler's text, in its order."""
    stack: list[StackFrame] = []
    lines = text.split("\n")
    if "│ ❱" in text:
        return _box_frames(lines)
    for line, below in zip(lines, [*lines[1:], ""]):  # noqa: B905 - Python 3.8
        hit = match.compiled(_FRAME).match(line)
        if hit is not None:
            file, number, function = hit.groups()
            code = below.strip() if below.startswith("    ") else ""
            stack.append(StackFrame(file=file, line=int(number[:9]), function=function, code=code))
    return stack


def _box_frames(lines: list[str]) -> list[StackFrame]:
    """Return the frames of a traceback that rich has drawn."""
    stack: list[StackFrame] = []
    for line in lines:
        hit = match.compiled(_BOX_FRAME).match(line)
        code = match.compiled(_BOX_CODE).match(line)
        if hit is not None:
            file, number, function = hit.groups()
            stack.append(StackFrame(file=file, line=int(number[:9]), function=function, code=""))
        elif code is not None and stack:
            stack[-1].code = code.group(1)
    return stack


def frames_of(error: RaisedException) -> list[StackFrame]:
    """Return the frames of a recorded exception, or those that its traceback's text shows."""
    return list(error.frames) or frames(error.traceback)


def user_frame(stack: Sequence[StackFrame], roots: list[str]) -> StackFrame | None:
    """Return the innermost (last) frame that lies in the user's own folders, else the innermost."""
    own = [frame for frame in stack if is_own(frame.file, roots)]
    return next(reversed(own or stack), None)


def is_own(name: str, roots: list[str]) -> bool:
    """Whether a file lies in the user's own folders."""
    if "site-packages" in name or "dist-packages" in name:
        return False
    if not os.path.isabs(name):
        return name.endswith(".py")  # what Cython and the interpreter name is not the user's
    return any(name.startswith(os.path.join(root, "")) for root in roots)


def source_line(name: str, number: int) -> str:
    """Return one line of a source file, or "" where it cannot be read."""
    try:
        with open(name, "rb") as file:
            lines = file.read(1 << 20).split(b"\n")
        return lines[number - 1].decode("utf-8", "replace").strip() if number >= 1 else ""
    except (OSError, IndexError, ValueError):
        return ""
