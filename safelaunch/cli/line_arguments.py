"""The launch line among the words of a command: behind `--`, or without it where it is clear."""

# ruff: noqa: PLC0415 - subprocess and shlex are imported only for an error, or for a script

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_SHELL_SCRIPT = re.compile(r".*\.(sh|bash|zsh)")
_SHEBANG = re.compile(rb"#!\s*(?:\S*/env\s+(?:-S\s*)?)?(?:\S*/)?(\w+)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_PRINT_ONLY = frozenset({"--dry-run", "--explain", "--script"})


class Words(NamedTuple):
    """The words of a command: its own options, and those from the first argument on."""

    command: str
    own: tuple[str, ...]
    rest: tuple[str, ...]


def read_line(words: Words, options: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the launch line that the arguments are; empty where they are job files.

    `options` are those of the command, and whether a value follows. Raises ConfigError where the
    words have two meanings, and for a Python file: nothing says how many processes it wants.
    """
    first = words.rest[0]
    if re.search(r"\s", first) and not os.path.exists(first):  # a whole line in quotes
        return words.rest if _begins_line(first.split()[0]) else ()
    common, others = _separate(words.rest[1:], options)
    if first.endswith(".py"):
        raise _python_file(words._replace(own=(*words.own, *common), rest=(first, *others)))
    if not _begins_line(first):
        return ()
    line = _with_shell(words.rest) if _SHELL_SCRIPT.fullmatch(first) else words.rest
    if common:
        program = line[: len(line) - len(words.rest) + 1]
        for_safelaunch = _command(words, (*program, *others), *common)
        raise ConfigError(
            f"`{common[0]}` behind `{first}`: it could be for safelaunch or for the program",
            hint=f"for safelaunch: {for_safelaunch}\nfor the program: {_command(words, line)}",
        )
    return line


def _separate(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return the words that are options of the command, with their values, and the others."""
    common: list[str] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        (common if name in options else others).append(word)
        if options.get(name) and not equals and rest:
            common.append(rest.pop(0))
    return common, others


def _begins_line(word: str) -> bool:
    """Whether a word is a program, a variable for one, or a shell script; no job file is."""
    if _PYTHON.fullmatch(os.path.basename(word)) or os.path.basename(word) in _SHELLS:
        return True
    if _SHELL_SCRIPT.fullmatch(word) or _ASSIGNMENT.fullmatch(word):
        return True
    # only words without a dot, as job files have one: find_program loads every launcher
    is_name = re.fullmatch(r"(.*/)?[\w-]+", word) is not None
    return is_name and (_is_wrapper(word) or launchers.find_program([word]) is not None)


def _is_wrapper(word: str) -> bool:
    """Whether a word is a program that is looked through, `uv`; and no file is meant by it."""
    from safelaunch.plan.launch_line import wrappers

    return os.path.basename(word) in wrappers.NAMES and not os.path.isfile(word)


def _with_shell(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a shell script. Raises ConfigError."""
    file = words[0]
    try:
        with open(file, "rb") as script:
            shebang = _SHEBANG.match(script.readline(200))
    except FileNotFoundError:
        raise ConfigError("no such file", where=file) from None
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=file) from error
    if "/" in file and shebang is not None and os.access(file, os.X_OK):
        return tuple(words)
    program = shebang[1].decode() if shebang is not None else ""
    return (program if program in _SHELLS else "bash", *words)


def _python_file(words: Words) -> ConfigError:
    """Return the error for a Python file in place of a job, with the lines that start it."""
    file = words.rest[0]
    if not os.path.isfile(file):
        return ConfigError("no such file", where=file)
    own, program = words.own, ("python", *words.rest)
    has_profile = any(word.partition("=")[0] == "--profile" for word in own)
    is_cpu = has_profile and bool({"cpu", "--profile=cpu"}.intersection(own))
    # a dry-run looks up nothing, and the GPUs of a host are not those of this machine
    is_lookup = words.command in ("run", "check") and not _PRINT_ONLY.intersection(own)
    gpus = 0 if is_cpu else _visible_gpus() if is_lookup else None
    if gpus == 0 and not has_profile and words.command != "init":
        own = (*own, "--profile", "cpu")

    def torchrun(count: str) -> tuple[str, ...]:
        return ("torchrun", "--nproc_per_node", count, *words.rest)

    if gpus is None:
        lines = {"one process": program, "one process per GPU": torchrun("gpu")}
    elif gpus == 0:
        lines = {"one process, without a GPU": program, "two processes": torchrun("2")}
    elif gpus == 1:
        lines = {"on the GPU of this machine": program}
    else:
        first = ("CUDA_VISIBLE_DEVICES=0", *program)
        lines = {f"on all {gpus} GPUs": torchrun(str(gpus)), "on one of them": first}
    words = words._replace(own=own)
    return ConfigError(
        "this is a program, no job file: how many processes of it?",
        where=file,
        hint="\n".join(f"{what}: {_command(words, line)}" for what, line in lines.items()),
    )


def _command(words: Words, line: Sequence[str], *more: str) -> str:
    import shlex

    return shlex.join(["safelaunch", words.command, *words.own, *more, "--", *line])


def _visible_gpus() -> int | None:
    """Return the number of GPUs that a job on this machine sees; None where it is not known."""
    if not sys.platform.startswith("linux"):
        return None
    from safelaunch.runtime.facts import commands, gpus

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    smi = gpus.without_driver()["nvidia_smi"]
    if smi is None and any(gpus.others().values()):
        return None  # of another maker
    listed = "" if smi is None else commands.run([smi, "-L"]).text
    return len(re.findall(r"^GPU \d+:", listed, re.MULTILINE))
