"""Rules for shell scripts: text that bash reads differently than intended."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.lint import secrets
from safelaunch.lint.finding import BOM, CRLF, ERROR, WARNING, Edit, LintFinding
from safelaunch.lint.shell import lexer
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.file_text import TextFile
    from safelaunch.lint.shell.lexer import Script, ShellCommand, Word

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
    yield from _breaks(text.file, script)
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
    return [
        assignment for command in script.commands for assignment in _command_assignments(command)
    ]


def exported_names(script: Script) -> frozenset[str] | None:
    """Return the names in `export NAME`; None if the script exports all variables (set -a)."""
    names: set[str] = set()
    for command in script.commands:
        values = command_values(command.words)
        if values[:1] == ["set"] and (
            "allexport" in values or _SET_ALLEXPORT.match(" ".join(values))
        ):
            return None
        if values[:1] == ["export"] or values[:2] == ["declare", "-x"]:
            names |= set(values[1:])
    return frozenset(names)


def find_launcher(script: Script) -> str | None:
    """Return the name of the launcher that a script calls, or None."""
    programs = {call.split()[0]: name for call, name in launchers.programs().items()}
    programs.setdefault(
        "deepspeed", "deepspeed"
    )  # not a launcher of safelaunch; the rules know its timeout
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


def _command_assignments(command: ShellCommand) -> Iterator[Assignment]:
    words = [word for word in command.words if word.raw not in _PREFIX_WORDS]
    first = words[0].value if words else ""
    if first == "export" or (first in ("declare", "typeset") and "-x" in command_values(words)):
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


def command_values(words: list[Word]) -> list[str]:
    """Return the values of words, without quotes."""
    return [word.value for word in words]


def _assignment(word: Word, is_exported: bool) -> Assignment:
    match = _ASSIGNMENT.match(word.raw)
    return Assignment(match["name"] if match else "", word, is_exported)


def _breaks(file: str, script: Script) -> Iterator[LintFinding]:
    for line_break in script.breaks:
        if line_break.why == "blanks":
            message = "blanks after `\\`: the command ends here, and the next line runs on its own"
            fix = "remove the blanks"
        else:
            message = f"a {line_break.why} after a line that ends with `\\`: the command ends there"
            fix = (
                f"remove the {line_break.why}"
                if line_break.why == "blank line"
                else "move the comment up"
            )
        edit = (
            Edit(line_break.line, line_break.column, "\\" + line_break.blanks, "\\")
            if line_break.blanks
            else None
        )
        rule = "shell-continuation"
        yield LintFinding(file, line_break.line, line_break.column, rule, message, fix, ERROR, edit)


def _tee(text: TextFile, script: Script) -> Iterator[LintFinding]:
    shebang = text.lines[0] if text.text.startswith("#!") else ""
    has_pipefail = "pipefail" in shebang
    piped: ShellCommand | None = None  # the first command of the pipeline
    for command in script.commands:
        values = command_values(command.words)
        if values[:1] == ["set"] and "pipefail" in values:
            has_pipefail = "+o" not in values
        name = next((v for v in values if v not in _PREFIX_WORDS and "=" not in v), "")
        is_piped = name == "tee" and piped is not None and _is_job(piped)
        if is_piped and not has_pipefail and not _reads_pipestatus(text, command.words[0].line):
            yield _tee_finding(text.file, command.words[0], shebang)
        if command.operator not in ("|", "|&"):
            piped = None
        elif piped is None:
            piped = command


def _is_job(command: ShellCommand) -> bool:
    words = [w.value for w in command.words if w.value not in _PREFIX_WORDS and "=" not in w.value]
    return bool(words) and words[0] not in _MINOR_COMMANDS and words[0] != "}"


def _reads_pipestatus(text: TextFile, line: int) -> bool:
    return any("PIPESTATUS" in s or "pipestatus" in s for s in text.lines[line - 1 : line + 20])


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
    is_split = word.value.endswith(",") and _has_word_after(script, word)
    problem = (
        "the text after the blank is not part of the value"
        if is_split
        else "the list contains blanks"
    )
    new = re.sub(r"\s+", "", match["list"])
    message = f"`{setting.name}={match['list']}`: {problem}"
    column = word.column + len(setting.name) + match.start("list")
    edit = Edit(word.line, column, match["list"], new)
    fix = f"write {setting.name}={new}"
    yield LintFinding(text.file, word.line, word.column, "shell-devices", message, fix, ERROR, edit)


def _has_word_after(script: Script, word: Word) -> bool:
    return any(word in command.words[:-1] for command in script.commands)


def _passwords(file: str, command: ShellCommand) -> Iterator[LintFinding]:
    """Yield passwords and tokens among the arguments of a command."""
    words = command.words
    for word, next_word in pairwise(words):
        is_flag = word.value.startswith("--") and _is_secret_flag(word.value)
        is_sshpass = word.value == "-p" and words[0].value.rpartition("/")[2] == "sshpass"
        if (is_flag or is_sshpass) and _is_secret_word(next_word):
            yield secrets.secret_finding(
                file, next_word.line, next_word.column, f"the value of {word.value}"
            )
        if word.value == "login" and re.fullmatch(r"[0-9a-f]{40}", words[-1].value):
            yield secrets.secret_finding(
                file, words[-1].line, words[-1].column, "an API key of wandb"
            )
    for word in words:
        name, _, value = word.value.partition("=")
        is_flag = word.raw.startswith("--") and _is_secret_flag(name)
        if is_flag and value and not word.expands and secrets.is_literal(value):
            yield secrets.secret_finding(file, word.line, word.column, f"the value of {name}")


def _is_secret_flag(flag: str) -> bool:
    return is_secret_name(flag.lstrip("-").replace("-", "_"))


def _is_secret_word(word: Word) -> bool:
    literal = not word.expands and not word.value.startswith("-")
    return literal and secrets.is_literal(word.value)


def parse(text: TextFile) -> Script:
    """Return the commands of a script."""
    return lexer.split(text.text)
