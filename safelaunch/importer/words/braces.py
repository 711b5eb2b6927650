"""Braces: `a{b,c}d`, `{1..3}`, by the rules of bash's braces.c. Raises Unresolved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.importer.syntax import SyntaxNode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.importer.state import State

    # an unquoted character, an escape such as `\{`, or a part that braces do not look into
    Token = str | SyntaxNode
    Text = tuple[Token, ...]

_MOST_WORDS = 1000
_DEEPEST = 40
_SPAN = re.compile(r"([+-]?\d{1,18}|[A-Za-z])\.\.([+-]?\d{1,18}|[A-Za-z])(?:\.\.([+-]?\d{1,18}))?")


def expand(word: SyntaxNode, state: State) -> list[SyntaxNode]:
    """Return the words of a word with braces; the word itself if bash expands none."""
    parts = word.children("Parts")
    literal = "".join(part.text("Value") for part in parts if part.kind == "Lit")
    if "{" not in literal or "}" not in literal:
        return [word]
    text = tuple(atom for part in parts for atom in _tokens(part))
    texts = _words(text, state, 0)
    if texts == [text]:
        return [word]
    begins_tilde = all("~" not in item[1:] for item in texts)
    if "$" in text or not begins_tilde:  # `{a,$}HOME` is a variable then
        raise state.fail("braces with a `$` or `~` in them")
    return [_node(item, word) for item in texts]


def _tokens(part: SyntaxNode) -> list[Token]:
    if part.kind != "Lit":
        return [part]
    value = part.text("Value").replace("\\\n", "")
    return list(re.findall(r"\\.|.", value, re.DOTALL))


def _node(text: Text, word: SyntaxNode) -> SyntaxNode:
    parts: list[SyntaxNode] = []
    literal = ""
    for atom in (*text, None):
        if isinstance(atom, str):
            literal += atom
            continue
        if literal:
            parts.append(SyntaxNode({"Type": "Lit", "Value": literal}))
            literal = ""
        if atom is not None:
            parts.append(atom)
    return word.with_field("Parts", parts)


def _words(text: Text, state: State, depth: int) -> list[Text]:
    """Return the words of a text (`brace_expand`)."""
    if depth > _DEEPEST:
        raise state.fail("braces that are nested too deeply")
    words: list[Text] = [()]
    while True:
        begin = _find_open(text, state)
        if begin is None:
            return _product(words, [text], state)
        end = _find(text, begin + 1, "}", state)
        assert end is not None  # noqa: S101 - _find_open has seen it
        inside = text[begin + 1 : end]
        if "," in inside:
            items = [w for item in _items(inside, state) for w in _words(item, state, depth + 1)]
        else:
            items = _sequence(inside, state) or [text[begin : end + 1]]
        words = _product(words, [text[:begin]], state)
        words = _product(words, items, state)
        text = text[end + 1 :]


def _product(left: list[Text], right: list[Text], state: State) -> list[Text]:
    if len(left) * len(right) > _MOST_WORDS:
        raise state.fail(f"braces of more than {_MOST_WORDS} words")
    state.budget.spend(sum(map(len, left)) * len(right) + sum(map(len, right)) * len(left))
    return [x + y for x in left for y in right]


def _find_open(text: Text, state: State) -> int | None:
    """Return where the first `{` stands that has its `}`."""
    at = 0
    while True:
        begin = _find(text, at, "{", state)
        if begin is None or _find(text, begin + 1, "}", state) is not None:
            return begin
        at = begin + 1


def _find(text: Text, at: int, char: str, state: State) -> int | None:
    """Return where a character stands outside of inner braces (`brace_gobbler`).

    A `}` counts only behind a comma or `..`.
    """
    level, counts = 0, char != "}"
    state.budget.spend(len(text) - at + 1)
    for i in range(at, len(text)):
        atom = text[i]
        if atom == char and not level and counts:
            if char == "{" and not i and text[1:2] in ((), ("}",)):
                continue
            return i
        if atom == "{":
            level += 1
        elif atom == "}" and level:
            level -= 1
        elif char == "}" and not level:
            is_span = text[i : i + 2] == (".", ".") and text[i + 2 : i + 3] not in ((), (char,))
            counts = counts or atom == "," or is_span
    return None


def _items(inside: Text, state: State) -> list[Text]:
    """Return what stands between the commas (`expand_amble`)."""
    items: list[Text] = []
    at = 0
    while True:
        end = _find(inside, at, ",", state)
        if end is None:
            return [*items, inside[at:]]
        items.append(inside[at:end])
        at = end + 1


def _sequence(inside: Sequence[Token], state: State) -> list[Text] | None:
    """Return the words of `1..3` or `a..c..2`; None for other texts (`expand_seqterm`)."""
    if not all(isinstance(atom, str) and len(atom) == 1 for atom in inside):
        return None
    text = "".join(str(atom) for atom in inside)
    span = _SPAN.fullmatch(text)
    if span is None:
        if re.search(r"\d{19}", text):
            raise state.fail("braces with a number that is too large")
        return None
    first, last, step = span.groups()
    increment = abs(int(step or 1)) or 1
    if first.isalpha() and last.isalpha():
        codes = _span(ord(first), ord(last), increment)
        letters = [chr(code) for code in codes]
        if not all(map(str.isalpha, letters)):
            raise state.fail("braces of other characters than letters")
        return [(letter,) for letter in letters]
    if first.isalpha() or last.isalpha():
        return None
    numbers = _span(int(first), int(last), increment)
    if len(numbers) > _MOST_WORDS:
        raise state.fail(f"braces of more than {_MOST_WORDS} words")
    padded = any(re.match(r"-?0\d", item) for item in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [tuple(f"{number:0{width}d}" if width else str(number)) for number in numbers]


def _span(first: int, last: int, increment: int) -> range:
    if last >= first:
        return range(first, last + 1, increment)
    return range(first, last - 1, -increment)
