"""Programs in front of a pasted launch: what they mean as keys of a job.

One that is not understood in full is left alone: the line becomes `launcher: command`, which runs
it as it stands.
"""

from __future__ import annotations

import re
import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime.units import SECONDS, job_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# what bash does more with than take it for itself, and what it does with a quoted text
_SPECIAL = re.compile(r"[$`*?\[\]{}~!#&|;<>()\\\n]")
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_SHELLS = ("bash", "sh")
_SHORTEST, _LONGEST = 0.01, 1e9  # seconds that a job file can say without an exponent


class Unwrapped(NamedTuple):
    """The words behind a wrapper, and what it says of the job."""

    words: list[str]
    env: Mapping[str, str | None] = MappingProxyType({})  # None: removed
    max_duration: str | None = None


def unwrap(words: Sequence[str], is_launch: Callable[[list[str]], bool]) -> Unwrapped:
    """Return what stands behind the assignments and wrappers that are understood.

    `is_launch`: whether words start a known launcher or Python. What else a shell runs is left to
    it, since `cd` and other builtins are no programs.
    """
    rest, env, limit = list(words), dict[str, str | None](), None
    while rest:
        assignment = ASSIGNMENT.fullmatch(rest[0])
        if assignment:
            env[assignment[1]] = assignment[2]
            rest.pop(0)
            continue
        name = rest[0].rpartition("/")[2]
        inner = _READERS[name](rest[1:]) if name in _READERS else None
        if inner is None or (inner.max_duration and limit):
            break
        if name in _SHELLS and not is_launch(unwrap(inner.words, is_launch).words):
            break
        rest, env, limit = inner.words, {**env, **inner.env}, inner.max_duration or limit
    return Unwrapped(rest, env, limit)


def _split_options(
    words: Sequence[str], valued: Collection[str] = (), flags: Collection[str] = ()
) -> tuple[list[tuple[str, str]], list[str]] | None:
    """Return the options with their values and the words behind them; None for an unknown one.

    A value follows `=`, a letter (`-k5`), or as the next word.
    """
    options, rest = [], list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not word.startswith("--") and word[:2] in valued and len(word) > len("-k"):
            name, equals, value = word[:2], "=", word[2:]
        if name in valued and (equals or rest):
            options.append((name, value if equals else rest.pop(0)))
        elif word in flags:
            options.append((word, ""))
        else:
            return None
    return options, rest


def _drop(
    valued: Collection[str] = (), flags: Collection[str] = ()
) -> Callable[[Sequence[str]], Unwrapped | None]:
    """Return the reader of a wrapper whose work safelaunch does itself."""

    def read(words: Sequence[str]) -> Unwrapped | None:
        split = _split_options(words, valued, flags)
        return None if split is None else Unwrapped(split[1])

    return read


def _env(words: Sequence[str]) -> Unwrapped | None:
    split = _split_options(words, ("-u", "--unset"))
    return None if split is None else Unwrapped(split[1], {name: None for _, name in split[0]})


def _timeout(words: Sequence[str]) -> Unwrapped | None:
    valued, flags = ("-k", "--kill-after", "-s", "--signal"), ("--foreground", "--preserve-status")
    split = _split_options(words, valued, (*flags, "-v", "--verbose"))
    if split is None or not split[1]:
        return None
    options, (limit, *rest) = split
    signals = [value for name, value in options if name in ("-s", "--signal")]
    match = _DURATION.fullmatch(limit)
    # safelaunch stops with TERM, and with KILL after a grace period
    if match is None or any(name.removeprefix("SIG") != "TERM" for name in signals):
        return None
    seconds = float(match[1]) * SECONDS[match[2] or "s"]
    if seconds and not _SHORTEST <= seconds <= _LONGEST:
        return None
    return Unwrapped(rest, max_duration=job_duration(seconds) if seconds else None)


def _shell(words: Sequence[str]) -> Unwrapped | None:
    """Return the words of `bash -c TEXT` where the text is one command of literal words."""
    split = _split_options(words, ("-o",), ("-c", "-e", "-u", "-ec", "-euc"))
    if split is None or len(split[1]) != 1 or not any("c" in name for name, _ in split[0]):
        return None
    text = split[1][0]
    if _SPECIAL.search(_SINGLE_QUOTED.sub("", text)):
        return None
    try:
        return Unwrapped(shlex.split(text))
    except ValueError:
        return None


_READERS: dict[str, Callable[[Sequence[str]], Unwrapped | None]] = {
    "nohup": _drop(),
    "time": _drop(flags=("-p",)),
    "exec": _drop(),
    "setsid": _drop(flags=("-w", "-f", "--wait", "--fork")),
    "stdbuf": _drop(valued=("-i", "-o", "-e", "--input", "--output", "--error")),
    "env": _env,
    "timeout": _timeout,
    **dict.fromkeys(_SHELLS, _shell),
}
