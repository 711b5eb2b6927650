"""Writes the bytes of a log to stdout: unchanged, or each line once, in its last state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from safelaunch.cli.runs.output.terminal_filter import TerminalFilter

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    Output = BinaryIO | TerminalFilter

# bytes of an unfinished line that wait, since a progress bar may overwrite them; tqdm's bars are as
# wide as a terminal, verl's lines have 3 KB
MAX_WAITING = 1 << 20


def stdout_writer(at_once: bool, unfiltered: bool = False) -> Callable[[bytes], None]:
    """Return a function that writes log bytes to stdout; an empty call flushes.

    `at_once`: also unfinished lines, so that progress bars move. Otherwise (a file, CI) each
    line is written once, in its last state. A terminal gets only what is harmless to it, but for
    `unfiltered`.
    """
    is_filtered = sys.stdout.isatty() and not unfiltered
    out: Output = TerminalFilter(sys.stdout.buffer) if is_filtered else sys.stdout.buffer
    lines = LineWriter(out)

    def write_at_once(data: bytes) -> None:
        out.write(data)
        out.flush()

    def write_lines(data: bytes) -> None:
        lines.write(data)
        if not data:
            lines.close()
        out.flush()

    return write_at_once if at_once else write_lines


class LineWriter:
    """Writes each line once, in its last state: in time linear in its length, and little memory."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.shown = b""  # the newest part of the unfinished line that a CR has ended
        self.parts: list[bytes] = []  # what has come after that CR
        self.size = 0  # bytes in `parts`
        self.is_begun = False  # the start of the unfinished line is written: it is no bar
        self.is_overwritten = False  # a CR came after that start

    def write(self, data: bytes) -> None:
        """Write the lines that are complete."""
        if b"\r" not in data and not self.shown and not self.is_overwritten:
            # nothing is overwritten: most logs, and large ones
            end = data.rfind(b"\n") + 1
            if end:
                self.out.writelines(self.parts)
                self.out.write(data[:end])
                self._reset()
            self._wait(data[end:])
            return
        first, *others = data.split(b"\n")
        self._overwrite(first)
        if not others:
            return
        self._end_line()
        *whole, last = others
        self.out.writelines(collapse_carriage_returns(line) + b"\n" for line in whole)
        self._overwrite(last)

    def close(self) -> None:
        """Write an unfinished last line."""
        if self.parts or self.shown or self.is_begun:
            self._end_line()

    def _overwrite(self, data: bytes) -> None:
        """Add a piece of the unfinished line that may have CRs."""
        begin, *others = data.split(b"\r")
        self._wait(begin)
        if not others:
            return
        if self.is_begun and not self.is_overwritten:
            # what is written cannot be taken back: what follows stands on a line of its own
            self.out.writelines(self.parts)
            self.parts, self.is_overwritten = [], True
        *ended, last = [b"".join(self.parts), *others]
        self.shown = next((part for part in reversed(ended) if part.strip()), self.shown)
        self.parts, self.size = [], 0
        self._wait(last)

    def _wait(self, data: bytes) -> None:
        if data:
            self.parts.append(data)
            self.size += len(data)
        if self.size > MAX_WAITING:
            if self.is_overwritten:
                self.out.write(b"\n")
            self.out.writelines(self.parts)
            self._reset()
            self.is_begun = True

    def _end_line(self) -> None:
        current = b"".join(self.parts)
        text = current if current.strip() else self.shown or current
        if self.is_overwritten and text:
            self.out.write(b"\n")
        self.out.write(text + b"\n")
        self._reset()

    def _reset(self) -> None:
        self.shown, self.parts, self.size = b"", [], 0
        self.is_begun = self.is_overwritten = False


def collapse_carriage_returns(line: bytes) -> bytes:
    """Return what a terminal shows of a line whose parts overwrite each other (CR)."""
    states = line.split(b"\r")
    shown = [state for state in states if state.strip()]
    return shown[-1] if shown else states[-1]
