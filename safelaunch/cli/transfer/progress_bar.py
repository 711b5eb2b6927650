"""The progress line of a transfer, on a terminal only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from safelaunch.cli.output import escape, say
from safelaunch.runtime.units import transfer_size

if TYPE_CHECKING:
    from typing_extensions import Self

    from safelaunch.sync.transfer_progress import TransferProgress


class Bar:
    """Shows progress on stderr; leaves no line behind."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def show(self, at: TransferProgress) -> None:
        """Show `sending 1.2 GB of 4.0 GB, 110 MB/s, 25 s left`."""
        text = f"{at.activity} {transfer_size(at.done)} of {transfer_size(at.total)}"
        if at.rate:
            text += f", {transfer_size(int(at.rate))}/s"
        if at.eta is not None:
            text += f", {at.eta:.0f} s left"
        self._write(text)

    def say(self, message: str) -> None:
        """Print a message in the place of the progress."""
        self._write("")
        say(message)

    def _write(self, text: str) -> None:
        if self._is_shown and (text or self._width):
            text = escape(text)  # these bytes do not pass the gate of all text
            line = f"\r{text:<{self._width}}" + ("" if text else "\r")
            click.echo(line.encode(errors="backslashreplace"), nl=False, err=True)
            self._width = len(text)
