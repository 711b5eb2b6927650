"""The errors of safelaunch. Each states what, where and what to do next.

SafelaunchError
├── ConfigError      a file, a flag or a name is wrong                      exit 2
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


class SafelaunchError(Exception):
    """An expected failure: `message`, the place it concerns (`where`), a `hint` on what to do."""

    exit_code = 1
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


class RunNotFound(ConfigError):
    """RUN names no recorded run, or more than one."""


class Refused(SafelaunchError):
    """A check failed: the request is possible, and would not do what is intended."""

    exit_code = 3


class StartError(SafelaunchError):
    """The machine cannot start the job. Nothing of it is left behind."""

    exit_code = 2


class HostError(SafelaunchError):
    """A host cannot be reached, refuses the login, or cannot be used. `where` is its name."""

    exit_code = 4


class RunError(SafelaunchError):
    """A run exists but cannot be handled as requested."""


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
