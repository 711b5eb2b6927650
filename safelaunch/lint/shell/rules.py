"""Rules for shell scripts: text that bash reads differently than intended."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.lint import secrets
from safelaunch.lint.finding import BOM, CRLF, ERROR, WARNING, Edit, LintFinding
from safelaunch.lint.shell import continuations, launch_lines
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.text_file import TextFile
    from safelaunch.runtime.shell.lexer import Script, ShellCommand, Word

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)\+?=")
_DECLARATIONS = ("export", "declare", "typeset", "readonly", "local", "env")
_DEVICES = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_SPACED = re.compile(r"""=["']?(?P<list>\d+(?:\s*,\s*\d+)+)(?!\w)["']?""")
_SPACED_END = re.compile(r"=(?P<list>\d+(?:,\d+)*,(?:[ \t]+\d+,?)*[ \t]+\d+)(?!\w)")
_MINOR_COMMANDS = frozenset(
    {"echo", "printf", "cat", "date", "ls", "head", "tail", "grep", "env", "nvidia-smi", "hostname"}
)
_SET_ALLEXPORT = re.compile(r"set (-\S+ )*-\w*a")
_PREFIX_WORDS = frozenset({"then", "do", "else", "if", "while", "time", "!", "{", "nohup", "exec"})


class Assignment(NamedTuple):
    """An environment variable that a script sets, and the word that sets it."""

    name: str
    word: Word
    is_exported: bool

    @property
    def value(self) -> str | None:
        """The value without quotes; None if bash expands something in it."""
        return None if self.word.expands else self.word.value.partition("=")[2]


def check(text: TextFile, script: Script) -> Iterator[LintFinding]:
    """Yield the findings in a script, except those about the meaning of variables."""
    yield from check_bytes(text, "the script fails, or works only in part")
    yield from continuations.check(text, script)
    yield from launch_lines.check(text, script)
    yield from _tee(text, script)
    for setting in assignments(script):
        yield from _devices(text, setting, script)
        if is_secret_name(setting.name) and setting.value and secrets.is_literal(setting.value):
            word = setting.word
            yield secrets.secret_finding(
                text.file, word.line, word.column, f"the value of {setting.name}"
            )
    for command in script.commands:
        yield from _passwords(text.file, command)


def check_bytes(text: TextFile, harm: str) -> Iterator[LintFinding]:
    """Yield findings for Windows line ends and a byte order mark."""
    if text.has_bom:
        message = f"a byte order mark before the first line: {harm}"
        yield LintFinding(text.file, 1, 1, BOM, message, "save as UTF-8 without BOM", ERROR)
    if text.crlf_line is not None:
        column = len(text.lines[text.crlf_line - 1]) + 1
        message = f"Windows line ends (CR LF): {harm}"
        fix = "save with LF; `*.sh text eol=lf` in .gitattributes preserves it"
        yield LintFinding(text.file, text.crlf_line, column, CRLF, message, fix, ERROR)


def assignments(script: Script) -> list[Assignment]:
    """Return the variables that a script sets for itself or for commands, in order."""
    return [setting for command in script.commands for setting in _command_assignments(command)]


def exported_names(script: Script) -> frozenset[str] | None:
    """Return the names in `export NAME`; None if the script exports all variables (set -a)."""
    names: set[str] = set()
    for command in script.commands:
        values = command.values
        exports_all = "allexport" in values or _SET_ALLEXPORT.match(" ".join(values))
        if values[:1] == ["set"] and exports_all:
            return None
        if values[:1] == ["export"] or values[:2] == ["declare", "-x"]:
            names |= set(values[1:])
    return frozenset(names)


def find_launcher(script: Script) -> str | None:
    """Return the name of the launcher that a script calls, or None."""
    programs = {
        call.split()[0]: name
        for call, name in launchers.programs().items()
        if not launchers.load(name).PLACES_RANKS  # srun: the launcher that it runs says more
    }
    for command in script.commands:
        words = [word.value for word in command.words if not _ASSIGNMENT.match(word.raw)]
        names = (programs.get(word.rpartition("/")[2]) for word in words[:4])
        modules = (launchers.find_module(word) for word in words if "." in word)
        if launcher := next(filter(None, (*names, *modules)), None):
            return launcher
    return None


def _command_assignments(command: ShellCommand) -> Iterator[Assignment]:
    words = [word for word in command.words if word.raw not in _PREFIX_WORDS]
    first = words[0].value if words else ""
    if first == "export" or (first in ("declare", "typeset") and "-x" in command.values):
        yield from (_assignment(word, True) for word in words[1:] if _ASSIGNMENT.match(word.raw))
        return
    leading: list[Word] = []
    for word in words[1:] if first in _DECLARATIONS else words:
        if not _ASSIGNMENT.match(word.raw):
            break
        leading.append(word)
    runs = len(leading) < len(words) and first not in ("readonly", "local", "declare", "typeset")
    yield from (_assignment(word, runs) for word in leading)
    for flag, word in pairwise(words):  # docker run -e NAME=value
        if flag.value in ("-e", "--env") and _ASSIGNMENT.match(word.raw):
            yield _assignment(word, True)


def _assignment(word: Word, is_exported: bool) -> Assignment:
    match = _ASSIGNMENT.match(word.raw)
    return Assignment(match["name"] if match else "", word, is_exported)


def _tee(text: TextFile, script: Script) -> Iterator[LintFinding]:
    shebang = text.lines[0] if text.text.startswith("#!") else ""
    has_pipefail = "pipefail" in shebang
    piped: ShellCommand | None = None  # the first command of the pipeline
    for command in script.commands:
        values = command.values
        if values[:1] == ["set"] and "pipefail" in values:
            has_pipefail = "+o" not in values
        name = next((v for v in values if v not in _PREFIX_WORDS and "=" not in v), "")
        if name == "tee" and piped is not None and _is_job(piped) and not has_pipefail:
            word = command.words[0]
            following = text.lines[word.line - 1 : word.line + 20]
            if not any("pipestatus" in line.lower() for line in following):
                yield _tee_finding(text.file, word, shebang)
        if command.operator not in ("|", "|&"):
            piped = None
        elif piped is None:
            piped = command


def _is_job(command: ShellCommand) -> bool:
    words = [w.value for w in command.words if w.value not in _PREFIX_WORDS and "=" not in w.value]
    return bool(words) and words[0] not in _MINOR_COMMANDS and words[0] != "}"


def _tee_finding(file: str, word: Word, shebang: str) -> LintFinding:
    message = (
        "`| tee` without pipefail: the exit status is that of tee, so a failure counts as success"
    )
    fix = "put `set -o pipefail` at the beginning of the script"
    if re.search(r"[/ ]sh\b", shebang):
        fix += " and `#!/usr/bin/env bash`: sh may not have it"
    return LintFinding(file, word.line, word.column, "shell-tee", message, fix, WARNING)


def _devices(text: TextFile, setting: Assignment, script: Script) -> Iterator[LintFinding]:
    if setting.name not in _DEVICES:
        return
    word = setting.word
    value_text = text.lines[word.line - 1][word.column - 1 + len(setting.name) :]
    match = _SPACED_END.match(value_text) or _SPACED.match(value_text)
    if match is None or not re.search(r"\s", match["list"]):
        return
    problem = "the list contains blanks"
    has_word_after = any(word in command.words[:-1] for command in script.commands)
    if word.value.endswith(",") and has_word_after:
        problem = "the text after the blank is not part of the value"
    new = re.sub(r"\s+", "", match["list"])
    message = f"`{setting.name}={match['list']}`: {problem}"
    column = word.column + len(setting.name) + match.start("list")
    edit = Edit(word.line, column, match["list"], new)
    fix = f"write {setting.name}={new}"
    yield LintFinding(
        text.file, word.line, word.column, "shell-devices", message, fix, ERROR, (edit,)
    )


def _passwords(file: str, command: ShellCommand) -> Iterator[LintFinding]:
    """Yield passwords and tokens among the arguments of a command."""
    words = command.words

    def finding(word: Word, what: str) -> LintFinding:
        return secrets.secret_finding(file, word.line, word.column, what)

    for word, next_word in pairwise(words):
        is_sshpass = word.value == "-p" and words[0].value.rpartition("/")[2] == "sshpass"
        is_literal = not next_word.expands and not next_word.value.startswith("-")
        is_password = is_sshpass and secrets.is_literal(next_word.value)
        if is_literal and (is_password or _is_secret_option(word.value, next_word.value)):
            yield finding(next_word, f"the value of {word.value}")
        if word.value == "login" and re.fullmatch(r"[0-9a-f]{40}", words[-1].value):
            yield finding(words[-1], "an API key of wandb")
    for word in words:
        name, _, value = word.value.partition("=")
        if word.raw.startswith("--") and not word.expands and _is_secret_option(name, value):
            yield finding(word, f"the value of {name}")


def _is_secret_option(flag: str, value: str) -> bool:
    """Whether an option and its value are a password, token or key."""
    if not flag.startswith("--") or not is_secret_name(flag.lstrip("-").replace("-", "_")):
        return False
    if flag.endswith("secret") and "=" in value:
        return False  # `docker build --secret id=NAME`: the name of a secret
    # `--initializer_token toy`: a token of text
    is_text = flag.endswith("token") and not secrets.is_random(value)
    return bool(value) and not is_text and secrets.is_literal(value)
