"""Searches the merged log for the line by which a job reports a checkpoint or other progress.

The job's pattern is meant for what the program printed: it is matched against whole lines, both as
they are in the merged log and without the prefix that names their rank. It never raises.
"""

# ruff: noqa: PLC0415 - formats is imported late: few jobs need it, and its patterns compile slowly

from __future__ import annotations

import re

from safelaunch.runtime.progress import flood_filter

MAX_LINE = flood_filter.MAX_LINE  # bytes of a line that are matched
LINE_ENDS = (b"\n", b"\r")
SPECIAL = frozenset(".^$*+?{}[]\\|()")  # characters with a meaning in a regular expression


class ProgressPattern:
    """One pattern and whether the log of an attempt has matched it; None never matches."""

    def __init__(self, pattern: str | None) -> None:
        self.pattern = _compile(pattern)
        self.text = _literal_text(pattern or "")
        self.is_found = False
        self.partial = b""  # a line that has no end yet

    def reset(self) -> None:
        """Start with the log of another attempt."""
        self.is_found, self.partial = False, b""

    def feed(self, data: bytes) -> None:
        """Search new bytes; a line without an end is held back."""
        if self.pattern is None or self.is_found:
            return
        data, self.partial = self.partial + data, b""
        if self._cannot_match(data):
            data = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :]
        lines = data.splitlines(keepends=True)
        if lines and not lines[-1].endswith(LINE_ENDS):
            self.partial = lines.pop()[:MAX_LINE]
        self.is_found = any(self._matches(line) for line in lines)

    def close(self) -> None:
        """Search a last line without an end."""
        line, self.partial = self.partial, b""
        if line and self.pattern is not None and not self.is_found:
            self.is_found = self._matches(line)

    def _cannot_match(self, data: bytes) -> bool:
        """Return whether no line can match: a fast test for a plain-text pattern in a flood."""
        escaped = b"\x1b" in data or b"\x08" in data  # escapes may split the text
        return bool(self.text) and self.text not in data and not escaped

    def _matches(self, line: bytes) -> bool:
        assert self.pattern is not None  # noqa: S101 - `feed` returns without a pattern
        line = line[:MAX_LINE].rstrip(b"\r\n")
        if self.pattern.search(line) is not None:
            return True
        content = _without_prefix(line)
        return content != line and self.pattern.search(content) is not None


def _without_prefix(line: bytes) -> bytes:
    """Return a line without the prefix that names its rank or its log file."""
    if b"\x1b" not in line and b"\x08" not in line and line[:1] not in (b"[", b"("):
        return line
    from safelaunch.runtime.progress import formats

    _, content = formats.origin(line)
    if content == line and line[:1] == b"[":
        return line.partition(b"] ")[2] or line
    return bytes(content)


def _literal_text(pattern: str) -> bytes:
    """Return the text that each match contains; b"" where the pattern is no plain text."""
    text = pattern[pattern[:1] == "^" : len(pattern) - (pattern[-1:] == "$")]
    return b"" if SPECIAL & set(text) else text.encode()


def _compile(pattern: str | None) -> re.Pattern[bytes] | None:
    """Return a regular expression for log bytes; None where the job has none."""
    try:
        return re.compile(pattern.encode()) if pattern else None
    except (re.error, OverflowError, RecursionError):
        return None  # the client's Python is newer and allows more
