"""Splits a shell script into commands and words like bash, as far as the rules need it.

Nothing is expanded: words with `$` or a backtick are marked. Bodies of here-documents are skipped.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Token = Union["Word", str]

_OPERATORS = ("&&", "||", "|&", ";;", "|", "&", ";", "(", ")")
_REDIRECTION = re.compile(r"\d*(<<<|<<-|<<|<>|<&|>&|>>|>\||<|>)|&>>|&>")
_BLANKS_AT_END = re.compile(r"\\[ \t]+(?=\n|\Z)")
_LOOKAHEAD = 20  # lines
_CLOSES = {"(": ")", "{": "}", "`": "`"}


class Word(NamedTuple):
    """A word: its raw text, its value without quotes, and whether bash expands something in it.

    `substitutions` are the scripts in its `$(...)` and backticks.
    """

    raw: str
    value: str
    expands: bool
    line: int
    column: int
    substitutions: tuple[str, ...] = ()


class ShellCommand:
    """A simple command; `operator` is what follows it, also a line end."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.operator = "\n"

    @property
    def values(self) -> list[str]:
        """The words without quotes."""
        return [word.value for word in self.words]


class BrokenContinuation(NamedTuple):
    """A backslash that does not continue the command; `why` is blanks, blank line or comment."""

    line: int
    column: int
    why: str
    blanks: str = ""


class Script:
    """The commands of a script, and its broken line continuations.

    `tokens` are its words and operators in order, without redirections; `inputs` are line and
    column of each `<`.
    """

    def __init__(self) -> None:
        self.commands = [ShellCommand()]
        self.breaks: list[BrokenContinuation] = []
        self.tokens: list[Token] = []
        self.inputs: list[tuple[int, int]] = []


def split(text: str) -> Script:
    """Return the commands of a script. Never fails, whatever the text is."""
    return _Splitter(text).split()


class _Splitter:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.line = 1
        self.line_start = 0
        self.lines = text.split("\n")
        self.script = Script()
        self.delimiters: list[str] = []  # of here-documents that begin after this line
        self.redirection = ""  # the redirection operator whose target is the next word
        self.substitutions: list[str] = []  # of the word that is being read

    def split(self) -> Script:
        while self.pos < len(self.text):
            self._step()
        return self.script

    def _step(self) -> None:
        text, at = self.text, self.pos
        char = text[at]
        if char in " \t\r":
            self.pos += 1
        elif char == "\n":
            self._newline()
        elif char == "#":
            self.pos = self._find("\n")
        elif char == "\\" and self._is_continued():
            pass
        elif (match := _REDIRECTION.match(text, at)) is not None:
            self.redirection = match.group().lstrip("0123456789")
            if match.group() == "<":
                self.script.inputs.append((self.line, at - self.line_start + 1))
            self.pos = match.end()
        elif operator := next((o for o in _OPERATORS if text.startswith(o, at)), ""):
            self.pos += len(operator)
            self._end(operator)
        else:
            self._word()

    def _newline(self) -> None:
        self.pos += 1
        self._next_line()
        for delimiter in self.delimiters:
            self._skip_document(delimiter)
        self.delimiters.clear()
        self._end("\n")

    def _next_line(self) -> None:
        self.line += 1
        self.line_start = self.pos

    def _find(self, text: str) -> int:
        """Return the position of the next `text`, else the end of the script."""
        position = self.text.find(text, self.pos)
        return len(self.text) if position < 0 else position

    def _end(self, operator: str) -> None:
        self.redirection = ""
        self.script.tokens.append(operator)
        last = self.script.commands[-1]
        if last.words:
            last.operator = operator
            self.script.commands.append(ShellCommand())

    def _skip_document(self, delimiter: str) -> None:
        while self.pos < len(self.text):
            end = self._find("\n")
            line = self.text[self.pos : end]
            self.pos = min(end + 1, len(self.text))
            self._next_line()
            if line.strip("\t ") == delimiter:
                return

    # -- continued lines ---------------------------------------------------------------------------

    def _is_continued(self) -> bool:
        """Skip a backslash at the end of a line; record it if it does not continue the command."""
        if self.text.startswith("\\\n", self.pos):
            self._check_next_line()
            self.pos += 2
            self._next_line()
            return True
        match = _BLANKS_AT_END.match(self.text, self.pos)
        if match is None or match.end() == len(self.text):
            return False
        self._break("blanks", match.group()[1:])
        self.pos = match.end()
        return True

    def _check_next_line(self) -> None:
        following = [s.strip() for s in self.lines[self.line : self.line + _LOOKAHEAD]]
        is_broken = not following[0] or following[0].startswith("#")
        next_index = next((n for n, s in enumerate(following) if s and s[0] != "#"), None)
        words = self.script.commands[-1].words
        if not is_broken or next_index is None or not words:
            return
        first, following_line = self.lines[words[0].line - 1], self.lines[self.line + next_index]
        deeper = _indent(following_line) > _indent(first)
        only_settings = all(re.match(r"[A-Za-z_]\w*=", word.raw) for word in words)
        if following[next_index].startswith("-") or only_settings or deeper:
            self._break("comment" if following[0] else "blank line")

    def _break(self, why: str, blanks: str = "") -> None:
        column = self.pos - self.line_start + 1
        self.script.breaks.append(BrokenContinuation(self.line, column, why, blanks))

    # -- words -------------------------------------------------------------------------------------

    def _word(self) -> None:
        start, line, column = self.pos, self.line, self.pos - self.line_start + 1
        value, expands, self.substitutions = [], False, []
        while self.pos < len(self.text) and not self._ends_word(start):
            part, more = self._part()
            value.append(part)
            expands = expands or more
        raw, substitutions = self.text[start : self.pos], tuple(self.substitutions)
        word = Word(raw, "".join(value), expands, line, column, substitutions)
        if self.redirection.startswith("<<") and self.redirection != "<<<":
            self.delimiters.append(word.value)
        elif not self.redirection:
            self.script.commands[-1].words.append(word)
            self.script.tokens.append(word)
        self.redirection = ""

    def _ends_word(self, start: int) -> bool:
        char = self.text[self.pos]
        if char == "\\":
            return self.pos > start and _BLANKS_AT_END.match(self.text, self.pos) is not None
        return char in " \t\r\n|&;()<>"

    def _part(self) -> tuple[str, bool]:
        """Return the next part of a word without quotes, and whether bash expands it."""
        char = self.text[self.pos]
        if char == "'" or self.text.startswith("$'", self.pos):
            self.pos += 1 if char == "'" else 2
            return self._until("'"), False
        if char == '"':
            self.pos += 1
            return self._double()
        if char in "$`":
            return self._expansion(), True
        if char == "\\":
            following = self.text[self.pos + 1 : self.pos + 2]
            self._advance(2)
            return ("" if following == "\n" else following), False
        self.pos += 1
        return char, False

    def _until(self, end: str) -> str:
        inside = self.text[self.pos : self._find(end)]
        self._advance(len(inside) + 1)
        return inside

    def _double(self) -> tuple[str, bool]:
        value, expands = [], False
        while self.pos < len(self.text) and self.text[self.pos] != '"':
            char = self.text[self.pos]
            if char in "$`":
                value.append(self._expansion())
                expands = True
            elif char == "\\":
                following = self.text[self.pos + 1 : self.pos + 2]
                value.append(following if following in '"\\$`' else "\\" + following)
                self._advance(2)
            else:
                value.append(char)
                self._advance(1)
        self.pos += 1
        return "".join(value), expands

    def _expansion(self) -> str:
        """Skip `$name`, `${...}`, `$(...)` or a backtick command, and return its raw text."""
        start = self.pos
        self.pos += 1
        opening = "`" if self.text[start] == "`" else self.text[self.pos : self.pos + 1]
        if opening == "`":
            self.substitutions.append(self._until("`"))
        elif opening in ("(", "{"):
            self._balanced(opening)
            inside = self.text[start + 2 : self.pos - 1]
            if opening == "(" and not inside.startswith("("):
                self.substitutions.append(inside)
        return self.text[start : self.pos]

    def _balanced(self, opening: str) -> None:
        closing, depth = _CLOSES[opening], 0
        while self.pos < len(self.text):
            char = self.text[self.pos]
            self._advance(2 if char == "\\" else 1)
            if char == "'" and opening == "(":
                self._until("'")
            depth += (char == opening) - (char == closing)
            if depth == 0:
                return

    def _advance(self, count: int) -> None:
        """Move forward inside a word, which may contain line ends."""
        for _ in range(min(count, len(self.text) - self.pos)):
            self.pos += 1
            if self.text[self.pos - 1] == "\n":
                self._next_line()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
