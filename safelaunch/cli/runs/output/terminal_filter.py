"""What of a job's bytes a terminal may get: text, colours and the cursor moves of progress bars.

The rest of what a terminal obeys is left out: it sets titles and the clipboard, makes the terminal
send text as if it were typed, or hides what was printed (xterm, ctlseqs).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable

# SGR, cursor up to column, erase in display and line, cursor shown or hidden
_HARMLESS = re.compile(rb"\x1b\[[0-9;:]*[A-GJKm]|\x1b\[\?25[hl]")
# a string (OSC, DCS, APC, PM, SOS) ends at the end of its line at the latest, so that one that is
# broken off hides no more than that
_STRING = rb"[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=[\x1b\n]))"
_SEQUENCE = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|" + _STRING + rb"|[ -/]*[0-~])"
# a whole sequence, a control character, or a first byte that could begin one of C1 in UTF-8
_CONTROL = re.compile(_SEQUENCE + rb"|[\0-\x07\v\f\x0e-\x1f\x7f]|\xc2(?![\xa0-\xbf])[\x80-\x9f]?")
_PARTIAL = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|[]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)|\xc2)\Z")
_MAX_PARTIAL = 1 << 8  # bytes


class TerminalFilter:
    """Writes to a terminal what is harmless to it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._partial = b""  # a sequence that is not complete yet

    def write(self, data: bytes) -> int:
        """Write the harmless part of the bytes, also of sequences that come in pieces."""
        text = self._partial + data
        partial = _PARTIAL.search(text)
        self._partial = partial[0] if partial else b""
        if partial:  # its escape ends a string before it, and is left out as one without a sequence
            text = text[: partial.start()] + partial[0][:1]
        # a string, or a sequence that is none: nothing of it is needed
        if len(self._partial) > _MAX_PARTIAL:
            end = b"\x1b" if self._partial.endswith(b"\x1b") else b""
            self._partial = self._partial[: len(b"\x1b]")] + end
        self._out.write(_CONTROL.sub(_harmless, text))
        return len(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Write pieces one after the other."""
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        """Show what is written."""
        self._out.flush()


def _harmless(match: re.Match[bytes]) -> bytes:
    return match[0] if _HARMLESS.fullmatch(match[0]) else b""
