"""A shell's text of one launch with `cd`, `export`, `set` and `source` before it, as data.

Literal words only: a text with anything else that a shell would do is not read.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import NamedTuple

# what bash does more with than take it for itself, outside of single quotes
_SPECIAL = re.compile(r"[$`*?\[\]{}~!#|<>()\\]|(?<!&)&(?!&)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\!]*\"")
_SEPARATOR = re.compile(r"\s*(?:&&|;|\n)\s*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# `set -x` and the like: what they print is lost, and what they end has ended anyway
_SET = re.compile(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace")
# what prepares the shell or the folder, whatever is exported
_PREPARING = ("mkdir", "ulimit", "umask", "module", "ml")
_ACTIVATE = re.compile(r"(.*[^/])/+bin/activate", re.DOTALL)


class Setup(NamedTuple):
    """The command of a text, and what comes before it."""

    words: list[str]
    env: dict[str, str | None]
    workdir: str
    venv: str | None
    setup: tuple[str, ...]  # lines of shell


def read_setup(text: str) -> Setup | None:
    """Return the last command and what comes before it; None where that cannot be said in a job."""
    commands = _commands(text)
    if not commands:
        return None
    env: dict[str, str | None] = {}
    workdir, venv = "", None
    setup: list[str] = []
    for words, separator in commands[:-1]:
        name, operands = words[0], words[1:]
        if name in _PREPARING:  # a job runs its setup in its workdir, before its exports
            setup.append(shlex.join(words) + (" || exit" if "&&" in separator else ""))
        elif name == "cd" and len(operands) == 1 and not (setup or operands[0].startswith("-")):
            workdir = join_folder(workdir, operands[0])
        elif name in ("source", ".") and len(operands) == 1 and venv is None:
            activate = _ACTIVATE.fullmatch(operands[0])
            if activate is None:
                return None
            venv = join_folder(workdir, activate[1])
        elif not (_change_env(name, operands, env) or _is_set(name, operands)):
            return None
    return Setup(commands[-1][0], env, workdir, venv, tuple(setup))


def _change_env(name: str, operands: list[str], env: dict[str, str | None]) -> bool:
    """Do to `env` what `export A=1` and `unset A` do; return whether the command is one of them."""
    if name == "unset" and operands and not operands[0].startswith("-"):
        env |= dict.fromkeys(operands)
        return True
    pairs = [_ASSIGNMENT.fullmatch(word) for word in operands]
    if name != "export" or not pairs or None in pairs:
        return False
    env |= {pair[1]: pair[2] for pair in pairs if pair is not None}
    return True


def _is_set(name: str, operands: list[str]) -> bool:
    return name == "set" and bool(operands) and all(map(_SET.fullmatch, operands))


def join_folder(folder: str, path: str) -> str:
    """Return a path that is relative to a folder; both may be empty."""
    return posixpath.join(folder, path) if path else folder


def _commands(text: str) -> list[tuple[list[str], str]]:
    """Return the words of each command and what follows it; nothing where one is not literal."""
    quoted: list[str] = []

    def hide(match: re.Match[str]) -> str:
        quoted.append(match[0])
        return f"\0{len(quoted) - 1}\0"

    if "\0" in text:
        return []
    hidden = _QUOTED.sub(hide, text.strip().rstrip(";"))
    if _SPECIAL.search(hidden) or "'" in hidden or '"' in hidden:
        return []
    parts = [
        re.sub(r"\0(\d+)\0", lambda match: quoted[int(match[1])], part)
        for part in _SEPARATOR.split(hidden)
    ]
    words = [shlex.split(part) for part in parts]
    separators = [*_SEPARATOR.findall(hidden), ""]
    return list(zip(words, separators, strict=True)) if all(words) else []
