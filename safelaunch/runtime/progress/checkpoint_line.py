"""Looks in the merged log for the line by which a job says that it has come further.

The job's pattern is meant for what the program printed: it is tried on whole lines, as they stand
in the merged log and without what names their rank in front. It never raises.
"""

from __future__ import annotations

from safelaunch.runtime.progress import flood_filter

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

LONGEST = flood_filter.LONGEST  # of a longer line only the beginning is looked at
ENDS = (b"\n", b"\r")
SPECIAL = frozenset(".^$*+?{}[]\\|()")  # what is not itself in a regular expression


class Sought(object):
    """One pattern, until it is found in the log of an attempt; `pattern` None is never found."""

    def __init__(self, pattern: str | None) -> None:
        self.pattern = _compiled(pattern)
        self.text = _plain(pattern or "")
        self.is_found = False
        self.rest = b""  # the beginning of a line that has no end yet

    def begin(self) -> None:
        """Turn to the log of another attempt."""
        self.is_found, self.rest = False, b""

    def feed(self, data: bytes) -> None:
        """Look through what has come; a line without an end waits for it."""
        if self.pattern is None or self.is_found:
            return
        data, self.rest = self.rest + data, b""
        if self._is_hopeless(data):
            data = data[max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 :]
        lines = data.splitlines(keepends=True)
        if lines and not lines[-1].endswith(ENDS):
            self.rest = lines.pop()[:LONGEST]
        self.is_found = any(self._fits(line) for line in lines)

    def close(self) -> None:
        """Look at a last line that has got no end."""
        rest, self.rest = self.rest, b""
        if rest and self.pattern is not None and not self.is_found:
            self.is_found = self._fits(rest)

    def _is_hopeless(self, data: bytes) -> bool:
        """Whether plain text is sought that is not here: in a flood not each line is looked at."""
        escaped = b"\x1b" in data or b"\x08" in data  # these may stand within the text
        return bool(self.text) and self.text not in data and not escaped

    def _fits(self, line: bytes) -> bool:
        assert self.pattern is not None  # noqa: S101 - asked before
        line = line[:LONGEST].rstrip(b"\r\n")
        if self.pattern.search(line) is not None:
            return True
        bare = _bare(line)
        return bare != line and self.pattern.search(bare) is not None


def _bare(line: bytes) -> bytes:
    """Return a line without its rank, or the name of the job's own log, in front."""
    if b"\x1b" not in line and b"\x08" not in line and line[:1] not in (b"[", b"("):
        return line
    from safelaunch.runtime.progress import formats  # noqa: PLC0415 - takes time to compile

    _, found = formats.origin(line)
    if found == line and line[:1] == b"[":
        return line.partition(b"] ")[2] or line
    return bytes(found)


def _plain(pattern: str) -> bytes:
    """Return the text that each match holds; nothing where the pattern is more than a text."""
    text = pattern[pattern[:1] == "^" : len(pattern) - (pattern[-1:] == "$")]
    return b"" if SPECIAL & set(text) else text.encode()


def _compiled(pattern: str | None) -> re.Pattern[bytes] | None:
    """Return a regular expression for log bytes; None where the job has none."""
    if not pattern:
        return None
    import re  # noqa: PLC0415 - few jobs need it

    try:
        return re.compile(pattern.encode())
    except (re.error, OverflowError, RecursionError):  # the client's Python is newer and knows more
        return None
