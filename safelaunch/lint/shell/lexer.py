"""Splits a shell script into commands of words, as bash would, as far as rules need it.

Nothing is expanded: a word with `$` or a backtick says so. Bodies of here-documents are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPERATORS = ("&&", "||", "|&", ";;", "|", "&", ";", "(", ")")
_REDIRECTION = re.compile(r"\d*(<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)|&>>|&>")
_BLANKS_AT_END = re.compile(r"\\[ \t]+(?=\n|\Z)")
_FAR = 20  # lines
_CLOSES = {"(": ")", "{": "}", "`": "`"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word: as it is written, without its quotes, whether bash expands something in it."""

    raw: str
    value: str
    expands: bool
    line: int
    column: int


@dataclass(slots=True)
class Command:
    """A simple command; `joint` is the operator behind it, a line end too."""

    words: list[Word] = field(default_factory=list)
    joint: str = "\n"


@dataclass(frozen=True, slots=True)
class Break:
    """A line that is meant to go on, and does not: `why` is blanks, blank line or comment."""

    line: int
    column: int
    why: str
    blanks: str = ""


@dataclass(slots=True)
class Script:
    """The commands of a script, and where continued lines break."""

    commands: list[Command]
    breaks: list[Break]


def split(text: str) -> Script:
    """Return the commands of a script. Never fails: what is no shell gives some words."""
    return _Splitter(text).split()


class _Splitter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.line_start = 0
        self.lines = text.split("\n")
        self.script = Script([Command()], [])
        self.delimiters: list[str] = []  # of here-documents that begin behind this line
        self.is_target = ""  # the redirection whose word comes next

    def split(self) -> Script:
        while self.at < len(self.text):
            self._step()
        return self.script

    def _step(self) -> None:
        text, at = self.text, self.at
        char = text[at]
        if char in " \t\r":
            self.at += 1
        elif char == "\n":
            self._newline()
        elif char == "#":
            self._comment()
        elif char == "\\" and self._is_continued():
            pass
        elif (match := _REDIRECTION.match(text, at)) is not None:
            self.is_target = match.group().lstrip("0123456789")
            self.at = match.end()
        elif (
            operator := next((o for o in _OPERATORS if text.startswith(o, at)), None)
        ) is not None:
            self.at += len(operator)
            self._end(operator)
        else:
            self._word()

    def _newline(self) -> None:
        self.at += 1
        self._next_line()
        for delimiter in self.delimiters:
            self._skip_document(delimiter)
        self.delimiters.clear()
        self._end("\n")

    def _next_line(self) -> None:
        self.line += 1
        self.line_start = self.at

    def _comment(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _end(self, operator: str) -> None:
        self.is_target = ""
        last = self.script.commands[-1]
        if last.words:
            last.joint = operator
            self.script.commands.append(Command())

    def _skip_document(self, delimiter: str) -> None:
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            self._next_line()
            if line.strip("\t ") == delimiter:
                return

    # -- continued lines ---------------------------------------------------------------------------

    def _is_continued(self) -> bool:
        """Pass over a backslash at a line's end, and note where it does not do what it is for."""
        if self.text.startswith("\\\n", self.at):
            self._check_next_line()
            self.at += 2
            self._next_line()
            return True
        match = _BLANKS_AT_END.match(self.text, self.at)
        if match is None or match.end() == len(self.text):
            return False
        self._break("blanks", match.group()[1:])
        self.at = match.end()
        return True

    def _check_next_line(self) -> None:
        following = [s.strip() for s in self.lines[self.line : self.line + _FAR]]
        is_broken = not following[0] or following[0].startswith("#")
        nearest = next((n for n, s in enumerate(following) if s and s[0] != "#"), None)
        words = self.script.commands[-1].words
        if not is_broken or nearest is None or not words:
            return
        deeper = _indent(self.lines[self.line + nearest]) > _indent(self.lines[words[0].line - 1])
        only_settings = all(re.match(r"[A-Za-z_]\w*=", word.raw) for word in words)
        if following[nearest].startswith("-") or only_settings or deeper:
            self._break("comment" if following[0] else "blank line")

    def _break(self, why: str, blanks: str = "") -> None:
        column = self.at - self.line_start + 1
        self.script.breaks.append(Break(self.line, column, why, blanks))

    # -- words -------------------------------------------------------------------------------------

    def _word(self) -> None:
        start, line, column = self.at, self.line, self.at - self.line_start + 1
        value, expands = [], False
        while self.at < len(self.text) and not self._ends_word(start):
            part, more = self._part()
            value.append(part)
            expands = expands or more
        word = Word(self.text[start : self.at], "".join(value), expands, line, column)
        if self.is_target.startswith("<<") and self.is_target != "<<<":
            self.delimiters.append(word.value)
        elif not self.is_target:
            self.script.commands[-1].words.append(word)
        self.is_target = ""

    def _ends_word(self, start: int) -> bool:
        char = self.text[self.at]
        if char == "\\":
            return self.at > start and _BLANKS_AT_END.match(self.text, self.at) is not None
        return char in " \t\r\n|&;()<>"

    def _part(self) -> tuple[str, bool]:
        """Return the next part of a word without quotes, and whether bash expands it."""
        char = self.text[self.at]
        if char == "'" or self.text.startswith("$'", self.at):
            self.at += 1 if char == "'" else 2
            return self._until("'"), False
        if char == '"':
            self.at += 1
            return self._double()
        if char in "$`":
            return self._expansion(), True
        if char == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self._advance(2)
            return ("" if following == "\n" else following), False
        self.at += 1
        return char, False

    def _until(self, end: str) -> str:
        found = self.text.find(end, self.at)
        found = len(self.text) if found < 0 else found
        inside = self.text[self.at : found]
        self._advance(len(inside) + 1)
        return inside

    def _double(self) -> tuple[str, bool]:
        value, expands = [], False
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char in "$`":
                value.append(self._expansion())
                expands = True
            elif char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                value.append(following if following in '"\\$`' else "\\" + following)
                self._advance(2)
            else:
                value.append(char)
                self._advance(1)
        self.at += 1
        return "".join(value), expands

    def _expansion(self) -> str:
        """Pass over `$name`, `${...}`, `$(...)` or a backtick command, and return it as it is."""
        start = self.at
        self.at += 1
        opening = "`" if self.text[start] == "`" else self.text[self.at : self.at + 1]
        if opening == "`":
            self._until("`")
        elif opening in ("(", "{"):
            self._balanced(opening)
        return self.text[start : self.at]

    def _balanced(self, opening: str) -> None:
        closing, depth = _CLOSES[opening], 0
        while self.at < len(self.text):
            char = self.text[self.at]
            self._advance(2 if char == "\\" else 1)
            if char == "'" and opening == "(":
                self._until("'")
            depth += (char == opening) - (char == closing)
            if depth == 0:
                return

    def _advance(self, count: int) -> None:
        """Go on inside a word, which may hold line ends."""
        for _ in range(min(count, len(self.text) - self.at)):
            self.at += 1
            if self.text[self.at - 1] == "\n":
                self._next_line()


def _operator(text: str, at: int) -> str | None:
    return next((o for o in _OPERATORS if text.startswith(o, at)), None)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
