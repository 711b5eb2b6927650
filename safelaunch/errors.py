"""The errors of safelaunch. Each states what, where and what to do next.

SafelaunchError
├── ConfigError      a file, a flag or a name is wrong                      exit 2
│   ├── UsageError   an option or argument of a command
│   └── RunNotFound  RUN names no run, or several
├── Refused          a check failed: the run would not do what is intended  exit 3
├── HostError        a host cannot be reached, or not be used               exit 4
├── StartError       this machine cannot start the job; nothing was left    exit 2
└── RunError         a run that was started could not be handled            exit 1
"""
# ruff: noqa: N818 - RunNotFound and Refused read as what happened
# ruff: noqa: PLC0415 - difflib is imported only for an error

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


# what `code` of an error says to a program; docs/automation.md has the same table
CODES = {
    "usage": "An option or argument is wrong; see the command's --help.",
    "config": "A job, profile or hosts file, a flag or a name is wrong. Nothing was started.",
    "run-not-found": "RUN names no recorded run, or more than one.",
    "refused": "A check failed: the run would not do what is intended.",
    "start": "The machine cannot start the job. Nothing of it is left behind.",
    "run": "A run exists but cannot be handled as requested.",
    "log-missing": "The run has no such log.",
    "host": "A host cannot be used for another reason than the next ones.",
    "host-unreachable": "No SSH server answered. Trying again later may help.",
    "host-unknown": "The name server does not know the host.",
    "host-key": "The host's key is not the expected one, or was not accepted.",
    "host-login": "The host accepts none of the credentials.",
    "host-commands": "The login worked, but commands cannot be run there.",
    "host-answer": "The host's answer is not that of safelaunch's agent. Nothing of it was used.",
    "host-failed": "What was asked of the host failed there.",
    "connection-lost": "The connection ended before the answer: whether it was done is not sure.",
    "interrupted": "Ctrl-C or a signal ended the command. A run that was started goes on.",
    "internal": "A fault of safelaunch, or a full disk. `details` names a file with its traceback.",
    "error": "Any other expected failure.",
}


class SafelaunchError(Exception):
    """An expected failure: `message`, the place it concerns (`where`), a `hint` on what to do.

    `code` names its kind to programs, one of CODES.
    """

    exit_code = 1
    code = "error"
    details: str | None = None  # a traceback of a bug in safelaunch: for a file, not for the screen

    def __init__(self, message: str, *, where: object = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = None if where is None else str(where)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class ConfigError(SafelaunchError):
    """A job, profile or hosts file, a flag or a name is wrong. Nothing was started or written."""

    exit_code = 2
    code = "config"


class UsageError(ConfigError):
    """An option or argument of a command is wrong."""

    code = "usage"


class RunNotFound(ConfigError):
    """RUN names no recorded run, or more than one."""

    code = "run-not-found"


class Refused(SafelaunchError):
    """A check failed: the request is possible, and would not do what is intended."""

    exit_code = 3
    code = "refused"


class StartError(SafelaunchError):
    """The machine cannot start the job. Nothing of it is left behind."""

    exit_code = 2
    code = "start"


class HostError(SafelaunchError):
    """A host cannot be reached, refuses the login, or cannot be used. `where` is its name."""

    exit_code = 4
    code = "host"


class RunError(SafelaunchError):
    """A run exists but cannot be handled as requested."""

    code = "run"


def did_you_mean(word: str, words: Iterable[str]) -> str | None:
    """Return a hint with the nearest of some words, or None where none is near."""
    near = _nearest(word, tuple(sorted(words)))
    return f"did you mean `{near}`?" if near else None


@lru_cache(maxsize=1024)
def _nearest(word: str, names: tuple[str, ...]) -> str | None:
    import difflib

    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not near:
        folded = {name.lower(): name for name in names}
        near = [folded[m] for m in difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)]
    return near[0] if near else None
