"""The arguments of a script: which it reads, how it calls them, what it compares them with."""

from __future__ import annotations

import os
import re
import shlex
from typing import NamedTuple

_MOST = 60  # arguments
_MOST_CHOICES = 6
_FUNCTION = re.compile(
    r"^[ \t]*(?:function[ \t]+)?[\w.:-]+[ \t]*\(\)[ \t]*\{|^[ \t]*function[ \t]+[\w.:-]+[ \t]*\{"
)
_OPTION_LOOP = re.compile(
    r"\s*(?:while|until)\b(?:.*\$(?:#|\{#|1|\{1)|\s+(?::|true)\s*(?:;|$))|\s*while\b.*\bgetopts\b"
)
_READ = re.compile(r"\$(?:\{(\d+)(?P<rest>[^}]*)|([1-9]))")
_HANDLED = re.compile(r":?[-=+]")
_NO_USE = re.compile(r"\(\(|(\[\[?|test|case|echo|printf|shift|for|select)( |$)")
_ASSIGNED = re.compile(
    r"^\s*(?:(?:export|readonly|declare|typeset|local)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)=[\"']?"
    r"\$(?:\{(\d+)\}|([1-9]))[\"']?\s*(?:[#;].*)?$",
    re.MULTILINE,
)


class Argument(NamedTuple):
    """One argument that a script reads, by the variable that takes it and what it may be."""

    number: int
    line: int
    name: str  # of a variable; empty
    choices: tuple[str, ...]

    @property
    def placeholder(self) -> str:
        """The word that stands for it in a command."""
        return self.name or "ARG"

    @property
    def description(self) -> str:
        """What a message says of it, behind its number."""
        choices = (
            f" ({', '.join(f'`{choice}`' for choice in self.choices)})" if self.choices else ""
        )
        return f"{f', `{self.name}`' if self.name else ''}{choices}"


def arguments_read(text: str) -> tuple[Argument, ...]:
    """Return the arguments up to the last that the script itself reads, and not its functions."""
    lines: dict[int, int] = {}
    for number, line in own_lines(text):
        for at in numbers_read(line):
            lines.setdefault(at, number)
    names = {int(braced or bare): name for name, braced, bare in _ASSIGNED.findall(text)}
    last = min(max(lines, default=0), _MOST)
    return tuple(
        Argument(n, lines.get(n, 1), names.get(n, ""), _choices(text, n, names.get(n, "")))
        for n in range(1, last + 1)
    )


def numbers_used(command: str) -> list[int]:
    """Return the arguments that a command uses: it does not only test, show or skip them."""
    text = command.strip()
    return [] if _NO_USE.match(text) else numbers_read(text)


def is_optional(text: str, argument: Argument) -> bool:
    """Whether a script looks whether it has got an argument that a variable takes."""
    if not argument.name:
        return False
    name = rf"(?:\$\{{{argument.name}\}}|\${argument.name}\b)"
    tested = rf"(?:\[|\btest\b)(?:[^\n]*\s|\s*)-[znv][ \t]+[\"']?(?:{name}|{argument.name}\b)"
    compared = rf"{name}[\"']?[ \t]*[!=]?==?[ \t]*(?:\"\"|'')"
    return re.search(rf"{tested}|{compared}|\$\{{{argument.name}:?[-=+]", text) is not None


def example(text: str, script: str) -> tuple[str, ...]:
    """Return the arguments of a call of the script that stands in one of its comments."""
    name = re.escape(os.path.basename(script))
    for line in text.splitlines():
        match = re.match(rf"\s*#.*?(?:^|[\s/]){name}\s+(\S.*)$", line)
        if match is None or re.search(r"[<>|&;$`\[\]\\]|\.\.\.", match[1]):
            continue
        try:
            return tuple(shlex.split(match[1]))
        except ValueError:
            continue
    return ()


def options(text: str) -> dict[str, bool]:
    """Return the options that a script takes in a loop, and whether each has a value."""
    options = dict[str, bool]()
    for match in re.finditer(
        r"^[ \t]*\(?[\"']?(--?[A-Za-z][^()\n;]*)\)(.*?);;", text, re.MULTILINE | re.DOTALL
    ):
        has_value = re.search(r"\$\{?2\b|\bshift\s+2\b", match[2]) is not None
        names = re.findall(r"--?[A-Za-z][\w-]*", match[1])
        options.setdefault(max(names, key=len), has_value)
    return options


def own_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines outside comments, functions and loops over options."""
    own, end = list[tuple[int, str]](), ""
    for number, line in enumerate(text.splitlines(), 1):
        if end:
            end = "" if line.startswith(end) else end
        elif _OPTION_LOOP.match(line):
            end = f"{line[: len(line) - len(line.lstrip())]}done"
            end = "" if re.search(r"\bdone\b", line) else end
        elif _FUNCTION.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            end = "" if line.rstrip().endswith("}") else f"{indent}}}"
        elif not line.lstrip().startswith("#"):
            own.append((number, line))
    return own


def numbers_read(command: str) -> list[int]:
    """Return the arguments that stand in shell text outside single quotes, without a default."""
    bare = _without_literals(command)
    return [
        int(match[1] or match[3])
        for match in _READ.finditer(bare)
        if not _HANDLED.match(match["rest"] or "") and int(match[1] or match[3])
    ]


def _without_literals(command: str) -> str:
    """Return shell text without what stands in single quotes, is escaped, or is a comment."""
    pieces, is_double, at = list[str](), False, 0
    while at < len(command):
        char = command[at]
        if char == "\\":
            at += 2
            continue
        if char == "'" and not is_double:
            end = command.find("'", at + 1)
            at = len(command) if end < 0 else end + 1
            continue
        if char == "#" and not is_double and (at == 0 or command[at - 1].isspace()):
            break
        is_double ^= char == '"'
        pieces.append(char)
        at += 1
    return "".join(pieces)


def _choices(text: str, number: int, name: str) -> tuple[str, ...]:
    """Return the words with which a script compares an argument."""
    own = [rf"\$\{{{number}\}}", rf"\${number}(?!\d)"]
    own += [rf"\$\{{{name}\}}", rf"\${name}\b"] if name else []
    read = f"[\"']?(?:{'|'.join(own)})[\"']?"
    words = re.findall(rf"{read}\s*==?\s*[\"']?([\w.+-]+)", text)
    for match in re.finditer(rf"\bcase\s+{read}\s+in\b(.*?)\besac\b", text, re.DOTALL):
        for patterns in re.findall(r"^\s*\(?\s*([\w.+\"'| -]+)\)", match[1], re.MULTILINE):
            words += [word.strip("\"' ") for word in patterns.split("|")]
    return tuple(dict.fromkeys(filter(None, words)))[:_MOST_CHOICES]
