"""Parses one override of Hydra, such as `trainer.lr=1`, `+a=[b,c]`, `~x` or `model@net=large`.

Source: hydra/grammar/OverrideLexer.g4 and OverrideParser.g4 of hydra-core 1.3.8.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CHANGE, ADD, FORCE, DELETE = "", "+", "++", "~"
# Forms of a value. COMPOUND: a list, a mapping, or what a function such as `int()` makes.
TEXT, NUMBER, NULL, COMPOUND, SWEEP = "text", "number", "null", "compound", "sweep"

_INT = r"(?:0|[1-9](?:_?[0-9])*)"
_DIGITS = r"[0-9](?:_?[0-9])*"
_POINT = rf"(?:{_INT}\.{_DIGITS}|\.{_DIGITS}|{_INT}\.)"
_SPECIAL = r"[A-Za-z_$][A-Za-z0-9_$-]*"
_ID = r"[A-Za-z_][A-Za-z0-9_-]*"
_PART = rf"(?:{_SPECIAL}|{_INT})"
_KEY = re.compile(
    rf"(?P<name>{_ID}(?:/{_ID})+|{_PART}(?:\.{_PART})+|{_SPECIAL}|)"
    rf"(?:@(?P<package>{_PART}(?:\.{_PART})+|{_SPECIAL}|))?"
)
# In the order of the lexer: of tokens of equal length the first one counts.
_TOKENS = tuple(
    (kind, re.compile(pattern, re.DOTALL))
    for kind, pattern in (
        ("(", r"[ \t]*\([ \t]*"), (",", r"[ \t]*,[ \t]*"), (")", r"[ \t]*\)"),
        ("[", r"\[[ \t]*"), ("]", r"[ \t]*\]"), ("{", r"\{[ \t]*"), ("}", r"[ \t]*\}"),
        (":", r"[ \t]*:[ \t]*"), ("=", r"[ \t]*=[ \t]*"),
        ("number", rf"[+-]?(?:(?:{_POINT}|{_INT})[eE][+-]?{_DIGITS}|{_POINT}|(?i:inf|nan))"),
        ("number", rf"[+-]?{_INT}"), ("bool", r"(?i:true|false)"), ("null", r"(?i:null)"),
        ("char", r"[/\-\\+.$%*@?|]"), ("id", _ID), ("escape", r"(?:\\[\\()\[\]{}:=, \t])+"),
        ("space", r"[ \t]+"),
        ("quoted", r"""(["'])(?:(?:\\\\)*|.*?[^\\](?:\\\\)*)\1"""),
        ("interpolation", r"\$\{[^}]+\}"),
    )
)  # fmt: skip
_PLAIN = frozenset({"id", "null", "number", "bool", "char", "escape", "space"})
_UNQUOTED = _PLAIN | {":", "interpolation"}
_SWEEP_FUNCTIONS = frozenset({"choice", "range", "interval", "glob"})
_MAX_DEPTH = 50


class SyntaxProblem(Exception):  # noqa: N818 - raised and caught by the reader of one word
    """An override that Hydra does not parse; the text says what is wrong."""


class Override(NamedTuple):
    """An override: its sign, the key or group, and the form of its value.

    `text`: the value of form TEXT; `choices`: the elements of a sweep that are plain text.
    `is_literal`: the text has no interpolation. NUMBER is a truth value too.
    """

    word: str
    sign: str
    key: str
    package: str | None = None
    form: str = TEXT
    text: str = ""
    is_literal: bool = True
    choices: tuple[str, ...] = ()
    has_comma: bool = False  # a sweep of elements separated by commas

    @property
    def key_with_package(self) -> str:
        """The key as in a defaults list: `group@package`."""
        return self.key if self.package is None else f"{self.key}@{self.package}"


def parse(word: str) -> Override:
    """Return the override of a word; raise SyntaxProblem where Hydra refuses it."""
    sign = next(s for s in (FORCE, ADD, DELETE, CHANGE) if word.startswith(s))
    match = _KEY.match(word, len(sign))
    assert match is not None  # noqa: S101 - the empty key matches everywhere
    end, name, package = match.end(), match["name"], match["package"]
    if end == len(word) and sign == DELETE:
        return Override(word, sign, name, package, NULL)
    if end == len(word):
        raise SyntaxProblem("has no `=`")
    if word[end] != "=":
        raise SyntaxProblem(f"has `{word[end]}` in its key")
    start = end + 1
    while word[start : start + 1] in (" ", "\t"):
        start += 1
    value = _Value(_tokens(word, start))
    return value.parse(Override(word, sign, name, package))


def _tokens(word: str, start: int) -> list[tuple[str, str]]:
    """Return the (kind, text) of the tokens of a value: at each place the longest one."""
    tokens: list[tuple[str, str]] = []
    while start < len(word):
        best: tuple[str, str] | None = None
        for kind, pattern in _TOKENS:
            match = pattern.match(word, start)
            if match is not None and match[0] and (best is None or len(match[0]) > len(best[1])):
                best = kind, match[0]
        if best is None:
            raise SyntaxProblem(f"has an unquoted `{word[start]}`")
        tokens.append(best)
        start += len(best[1])
    return tokens


class _Value:
    """A recursive descent over the tokens of one value."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.index = 0

    @property
    def kind(self) -> str:
        """The kind of the next token; an empty text at the end."""
        return self.tokens[self.index][0] if self.index < len(self.tokens) else ""

    def parse(self, override: Override) -> Override:
        """Return the override with its value."""
        if not self.tokens:
            return override
        elements = [self.element(_MAX_DEPTH)]
        while self.kind == ",":
            self.index += 1
            elements.append(self.element(_MAX_DEPTH))
        if self.kind:
            raise SyntaxProblem(f"has an unquoted `{self.tokens[self.index][1].strip()}`")
        if len(elements) == 1:
            form, text, is_literal = elements[0]
            return override._replace(form=form, text=text, is_literal=is_literal)
        choices = tuple(text for form, text, is_literal in elements if form == TEXT and is_literal)
        return override._replace(form=SWEEP, choices=choices, has_comma=True)

    def expect(self, kind: str) -> None:
        """Consume a token, or raise SyntaxProblem."""
        if self.kind != kind:
            raise SyntaxProblem(f"lacks a `{kind}`")
        self.index += 1

    def element(self, depth: int) -> tuple[str, str, bool]:
        """Return (form, text, is_literal) of one element."""
        if not depth:
            raise SyntaxProblem("is nested too deeply")
        kind = self.kind
        if kind == "[":
            self.sequence("[", "]", depth, has_keys=False)
            return COMPOUND, "", False
        if kind == "{":
            self.sequence("{", "}", depth, has_keys=True)
            return COMPOUND, "", False
        following = self.tokens[self.index + 1][0] if self.index + 1 < len(self.tokens) else ""
        if kind == "id" and following == "(":
            return self.function(depth)
        if kind == "quoted":
            self.index += 1
            text = self.tokens[self.index - 1][1]
            return TEXT, _unquote(text), "${" not in text
        return self.primitive()

    def sequence(self, start: str, end: str, depth: int, *, has_keys: bool) -> None:
        """Consume a list or a mapping."""
        self.expect(start)
        if self.kind == end:
            self.index += 1
            return
        while True:
            if has_keys:
                self.run_of(_PLAIN)
                self.expect(":")
            self.element(depth - 1)
            if self.kind != ",":
                break
            self.index += 1
        self.expect(end)

    def function(self, depth: int) -> tuple[str, str, bool]:
        """Consume a call such as `choice(1,2)`."""
        name = self.tokens[self.index][1]
        self.index += 2
        if self.kind != ")":
            while True:
                following = self.tokens[self.index + 1 : self.index + 2]
                if self.kind == "id" and following and following[0][0] == "=":
                    self.index += 2
                self.element(depth - 1)
                if self.kind != ",":
                    break
                self.index += 1
        self.expect(")")
        return SWEEP if name in _SWEEP_FUNCTIONS else COMPOUND, "", False

    def run_of(self, kinds: frozenset[str]) -> list[tuple[str, str]]:
        """Consume one or more tokens of these kinds."""
        first = self.index
        while self.kind in kinds:
            self.index += 1
        if first == self.index:
            what = self.tokens[first][1].strip() if self.kind else ""
            raise SyntaxProblem(f"has an unquoted `{what}`" if what else "ends too early")
        return self.tokens[first : self.index]

    def primitive(self) -> tuple[str, str, bool]:
        """Return (form, text, is_literal) of an unquoted text, number or interpolation."""
        tokens = self.run_of(_UNQUOTED)
        spaced = [token for token in tokens if token[0] != "space"]
        if len(spaced) == 1 and spaced[0][0] == "null":
            return NULL, "", False
        if len(spaced) == 1 and spaced[0][0] in ("number", "bool"):
            return NUMBER, "", True
        has_interpolation = any(kind == "interpolation" for kind, _ in tokens)
        first = int(tokens[0][0] == "space")
        last = len(tokens) - int(tokens[-1][0] == "space")
        text = "".join(
            re.sub(r"\\(.)", r"\1", t) if k == "escape" else t for k, t in tokens[first:last]
        )
        return TEXT, text, not has_interpolation


def _unquote(text: str) -> str:
    """Return the content of a quoted text."""
    quote, content = text[0], text[1:-1]
    return re.sub(rf"(\\+)(?={quote}|$)", lambda match: match[1][: len(match[1]) // 2], content)
