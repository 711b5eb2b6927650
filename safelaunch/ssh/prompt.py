"""Asks the person at the terminal, wherever stdin and stdout lead: passwords, host keys."""

from __future__ import annotations

import contextlib
import getpass
import os
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.ssh.login import Ask


def asker() -> Ask | None:
    """Return what asks at this process's terminal; None where there is none."""
    try:
        with _terminal():
            return _ask
    except OSError:
        return None


_turn = threading.Lock()  # several hosts are connected to beside each other


def _ask(prompt: str, *, secret: bool) -> str:
    with _turn:
        return _ask_now(prompt, secret=secret)


def _ask_now(prompt: str, *, secret: bool) -> str:
    if secret:
        # only its last line is a prompt for getpass, which repeats it on some systems
        above, _, last = prompt.rpartition("\n")
        with _terminal() as (_, out):
            out.write(above + "\n" if above else "")
        return getpass.getpass(last)
    with _terminal() as (source, out):
        out.write(prompt)
        out.flush()
        line = source.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[IO[str], IO[str]]]:
    """Open the terminal for reading and writing. Raises OSError."""
    names = ("CONIN$", "CONOUT$") if os.name == "nt" else ("/dev/tty", "/dev/tty")
    with open(names[0], encoding="utf-8") as source, open(names[1], "w", encoding="utf-8") as out:
        yield source, out
