"""Counts the round trips of a client behind its logins: how often it waits for what it asked.

    python trips.py FILE WORDS...

runs safelaunch with these words, and writes into FILE how many there were until it first printed
something. What comes by itself, such as more of a log, and what waits for room on the way there are
no round trips.
"""

from __future__ import annotations

import contextlib
import io
import sys
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.ssh import paramiko_patches
from safelaunch.ssh.paramiko_connection import ParamikoChannel, ParamikoConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Trips:
    """How often was waited so far, on all connections together."""

    def __init__(self) -> None:
        self.count = 0
        self._awaits_answer = False
        self._has_command = False

    def ask(self) -> None:
        """Note that something was sent that wants an answer."""
        self._awaits_answer = True

    def wait(self) -> None:
        """Note that an answer is waited for."""
        self.count += self._awaits_answer
        self._awaits_answer = self._has_command = False

    def start_command(self) -> None:
        """Note that a command was sent; sshd takes no stdin before it has answered that."""
        self._awaits_answer = self._has_command = True

    def write(self) -> None:
        """Note that something is written."""
        if self._has_command:
            self.wait()
        self.ask()


@contextlib.contextmanager
def counted() -> Iterator[Trips]:
    """Count until the end of the block."""
    trips = Trips()

    def notes(
        note: Callable[[], None],
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def noting(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def work(*words: Any, **named: Any) -> Any:
                note()
                return function(*words, **named)

            return work

        return noting

    asks, waits = notes(trips.ask), notes(trips.wait)
    paramiko = paramiko_patches.paramiko()
    with contextlib.ExitStack() as undo:

        def change(place: Any, name: str, how: Callable[..., Any]) -> None:
            before = getattr(place, name)
            undo.callback(setattr, place, name, before)
            setattr(place, name, how(before))

        change(paramiko_patches, "open_channel", lambda opens: asks(waits(opens)))
        change(paramiko.Channel, "_wait_for_event", lambda answer: asks(waits(answer)))
        change(ParamikoConnection, "_request_exec", notes(trips.start_command))
        change(ParamikoChannel, "write", notes(trips.write))
        change(ParamikoChannel, "read", waits)
        yield trips


class _Printed(io.FileIO):
    """Stdout, which writes down the count before anything else."""

    def __init__(self, trips: Trips, place: Path) -> None:
        super().__init__(1, "wb", closefd=False)
        self._trips = trips
        self._place = place

    def write(self, data: Any) -> Any:
        if not self._place.exists():
            self._place.write_text(str(self._trips.count))
        return super().write(data)


def main() -> None:
    """Run safelaunch."""
    from safelaunch.cli.main import main as safelaunch  # noqa: PLC0415 - what is counted

    place, sys.argv = Path(sys.argv[1]), ["safelaunch", *sys.argv[2:]]
    with counted() as trips:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Printed(trips, place)))
        safelaunch()


if __name__ == "__main__":
    main()
