"""Prompt the user at the terminal for passwords and host keys, even if stdin is redirected."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import threading
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PASSPHRASE = re.compile(r"^passphrase of .*: $", re.DOTALL)
_PASSWORD = re.compile(r"'s password: $")
# what a login that was typed is called, as a credential
PASSWORD, ANSWERS = "a password", "answers at the prompt"


def is_typed(credential: str) -> bool:
    """Whether a part of a credential is typed at each login."""
    return PASSWORD in credential or ANSWERS in credential


class Prompter(Protocol):
    """Prompts the user at the terminal. Raises EOFError at the end of input."""

    def __call__(self, prompt: str, *, secret: bool) -> str:
        """Show the prompt and return the line; a secret is not echoed."""
        ...


class SharedAnswers:
    """Prompts the user once for what several logins of a command need; thread-safe.

    A passphrase is for all hosts, a password for one, and never sent to another. One-time codes and
    PINs are asked each time: a second use is refused, or counts as a failed try.
    """

    def __init__(
        self,
        ask: Prompter,
        around: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        """Prompt by `ask`, one thread at a time, inside of `around`."""
        self._ask = ask
        self._around = around
        self._answers: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def prompter(self, host: str) -> Prompter:
        """Return the prompter of one login: a prompt that comes again there was answered wrong."""
        tried: dict[tuple[str, str], str] = {}

        def answer(prompt: str, *, secret: bool) -> str:
            key = ("" if _PASSPHRASE.search(prompt) else host, prompt)
            with self._around(), self._lock:
                shared = self._answers.get(key)
                if shared is None or shared == tried.get(key):
                    shared = self._ask(prompt, secret=secret)
                if secret and (not key[0] or _PASSWORD.search(prompt)):
                    self._answers[key] = tried[key] = shared
                return shared

        return answer


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
