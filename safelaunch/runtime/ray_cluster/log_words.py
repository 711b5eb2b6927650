"""Reads what Ray has written last, and keeps the ends of its logs. Never raises."""

from __future__ import annotations

import os
import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TAIL = 64 << 10  # bytes of each log
MOST_FILES = 64  # files
WIDTH = 400  # characters of a quoted line
# `[2026-11-28 16:15:16,082 E 13604 13604] (raylet) main.cc:283: text`: Info, Warning, Error,
# Critical, Fatal; and of `ray start`: `2026-11-28 16:15:13,321 ERR scripts.py:1043 -- text`
_SEVERE = r"^\[[-\d: .,]+ [EFC] \d+ \d+\] "
_STAMP = r"^\[[-\d: .,]+ [A-Z] \d+ \d+\] (?:\(\w+\) )?|^[-\d]{10} [\d:,.]+\s+[A-Z]+ \S+ -- "
_FRAME = r"^\s|^\*\*\*|^\[?\s*@ |^Traceback|^[-=\s]*$"
_BANNER = r"^-+ (?:BEGIN|END) |^Remaining processes will be killed"
_SIGNAL = r"[^\"]received SIG[A-Z]+\b"  # an end that Ray itself takes for wanted
_DUMP = r"^\[state-dump\]"
_EXITED = r"(\w+) \[exit code=(-?\d+)\]"


def read(path: str) -> list[str]:
    """Return the lines at the end of a log, as text without stamps and colours."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [
        printable(line.expandtabs(1)) for line in re.sub(ESCAPE_SEQUENCE, "", text).splitlines()
    ]


def log_of(folder: str, part: str, pid: int) -> str:
    """Return the name of the log of a process of Ray; two nodes on one machine have one folder."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(f"{part}."))
    except OSError:
        names = []
    own = rf"(?m)^\[[-\d: .,]+ [A-Z] {pid} \d+\] "
    for name in names:
        if name.endswith(".out") and re.search(own, "\n".join(read(os.path.join(folder, name)))):
            return name
    return f"{part}.out"


def last_words(lines: Sequence[str]) -> str:
    """Return the last line that says something: no frame, rule or banner; "" without any."""
    for line in reversed(lines):
        words = "" if re.search(_FRAME, line) else re.sub(_STAMP, "", line).strip()
        if words and not re.search(_BANNER, words):
            return words[:WIDTH]
    return ""


def last_error(lines: Sequence[str]) -> str:
    """Return the last line of a log that Ray itself calls an error, or a signal; "" without any."""
    return last_words([line for line in lines if re.search(f"{_SEVERE}|{_SIGNAL}", line)])


def shown(lines: Sequence[str], count: int = 12) -> list[str]:
    """Return the lines at the end of a log, without those by which Ray describes its state."""
    rest = [line[:WIDTH] for line in lines if line.strip() and not re.search(_DUMP, line)]
    return rest[-count:]


def exit_code(lines: Sequence[str], part: str) -> int | None:
    """Return the code with which a process of Ray has ended, as `ray start --block` prints it."""
    for name, code in re.findall(_EXITED, "\n".join(lines)):
        if name == part:
            return int(code)
    return None


def keep_logs(folder: str, log: str, evidence: str) -> None:
    """Copy the ends of Ray's logs, which go with its folder, into the directory of the node."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    # empty ones say nothing, and python-core-*.log are of Ray's own making
    paths = [os.path.join(folder, name) for name in names if name.endswith((".out", ".err"))]
    for path in [log, *paths][:MOST_FILES]:
        try:
            if not os.path.getsize(path):
                continue
            os.makedirs(evidence, 0o700, exist_ok=True)
            with open(path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                data = file.read()
            with open(os.path.join(evidence, os.path.basename(path)), "wb") as file:
                file.write(data)
        except OSError:
            continue
