"""A line on the terminal that tells how far a transfer is; nothing where nobody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

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
        """Show how far it is: `sending 1.2 GB of 4.0 GB, 110 MB/s, 25 s left`."""
        said = f"{at.activity} {transfer_size(at.done)} of {transfer_size(at.total)}"
        if at.rate:
            said += f", {transfer_size(int(at.rate))}/s"
        if at.eta is not None:
            said += f", {at.eta:.0f} s left"
        self._write(said)

    def _write(self, said: str) -> None:
        if self._is_shown and (said or self._width):
            sys.stderr.write(f"\r{said:<{self._width}}" + ("" if said else "\r"))
            sys.stderr.flush()
            self._width = len(said)
