"""How one machine is reached. One narrow Protocol; local is the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Result(NamedTuple):
    """How a command ended: its exit code, stdout and stderr as text."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line that it said, for messages."""
        lines = (self.err or self.out).strip().splitlines()
        return lines[-1] if lines else ""


class Transport(Protocol):
    """Commands and files of one machine."""

    def run(self, argv: Sequence[str], *, timeout: float | None = None) -> Result:
        """Run a command to its end. Raises StartError if it cannot be started."""

    def detach(self, argv: Sequence[str], *, cwd: str) -> int:
        """Start a command in its own session; return its pid. Raises StartError."""
