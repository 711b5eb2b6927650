"""Rules about the commands that start training: the launcher's flags, ports, and placeholders."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.lint.finding import ERROR, WARNING, LintFinding
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.launchers.flag_table import FlagTable
    from safelaunch.lint.text_file import TextFile
    from safelaunch.runtime.shell.lexer import Script, ShellCommand, Word

FLAG = "launch-flag"
PORT = "launch-port"
PLACEHOLDER = "shell-placeholder"
_PLACEHOLDER = re.compile(r"<[A-Za-z]([\w ./:-]*[\w./:-])?>(?![>&|])")
_MAX_PORT = 65535
_PORT_NAME = re.compile(r"(?i)(.*[_-])?port")
_ENDPOINT = re.compile(r"[\w.\[\]:-]*:(?P<port>\d+)")
_ASSIGNED_PORT = re.compile(r"(?P<name>(\w*_)?(PORT|port))=(?P<port>\d+)")
_PROGRAM = re.compile(r".+\.(py|sh)")
_OPTION_END = re.compile(r"(^|\s)-[^\s]*\s+$")
_MAX_WRAPPERS = 60  # words before a launcher: `srun` with its options, `uv run`
_COUNT = re.compile(r"\d+")
# what only a launcher understands: behind the script the program gets it, and rarely knows it
_ONLY_LAUNCHERS = frozenset((
    "nproc_per_node", "nnodes", "node_rank", "standalone", "rdzv_backend", "rdzv_endpoint",
    "rdzv_id", "num_processes", "num_machines", "machine_rank", "main_process_port",
    "main_process_ip", "multi_gpu", "num_gpus", "num_nodes", "hostfile",
))  # fmt: skip
# flags that take a whole number, and the words that they take beside it
_NUMBERS: dict[str, tuple[str, ...]] = {
    "nproc_per_node": ("gpu", "cpu", "auto", "xpu"),
    **dict.fromkeys((
        "node_rank", "master_port", "max_restarts", "num_processes", "num_machines",
        "machine_rank", "main_process_port", "num_gpus", "num_nodes",
    ), ()),
}  # fmt: skip


class _Flag(NamedTuple):
    """A flag of a launcher: its long name, its word, and the word of its value where it has one."""

    name: str
    word: Word
    value: str | None = None
    expands: bool = False


class LaunchLine(NamedTuple):
    """A command that starts a launcher, split at the program; None: its place is not known."""

    launcher: str
    table: FlagTable
    flags: tuple[_Flag, ...]
    program: Word | None
    args: tuple[Word, ...]

    @property
    def script(self) -> Word | None:
        """The word of the program's file; None where it is a module, or bash expands the word."""
        is_module = any(flag.name == "module" for flag in self.flags)
        word = self.program
        return None if word is None or word.expands or is_module else word


def read(script: Script) -> Iterator[LaunchLine]:
    """Yield the launch lines of a script; a launcher may start another one (`srun torchrun`)."""
    for command in script.commands:
        line = _launch_line(command.words)
        while line is not None:
            yield line
            program = line.program
            if program is None or _PROGRAM.fullmatch(program.value):
                break
            line = _launch_line([program, *line.args])


def check(text: TextFile, script: Script) -> Iterator[LintFinding]:
    """Yield what is wrong with the launch lines of a script."""
    file = text.file
    yield from _placeholders(text, script)
    for command in script.commands:
        yield from _ports(file, command)
    for line in read(script):
        value_findings = list(_values(file, line))
        yield from value_findings
        yield from _repeated(file, line)
        if not value_findings:  # else the program may be a part of the value
            yield from _behind_program(file, line)


def _placeholders(text: TextFile, script: Script) -> Iterator[LintFinding]:
    """Yield a finding for the `<name>` of a template, which bash takes for redirections."""
    placeholders: list[tuple[str, int, int]] = []
    for line, column in script.inputs:
        before, rest = text.lines[line - 1][: column - 1], text.lines[line - 1][column - 1 :]
        match = _PLACEHOLDER.match(rest)
        if match is None:
            continue
        is_word = not before[-1:].isspace()  # `http://<host>`, `DATA=<path>`
        is_value = _OPTION_END.search(before) is not None
        # `sort <in> out` is valid: it reads one file and writes another
        if is_word or is_value or not rest[match.end() :].strip(" \\") or " " in match[0]:
            placeholders.append((match[0], line, column))
    if not placeholders:
        return
    name, line, column = placeholders[0]
    others = len(placeholders) - 1
    more = f", and {quantity(others, 'other')} below" if others else ""
    message = f"`{name}` is a placeholder{more}: to bash `<` reads a file and `>` writes one"
    fix = "replace it by the value"
    yield LintFinding(text.file, line, column, PLACEHOLDER, message, fix, ERROR)


def _ports(file: str, command: ShellCommand) -> Iterator[LintFinding]:
    words = command.words
    if words and words[0].value in ("echo", "printf"):
        return
    values = [(word, word.value) for word in words if _ASSIGNED_PORT.fullmatch(word.raw)]
    for word, next_word in pairwise([*words, *words[-1:]]):
        name, equals, value = word.value.partition("=")
        if word.raw.startswith("--") and (_PORT_NAME.fullmatch(name) or name == "--rdzv_endpoint"):
            at, text = (word, value) if equals else (next_word, next_word.value)
            values.append((at, f"{name}={text}"))
    for word, text in values:
        name, _, value = text.partition("=")
        match = _ENDPOINT.fullmatch(value)
        port = match["port"] if match else value
        if port.isdecimal() and int(port) > _MAX_PORT:
            message = f"port {port} of `{name}`: the largest port is {_MAX_PORT}"
            fix = "use one from 20000 to 32000, outside the range of outgoing connections"
            yield LintFinding(file, word.line, word.column, PORT, message, fix, ERROR)


def _values(file: str, line: LaunchLine) -> Iterator[LintFinding]:
    for flag in line.flags:
        others = _NUMBERS.get(flag.name)
        typed = flag.word.value.partition("=")[0]
        problem = None
        if flag.name in line.table.valued and flag.value is None:
            problem = f"`{typed}` has no value"
        elif others is None or flag.value is None or flag.expands:
            continue
        elif flag.value.startswith("-") or _PROGRAM.fullmatch(flag.value):
            problem = f"`{typed}` has no value: it takes `{flag.value}` for it"
        elif flag.value not in others and not _COUNT.fullmatch(flag.value):
            problem = f"`{typed}` takes a number, not `{flag.value}`"
        if problem:
            fix = f"write `{typed} N`"
            word = flag.word
            yield LintFinding(file, word.line, word.column, FLAG, problem, fix, ERROR)


def _repeated(file: str, line: LaunchLine) -> Iterator[LintFinding]:
    first: dict[str, _Flag] = {}
    for flag in line.flags:
        earlier = first.setdefault(flag.name, flag)
        if earlier is not flag and flag.name in line.table.names:
            typed, word = flag.word.value.partition("=")[0], flag.word
            message = f"`{typed}` twice for {line.launcher}: the last one silently wins"
            fix = f"keep one; the first is in line {earlier.word.line}"
            yield LintFinding(file, word.line, word.column, FLAG, message, fix, WARNING)


def _behind_program(file: str, line: LaunchLine) -> Iterator[LintFinding]:
    if line.program is None:
        return
    own = {flag.name for flag in line.flags}
    for word in line.args:
        name = line.table.name(word.value)
        is_flag = word.raw.startswith("--") and name in line.table.names
        if is_flag and name in _ONLY_LAUNCHERS and name not in own:
            typed = word.value.partition("=")[0]
            program = line.program.value
            message = f"`{typed}` behind {program}: the program gets it, not {line.launcher}"
            fix = f"put it between {line.launcher} and {program}"
            yield LintFinding(file, word.line, word.column, FLAG, message, fix, WARNING)


def _launch_line(words: Sequence[Word]) -> LaunchLine | None:
    """Return the launch line in a command, also behind `srun`, `uv run` and others."""
    for at, word in enumerate(words[:_MAX_WRAPPERS]):
        if word.expands and "/" not in word.value:
            continue
        rest = [w.value for w in words[at : at + 2]]  # no program has more words
        if _PROGRAM.fullmatch(word.value) or word.value in ("echo", "printf", "pip", "which"):
            return None
        module = rest[1] if rest[0] == "-m" and len(rest) > 1 else None
        if module is not None:
            name, count = launchers.find_module(module), len(("-m", module))
        else:
            program = launchers.find_program(rest)
            if program is None:
                continue
            name, count = launchers.programs()[program], len(program.split())
            if rest[1:count] != program.split()[1:]:
                return None
        if name is None:
            return None
        table = launchers.load(name).FLAGS
        if table is None:
            continue  # it may start another launcher
        if module is not None:
            table = launchers.load(name).MODULE_FLAGS.get(module, table)
        return _split(name, table, words[at + count :])
    return None


def _split(name: str, table: FlagTable, words: Sequence[Word]) -> LaunchLine:
    """Return the flags of a launcher, its program, and the words behind it.

    A word that bash expands may be any number of flags; the program is then the next file.
    """
    flags: list[_Flag] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        flag = table.name(word.value)
        if not word.raw.startswith("-"):
            if word.expands and not _PROGRAM.fullmatch(word.value):
                continue
            return LaunchLine(name, table, tuple(flags), word, tuple(words[at:]))
        if "=" in word.value:
            flags.append(_Flag(flag, word, word.value.partition("=")[2], word.expands))
        elif flag in table.switches:
            flags.append(_Flag(flag, word))
        elif flag in table.valued:
            value = words[at] if at < len(words) else None
            flags.append(
                _Flag(flag, word, value and value.value, value is not None and value.expands)
            )
            at += 1
        else:  # a flag that the table lacks: whether a value follows is not known
            break
    return LaunchLine(name, table, tuple(flags), None, ())
