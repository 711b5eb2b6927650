"""Reads the ends of logs: at most a tail of each, as a person would see it. Never raises.

A log may be half, gone, gigabytes long, full of control codes, or have a hole punched into it.
"""

from __future__ import annotations

import os

from safelaunch.runtime.signatures import match, tracebacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


TAIL = 256 << 10  # bytes: some thousand lines, read in a millisecond
SEARCH = 16 << 20  # bytes in which a traceback is looked for that the tail does not hold
CLASSIFIED = 64 << 10  # bytes that are searched for signs: a tenth of a second
SHOWN = 20  # lines
WIDTH = 500  # characters of a shown line
_BEGIN = "Traceback (most recent call last):"
_FRAME = r'^\s*File "(.+)", line (\d+)(?:,)? in (.+?)\s*$'
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


def exception(path: str) -> dict[str, Any] | None:
    """Return {type, message, traceback} of the last traceback in a log, or None.

    Chained exceptions are one. The search goes back further than the tail where that has none.
    """
    found = last_exception(read(path))
    if found is not None:
        return found
    text = read(path, SEARCH)
    at = text.rfind(_BEGIN)
    return last_exception(text[max(0, at - TAIL // 2) : at + TAIL // 2]) if at >= 0 else None


def last_exception(text: str) -> dict[str, Any] | None:
    """Return {type, message, traceback} of the last traceback in a text, or None."""
    lines = match.clean(text)
    begins = [index for index, line in enumerate(lines) if line.strip() == _BEGIN]
    ends = list(tracebacks.raised(lines))
    for begin in reversed(begins):
        end = next((index for index in ends if index > begin), None)
        if end is None:
            continue
        kind, _, message = lines[end].strip().partition(": ")
        last = _original_end(lines, end, ends)
        text = "\n".join(lines[_chained(lines, begin, begins) : last + 1])
        return {"type": kind, "message": message[:2000], "traceback": shortened(text, 6000)}
    return None


def _chained(lines: list[str], begin: int, begins: list[int]) -> int:
    """Return where the first traceback of a chain begins."""
    while any(line.strip() in _CHAIN for line in lines[max(0, begin - 3) : begin]):
        above = [index for index in begins if index < begin]
        if not above:
            break
        begin = above[-1]
    return begin


def _original_end(lines: list[str], end: int, ends: list[int]) -> int:
    """Return where the traceback ends that torch has put into a message, else `end` itself."""
    if lines[end + 1 : end + 2] != [_ORIGINAL]:
        return end
    for last in (index for index in ends if index > end):
        if not any(line.strip() in _CHAIN for line in lines[last + 1 : last + 4]):
            return last
    return end


def unwrapped(error: dict[str, Any]) -> dict[str, Any]:
    """Return an exception that came from a worker as it was there: type, message, frames, `where`.

    Any other is returned as it is.
    """
    text = str(error.get("traceback") or "")
    wrapped = match.compiled(_WRAPPED).search(str(error.get("message") or ""))
    at = text.rfind(_ORIGINAL)
    if wrapped and at >= 0:
        return _from_worker(error, text[at:], wrapped.group(1), wrapped.group(2))
    remote = match.compiled(_REMOTE).search(text)
    found = frames(remote.group(1)) if remote else []
    return dict(error, frames=found, where="worker process") if found else error


def _from_worker(error: dict[str, Any], text: str, name: str, where: str) -> dict[str, Any]:
    lines = text.split("\n")
    for index in range(len(lines) - 1, 0, -1):
        hit = match.compiled(_NAME).match(lines[index])
        if hit is None or hit.group(1).rpartition(".")[2] != name.rpartition(".")[2]:
            continue
        message = "\n".join([lines[index][hit.end() :], *lines[index + 1 :]]).strip()
        own = "\n".join(lines[:index])
        below = max(own.rfind(sign) for sign in (_BEGIN, _ORIGINAL))
        said = where.replace("worker process", "worker")
        return dict(
            error, type=hit.group(1), message=message, frames=frames(own[below:]), where=said
        )
    return error


def causes(error: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the exceptions behind one, the nearest first: {type, message, frames, explicit}.

    `explicit` ones were named with `raise ... from`; the others were just being handled.
    """
    text = str(error.get("traceback") or "")
    if error.get("where"):
        text = text[max(0, text.rfind(_ORIGINAL)) :]
    lines = text.split("\n")
    found, begin = [], 0
    for index, line in enumerate(lines):
        if line.strip() not in _CHAIN:
            continue
        one = _cause(lines[begin:index])
        if one is not None:
            found.append(dict(one, explicit=line.strip() == _CHAIN[1]))
        begin = index + 1
    return found[::-1][:CAUSES]


def _cause(lines: list[str]) -> dict[str, Any] | None:
    """Return the exception at the end of one traceback of a chain."""
    if any("RemoteTraceback:" in line for line in lines):
        return None  # the same exception, as the worker saw it
    last = max([index for index, line in enumerate(lines) if tracebacks.is_frame(line)], default=-1)
    for index in range(last + 1, len(lines)):
        if not lines[index] or lines[index][0].isspace() or lines[index] in (_BEGIN, _ORIGINAL):
            continue
        hit = match.compiled(_NAME).match(lines[index])
        if hit is None:
            return None  # its own line was cut out of a long text
        message = "\n".join([lines[index][hit.end() :], *lines[index + 1 :]]).strip()
        return {
            "type": hit.group(1),
            "message": message,
            "frames": frames("\n".join(lines[:index])),
        }
    return None


def shortened(text: str, limit: int) -> str:
    """Return a text cut in its middle."""
    if len(text) <= limit:
        return text
    half = (limit - 20) // 2
    return text[:half] + "\n  [...]\n" + text[-half:]


def frames(text: str) -> list[dict[str, Any]]:
    """Return the frames of a traceback's or faulthandler's text, in its order."""
    found = []
    lines = text.split("\n")
    for index, line in enumerate(lines):
        hit = match.compiled(_FRAME).match(line)
        if hit is None:
            continue
        below = lines[index + 1] if index + 1 < len(lines) else ""
        code = below.strip() if below.startswith("    ") else ""
        found.append(
            {
                "file": hit.group(1),
                "line": int(hit.group(2)[:9]),
                "function": hit.group(3),
                "code": code,
            }
        )
    return found


def frames_of(error: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the frames of a recorded exception, or those that its traceback's text shows."""
    found = error.get("frames")
    if isinstance(found, list) and all(isinstance(frame, dict) for frame in found):
        return found
    return frames(str(error.get("traceback") or ""))


def user_frame(found: list[dict[str, Any]], roots: list[str]) -> dict[str, Any] | None:
    """Return the innermost (last) frame that lies in the user's own folders, else the innermost."""
    own = [frame for frame in found if is_own(str(frame.get("file", "")), roots)]
    best = (own or found)[-1:]
    return best[0] if best else None


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
