r"""Rules about commands of several lines that end earlier than intended.

The causes: something behind or below a `\`, a missing `\`, and characters that a text processor has
put in place of ASCII ones.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.lint.finding import ERROR, Edit, LintFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.text_file import TextFile
    from safelaunch.runtime.shell.lexer import Script, Word

ID = "shell-continuation"
CHARACTERS = "shell-characters"
_OPTION = re.compile(r"--?[A-Za-z].*", re.DOTALL)
# an override of Hydra or OmegaConf: `data.batch=3`, `+trainer.x=1`, `~a/b=c`; no name of a program
_OVERRIDE = re.compile(r"(\+\+|\+|~)?[A-Za-z_]\w*([./@][A-Za-z_][\w@-]*)+=.*", re.DOTALL)
_CASE_PATTERN = re.compile(r"""\s*\(?[^\s()|"']+(\s*\|\s*[^\s()|]+)*\s*\)""")
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\$\(.*\)|\$\{[^}]*\}|`[^`]*`""", re.DOTALL)
_ESCAPED_BLANK = re.compile(r"\\[ \t](?P<rest>.*)", re.DOTALL)
_JOINED = re.compile(r"\S\\\n(?P<next>--?[A-Za-z][\w-]*)")
_WRONG_DASH = re.compile(r"(?P<dashes>-?[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]+-?)(?=[A-Za-z])")
_WRONG = re.compile("[\u00a0\u2007\u202f\u3000\u200b\ufeff\u201c\u201d\u201e\u2018\u2019\u201a]")
_ASCII = str.maketrans(
    {**dict.fromkeys("\u00a0\u2007\u202f\u3000", " "), **dict.fromkeys("\u200b\ufeff", ""),
     **dict.fromkeys("\u201c\u201d\u201e", '"'), **dict.fromkeys("\u2018\u2019\u201a", "'")}
)  # fmt: skip
_TALKING = frozenset({"echo", "printf", "log", "info", "warn", "die", "read", "sed", "grep", "awk"})


class _Statement(NamedTuple):
    """A simple command; `is_first`: only a line end precedes it."""

    words: list[Word]
    is_first: bool


def check(text: TextFile, script: Script) -> Iterator[LintFinding]:
    """Yield the commands that end too early, each once, and characters that are not ASCII."""
    yield from _breaks(text.file, script)
    broken = {line_break.line for line_break in script.breaks}
    previous_end = 0  # the line where a command ended that is reported, or belongs to such a one
    last_line, has_command = 0, False
    for statement in _statements(script):
        first, last = statement.words[0], statement.words[-1]
        end = last.line + last.raw.count("\n")
        escape = next(filter(None, (_escaped(text, word) for word in statement.words)), None)
        if escape is not None:
            yield escape
            previous_end = end
        elif statement.is_first and _is_argument(text, first):
            after_break = any(last_line <= line < first.line for line in broken)
            if has_command and not after_break and (not previous_end or previous_end < last_line):
                yield _begins_line(text, first)
            previous_end = end
        else:
            has_command = True
        last_line = end
        if first.value not in _TALKING:
            yield from _characters(text.file, statement.words)


def _breaks(file: str, script: Script) -> Iterator[LintFinding]:
    for line_break in script.breaks:
        if line_break.why == "blanks":
            message = "blanks after `\\`: the command ends here, and the next line runs on its own"
            fix = "remove the blanks"
        else:
            message = f"a {line_break.why} after a line that ends with `\\`: the command ends there"
            fixes = {"blank line": "remove the blank line", "comment": "move the comment up"}
            fix = fixes[line_break.why]
        line, column, blanks = line_break.line, line_break.column, line_break.blanks
        edits = (Edit(line, column, "\\" + blanks, "\\"),) if blanks else ()
        yield LintFinding(file, line, column, ID, message, fix, ERROR, edits)


def _statements(script: Script) -> Iterator[_Statement]:
    """Yield the simple commands, without the elements of arrays, `((...))` and `[[...]]`."""
    words: list[Word] = []
    opened: list[bool] = []  # whether each open parenthesis has commands in it
    is_first = True
    for at, item in enumerate(script.tokens):
        if not isinstance(item, str):
            words.append(item)
            continue
        if _in_test(words):
            continue
        operator, following = item, script.tokens[at + 1 : at + 2]
        if operator == "(":
            is_array = bool(words) and words[-1].raw.endswith("=")
            opened.append(not is_array and following != ["("] and (not opened or opened[-1]))
        is_pattern = operator == ")" and not opened  # of `case`
        if words and not is_pattern and (not opened or opened[-1] or operator == "("):
            yield _Statement(words, is_first)
        words = []
        if operator == ")" and opened:
            opened.pop()
        is_first = operator in ("\n", "&")
    if words:
        yield _Statement(words, is_first)


def _in_test(words: list[Word]) -> bool:
    """Whether `[[` is still open, in which lines and operators end no command."""
    marks = [word.raw for word in words if word.raw in ("[[", "]]")]
    return bool(marks) and marks[-1] == "[["


def _is_argument(text: TextFile, word: Word) -> bool:
    """Whether the first word of a line is an option or override, never the name of a program."""
    line = text.lines[word.line - 1]
    if line[: word.column - 1].strip() or _CASE_PATTERN.match(line):
        return False
    return bool(_OPTION.fullmatch(word.raw) or _OVERRIDE.fullmatch(word.raw))


def _begins_line(text: TextFile, word: Word) -> LintFinding:
    name = word.raw.partition("=")[0]
    message = f"`{name}` begins a line: bash runs it as a command, the command above lacks it"
    above = text.lines[word.line - 2].strip() if word.line > 1 else ""
    number = word.line - 1
    if not above:
        fix = f"remove the empty line {number}, and end the line above it with ` \\`"
    elif above.startswith("#"):
        fix = f"move the comment in line {number} up, and end the line above it with ` \\`"
    elif above.endswith("\\\\"):
        fix = f"end line {number} with one `\\`"
    elif above.endswith("\\"):
        fix = f"remove the comment in line {number}: its `\\` is a part of it"
    else:
        fix = f"end line {number} with ` \\`"
    return LintFinding(text.file, word.line, word.column, ID, message, fix, ERROR)


def _escaped(text: TextFile, word: Word) -> LintFinding | None:
    r"""Return the finding for a `\` that escapes a blank, or joins two words without any."""
    match = _ESCAPED_BLANK.fullmatch(word.raw)
    if match is not None:
        behind = text.lines[word.line - 1][word.column + 1 :].strip()
        rest = match["rest"]
        if rest.startswith("#") or (not rest and behind.startswith("#")):
            message = "a comment after `\\`: the command ends here, the next line runs on its own"
            fix = "move the comment above the command: nothing may follow the `\\`"
        elif _OPTION.fullmatch(rest):
            message = f"`\\ {rest}` is one word that begins with a blank, and no option"
            fix = "remove the `\\`, or begin a new line after it"
        else:
            return None
        return LintFinding(text.file, word.line, word.column, ID, message, fix, ERROR)
    joined = _JOINED.search(_QUOTED.sub("_", word.raw)) if "\\\n-" in word.raw else None
    if joined is None:
        return None
    message = f"no blank before the `\\`: bash joins the word with `{joined['next']}` below it"
    return LintFinding(
        text.file, word.line, word.column, ID, message, "put a blank before the `\\`", ERROR
    )


def _characters(file: str, words: list[Word]) -> Iterator[LintFinding]:
    """Yield one finding for the characters of a command that only look like ASCII ones."""
    first: LintFinding | None = None
    edits: list[Edit] = []
    for word in words:
        if word.raw.isascii():
            continue
        bare = _QUOTED.sub(lambda match: " " * len(match[0]), word.raw)
        dash, other = _WRONG_DASH.match(bare), _WRONG.search(bare)
        if dash is not None:
            old, new = dash["dashes"], "-" if re.fullmatch(r"\w", bare[dash.end() :]) else "--"
            message, fix = f"`{old}` is no ASCII `-`: the word is no option", f"write `{new}`"
        elif other is not None:
            old, new = word.raw, word.raw.translate(_ASCII)
            name = "quote" if other[0].translate(_ASCII).strip() else "blank"
            message = f"U+{ord(other[0]):04X} is no {name} to bash, but a part of the word"
            fix = "write it in ASCII"
        else:
            continue
        line, column = word.line, word.column
        first = first or LintFinding(file, line, column, CHARACTERS, message, fix, ERROR)
        if "\n" not in old:
            edits.append(Edit(line, column, old, new))
    if first is not None:
        yield replace(first, edits=tuple(edits))
