"""Rules for shell scripts: what bash reads other than it was meant."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.lint import secrets
from safelaunch.lint.finding import BOM, CRLF, ERROR, WARNING, Edit, Finding
from safelaunch.lint.shell import lexer
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.file_text import Source
    from safelaunch.lint.shell.lexer import Command, Script, Word

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)\+?=")
_DECLARING = ("export", "declare", "typeset", "readonly", "local", "env")
_DEVICES = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_SPACED = re.compile(r"""=["']?(?P<list>\d+(?:\s*,\s*\d+)+)(?!\w)["']?""")
_SPACED_END = re.compile(r"=(?P<list>\d+(?:,\d+)*,(?:[ \t]+\d+,?)*[ \t]+\d+)(?!\w)")
_NO_JOB = frozenset(
    {"echo", "printf", "cat", "date", "ls", "head", "tail", "grep", "env", "nvidia-smi", "hostname"}
)
_ALL_FLAG = re.compile(r"set (-\S+ )*-\w*a")
_LEADING = frozenset({"then", "do", "else", "if", "while", "time", "!", "{", "nohup", "exec"})


class Setting(NamedTuple):
    """An environment variable that a script sets, and the word that does."""

    name: str
    word: Word
    is_exported: bool

    @property
    def value(self) -> str | None:
        """Its value without quotes; None where bash expands something in it."""
        return None if self.word.expands else self.word.value.partition("=")[2]


def check(text: Source, script: Script) -> Iterator[Finding]:
    """Yield what is wrong in a script, but for what its variables mean to their readers."""
    yield from check_bytes(text, "the script fails or half works")
    yield from _breaks(text.file, script)
    yield from _tee(text, script)
    for setting in settings(script):
        yield from _devices(text, setting, script)
        if is_secret_name(setting.name) and setting.value and secrets.is_value(setting.value):
            at = setting.word
            yield secrets.found(text.file, at.line, at.column, f"the value of {setting.name}")
    for command in script.commands:
        yield from _passwords(text.file, command)


def check_bytes(text: Source, harm: str) -> Iterator[Finding]:
    """Yield Windows line ends and a byte order mark, where they do harm."""
    if text.has_bom:
        message = f"a byte order mark before the first line: {harm}"
        yield Finding(text.file, 1, 1, BOM, message, "save as UTF-8 without BOM", ERROR)
    if text.crlf_line is not None:
        column = len(text.lines[text.crlf_line - 1]) + 1
        message = f"Windows line ends (CR LF): {harm}"
        fix = "save with LF; `*.sh text eol=lf` in .gitattributes keeps it"
        yield Finding(text.file, text.crlf_line, column, CRLF, message, fix, ERROR)


def settings(script: Script) -> list[Setting]:
    """Return the variables that a script sets for itself or for commands, in order."""
    return [found for command in script.commands for found in _settings(command)]


def exported(script: Script) -> frozenset[str] | None:
    """Return the names that `export NAME` hands on; None where the script exports all (set -a)."""
    names: set[str] = set()
    for command in script.commands:
        values = command_values(command.words)
        if values[:1] == ["set"] and ("allexport" in values or _ALL_FLAG.match(" ".join(values))):
            return None
        if values[:1] == ["export"] or values[:2] == ["declare", "-x"]:
            names |= set(values[1:])
    return frozenset(names)


def launcher(script: Script) -> str | None:
    """Return the launcher that a script calls, by our names, None where it calls none."""
    programs = {call.split()[0]: name for call, name in launchers.programs().items()}
    programs.setdefault("deepspeed", "deepspeed")  # no launcher of ours: lint knows its timeout
    for command in script.commands:
        words = [word.value for word in command.words if not _ASSIGNMENT.match(word.raw)]
        names = [word.rpartition("/")[2] for word in words[:4]]
        for name in names:
            if name in programs:
                return programs[name]
        for word in words:
            module = launchers.find_module(word) if "." in word else None
            if module is not None:
                return module
    return None


def _settings(command: Command) -> Iterator[Setting]:
    words = [word for word in command.words if word.raw not in _LEADING]
    first = words[0].value if words else ""
    if first == "export" or (first in ("declare", "typeset") and "-x" in command_values(words)):
        yield from (_setting(word, True) for word in words[1:] if _ASSIGNMENT.match(word.raw))
        return
    leading: list[Word] = []
    for word in words[1:] if first in _DECLARING else words:
        if not _ASSIGNMENT.match(word.raw):
            break
        leading.append(word)
    runs = len(leading) < len(words) and first not in ("readonly", "local", "declare", "typeset")
    yield from (_setting(word, runs) for word in leading)
    for flag, word in pairwise(words):  # docker run -e NAME=value
        if flag.value in ("-e", "--env") and _ASSIGNMENT.match(word.raw):
            yield _setting(word, True)


def command_values(words: list[Word]) -> list[str]:
    """Return the words without quotes."""
    return [word.value for word in words]


def _setting(word: Word, is_exported: bool) -> Setting:
    match = _ASSIGNMENT.match(word.raw)
    return Setting(match["name"] if match else "", word, is_exported)


def _breaks(file: str, script: Script) -> Iterator[Finding]:
    for place in script.breaks:
        if place.why == "blanks":
            message = "blanks behind `\\`: the command ends here, and the next line runs by itself"
            fix = "remove the blanks"
        else:
            message = f"a {place.why} behind a line that ends in `\\`: the command ends there"
            fix = f"remove the {place.why}" if place.why == "blank line" else "move the comment up"
        edit = Edit(place.line, place.column, "\\" + place.blanks, "\\") if place.blanks else None
        rule = "shell-continuation"
        yield Finding(file, place.line, place.column, rule, message, fix, ERROR, edit)


def _tee(text: Source, script: Script) -> Iterator[Finding]:
    shebang = text.lines[0] if text.text.startswith("#!") else ""
    has_pipefail = "pipefail" in shebang
    piped: Command | None = None  # the first command of the pipe line
    for command in script.commands:
        values = command_values(command.words)
        if values[:1] == ["set"] and "pipefail" in values:
            has_pipefail = "+o" not in values
        name = next((v for v in values if v not in _LEADING and "=" not in v), "")
        is_piped = name == "tee" and piped is not None and _is_job(piped)
        if is_piped and not has_pipefail and not _asks_status(text, command.words[0].line):
            yield _tee_finding(text.file, command.words[0], shebang)
        if command.joint not in ("|", "|&"):
            piped = None
        elif piped is None:
            piped = command


def _is_job(command: Command) -> bool:
    words = [w.value for w in command.words if w.value not in _LEADING and "=" not in w.value]
    return bool(words) and words[0] not in _NO_JOB and words[0] != "}"


def _asks_status(text: Source, line: int) -> bool:
    return any("PIPESTATUS" in s or "pipestatus" in s for s in text.lines[line - 1 : line + 20])


def _tee_finding(file: str, word: Word, shebang: str) -> Finding:
    message = (
        "`| tee` without pipefail: the exit status is that of tee, a failure counts as success"
    )
    fix = "put `set -o pipefail` at the beginning"
    if re.search(r"[/ ]sh\b", shebang):
        fix += " and `#!/usr/bin/env bash`: sh may not have it"
    return Finding(file, word.line, word.column, "shell-tee", message, fix, WARNING)


def _devices(text: Source, setting: Setting, script: Script) -> Iterator[Finding]:
    if setting.name not in _DEVICES:
        return
    word = setting.word
    rest = text.lines[word.line - 1][word.column - 1 + len(setting.name) :]
    match = _SPACED_END.match(rest) or _SPACED.match(rest)
    if match is None or not re.search(r"\s", match["list"]):
        return
    apart = word.value.endswith(",") and _follows(script, word)
    said = "the words behind the blank are no part of it" if apart else "blanks in the list"
    new = re.sub(r"\s+", "", match["list"])
    message = f"`{setting.name}={match['list']}`: {said}"
    column = word.column + len(setting.name) + match.start("list")
    edit = Edit(word.line, column, match["list"], new)
    fix = f"write {setting.name}={new}"
    yield Finding(text.file, word.line, word.column, "shell-devices", message, fix, ERROR, edit)


def _follows(script: Script, word: Word) -> bool:
    return any(word in command.words[:-1] for command in script.commands)


def _passwords(file: str, command: Command) -> Iterator[Finding]:
    """Yield passwords and tokens that a command gets as arguments."""
    words = command.words
    for word, after in pairwise(words):
        is_flag = word.value.startswith("--") and _is_secret_flag(word.value)
        is_sshpass = word.value == "-p" and words[0].value.rpartition("/")[2] == "sshpass"
        if (is_flag or is_sshpass) and _is_secret(after):
            yield secrets.found(file, after.line, after.column, f"what stands behind {word.value}")
        if word.value == "login" and re.fullmatch(r"[0-9a-f]{40}", words[-1].value):
            yield secrets.found(file, words[-1].line, words[-1].column, "an API key of wandb")
    for word in words:
        name, _, value = word.value.partition("=")
        is_flag = word.raw.startswith("--") and _is_secret_flag(name)
        if is_flag and value and not word.expands and secrets.is_value(value):
            yield secrets.found(file, word.line, word.column, f"the value of {name}")


def _is_secret_flag(flag: str) -> bool:
    return is_secret_name(flag.lstrip("-").replace("-", "_"))


def _is_secret(word: Word) -> bool:
    literal = not word.expands and not word.value.startswith("-")
    return literal and secrets.is_value(word.value)


def read(text: Source) -> Script:
    """Return the commands of a script."""
    return lexer.split(text.text)
