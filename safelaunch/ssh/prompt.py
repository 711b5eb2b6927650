"""Prompt the user at the terminal for passwords and host keys, even if stdin is redirected."""

from __future__ import annotations

import contextlib
import getpass
import os
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.ssh.login import Prompter


def terminal_prompter() -> Prompter | None:
    """Return a function that prompts at this process's terminal; None without a terminal."""
    try:
        with _terminal():
            return _ask
    except OSError:
        return None


_lock = threading.Lock()  # several connections may prompt at the same time


def _ask(prompt: str, *, secret: bool) -> str:
    with _lock:
        # getpass repeats its prompt on some systems, so it gets the last line only
        leading, _, last_line = prompt.rpartition("\n")
        with _terminal() as (source, out):
            out.write((leading + "\n" if leading else "") if secret else prompt)
            out.flush()
            line = "" if secret else source.readline()
        if secret:
            return getpass.getpass(last_line)
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[IO[str], IO[str]]]:
    """Open the terminal for reading and writing. Raises OSError."""
    names = ("CONIN$", "CONOUT$") if os.name == "nt" else ("/dev/tty", "/dev/tty")
    with open(names[0], encoding="utf-8") as source, open(names[1], "w", encoding="utf-8") as out:
        yield source, out
