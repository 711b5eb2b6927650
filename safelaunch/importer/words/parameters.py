"""Expansion of `$x` and `${x...}`. Raises Unresolved."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from safelaunch.importer.state import CALLER_VALUE, NAME, Variable
from safelaunch.importer.words import arithmetic, patterns

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.importer.state import Array, State
    from safelaunch.importer.syntax import SyntaxNode
    from safelaunch.importer.words.patterns import Character


class WordReader(Protocol):
    """How the words inside of `${...}` are read."""

    def text(self, word: SyntaxNode | None, /) -> str:
        """Return a word as text."""

    def pattern(self, word: SyntaxNode | None, /) -> list[Character]:
        """Return a word as a pattern."""


class Alternative(NamedTuple):
    """The value is that of this word, as in `${x:-word}`."""

    word: SyntaxNode


Value = str | list[str] | Alternative


def caller_value() -> Variable:
    """Return the variable that stands for the caller's value."""
    return Variable(CALLER_VALUE, is_exported=True)


def is_list(node: SyntaxNode) -> bool:
    """Whether an expansion in double quotes is a field for each element."""
    index = node.child("Index")
    every = node.text("Param") if index is None else index.literal
    return node.kind == "ParamExp" and every == "@" and not node.has("Length")


def expand(  # noqa: C901 - the forms of `${...}` in the order of their precedence
    node: SyntaxNode, state: State, reader: Callable[[State], WordReader], *, quoted: bool
) -> Value:
    """Return the value of an expansion; a list has a field for each item."""
    words = reader(state)
    name = node.text("Param")
    if node.has("NestedParam") or node.has("Width") or node.has("Plus") or node.has("Flags"):
        raise state.fail("an expansion that bash does not have")
    if node.has("Names"):
        raise state.fail("`${!prefix*}` lists variables")
    expression = node.child("Exp")
    operator = expression.text("Op") if expression is not None else ""
    if operator.lstrip(":") in ("-", "=", "+", "?") and expression is not None:
        return _conditional(node, state, words, operator, expression.child("Word"))
    index = node.child("Index")
    if node.has("Excl"):
        if index is not None and index.literal in ("@", "*"):
            return [str(key) for key in _array(state, name)]
        name = state.text(name) or ""
        index = None
        if not NAME.fullmatch(name):
            raise state.fail("an expansion by the name in another variable")
    values = _values(name, index, state, words)
    if isinstance(values, str):
        return _edited(node, values, state, words)
    if node.has("Length"):
        return str(len(values))
    edited = _slice_of_list(node.child("Slice"), values, state, words, starts=int(index is None))
    if edited is None:
        edited = [_edited(node, value, state, words) for value in values]
    every = index.literal if index is not None else name
    if every == "*" and quoted:
        separators = state.text("IFS")
        return (" " if separators is None else separators[:1]).join(edited)
    return edited


def _values(
    name: str, index: SyntaxNode | None, state: State, words: WordReader
) -> str | list[str]:
    if index is None:
        return _special(name, state)
    if index.literal in ("@", "*"):
        return list(_array(state, name).values())
    array = _array(state, name)
    if array and all(isinstance(key, str) for key in array):
        return array.get(words.text(index), "")
    at = arithmetic.evaluate(index, state, words.text)
    if at < 0:
        at += 1 + max((key for key in array if isinstance(key, int)), default=-1)
    return _need(array.get(at), name, state)


def _array(state: State, name: str) -> Array:
    content = state.content(name)
    if isinstance(content, dict):
        if all(isinstance(key, int) for key in content):
            return dict(sorted(content.items(), key=lambda item: int(item[0])))
        return content
    return {0: content} if isinstance(content, str) else {}


def _need(value: str | None, name: str, state: State) -> str:
    if value is None and "nounset" in state.options:
        raise state.fail(f"`{name}` is not set, at which `set -u` ends the script", name)
    return value or ""


def _special(  # noqa: C901, PLR0911 - a case for each special parameter
    name: str, state: State
) -> str | list[str]:
    if name == "0":
        return state.script
    if name in ("@", "*", "#") or name.isdigit():
        if state.arguments_unresolved is not None:
            raise state.arguments_unresolved
        if name == "#":
            return str(len(state.arguments))
        if not name.isdigit():
            return list(state.arguments)
        if int(name) > len(state.arguments) and state.is_condition:
            return ""
        if int(name) > len(state.arguments) and state.has_all_arguments:
            if "nounset" in state.options:
                raise state.fail(f"argument {name}, without which `set -u` ends the script")
            return ""
        if int(name) > len(state.arguments):
            raise state.fail(f"argument {name} of the script", f"${name}")
        return state.arguments[int(name) - 1]
    if name == "?":
        if state.status is None:
            raise state.fail("the exit code of a command")
        return str(state.status)
    if not NAME.fullmatch(name):
        raise state.fail(f"`${name}` is known only while it runs")
    return _need(state.text(name), name, state)


def _conditional(
    node: SyntaxNode, state: State, words: WordReader, operator: str, word: SyntaxNode | None
) -> Value:
    """Return the value of `${x:-word}` and its like."""
    name = node.text("Param")
    value = _present(node, name, state, words)
    joined = " ".join(value) if isinstance(value, list) else value
    is_absent = value is None or value == [] or (operator.startswith(":") and not joined)
    kind = operator[-1]
    if kind == "+":
        return "" if is_absent else (Alternative(word) if word else "")
    if not is_absent:
        return value if value is not None else ""
    if kind == "?":
        raise state.fail(f"`{name}` is not set, without which the script ends", name)
    if kind == "=":
        if not NAME.fullmatch(name):
            raise state.fail("an assignment to a parameter")
        state.assign(name, words.text(word))
        return state.text(name) or ""
    return Alternative(word) if word is not None else ""


def _present(
    node: SyntaxNode, name: str, state: State, words: WordReader
) -> str | list[str] | None:
    """Return the value of a parameter that need not be set; None where it is not."""
    if node.has("Excl"):
        raise state.fail("an expansion by the name in another variable")
    if not NAME.fullmatch(name):
        if name.isdigit() and name != "0" and state.arguments_unresolved is None:
            number = int(name)
            return state.arguments[number - 1] if number <= len(state.arguments) else None
        return _special(name, state)
    index = node.child("Index")
    content = state.default(name)
    if index is None:
        return None if content is None else state.text(name)
    if content is None:
        return None
    return _values(name, index, state, words)


# -- what is done with a value ---------------------------------------------------------------------


def _edited(  # noqa: PLR0911 - a return for each operator
    node: SyntaxNode, value: str, state: State, words: WordReader
) -> str:
    if node.has("Length"):
        return str(len(value))
    part, replacement = node.child("Slice"), node.child("Repl")
    if part is not None:
        return _substring(part, value, state, words)
    if replacement is not None:
        return _replaced(replacement, value, state, words)
    expression = node.child("Exp")
    if expression is None:
        return value
    operator, word = expression.text("Op"), expression.child("Word")
    if CALLER_VALUE in value:
        raise state.fail("a change of the caller's value")
    if operator in ("#", "##", "%", "%%"):
        return _trimmed(value, words.pattern(word), operator)
    if word is None and operator in ("^^", ",,"):
        return value.upper() if operator == "^^" else value.lower()
    if word is None and operator in ("^", ","):
        first = value[:1].upper() if operator == "^" else value[:1].lower()
        return first + value[1:]
    raise state.fail(f"`{operator}` in an expansion")


def _trimmed(value: str, pattern: list[Character], operator: str) -> str:
    expression = patterns.regex(pattern, lazy=operator == "#")
    if operator[0] == "#":
        match = re.match(expression, value)
        if operator == "##":
            ends = range(len(value), -1, -1)
            end = next((n for n in ends if re.fullmatch(expression, value[:n])), None)
            return value[end:] if end is not None else value
        return value[match.end() :] if match else value
    starts = range(len(value) + 1) if operator == "%%" else range(len(value), -1, -1)
    start = next((n for n in starts if re.fullmatch(expression, value[n:])), None)
    return value[:start] if start is not None else value


def _replaced(replacement: SyntaxNode, value: str, state: State, words: WordReader) -> str:
    pattern, new = words.pattern(replacement.child("Orig")), replacement.child("With")
    text = words.text(new)
    if "&" in text or CALLER_VALUE in value:  # bash 5.2 puts the match there, older ones do not
        raise state.fail("a replacement that differs between versions of bash")
    if not pattern:
        raise state.fail("a replacement of nothing")
    first = pattern[0]
    if first in (("#", False), ("%", False)) and not replacement.has("All"):
        inner = patterns.regex(pattern[1:])
        anchored = rf"\A{inner}" if first[0] == "#" else rf"{inner}\Z"
        if first[0] == "%" and any(char == "*" and not quoted for char, quoted in pattern):
            raise state.fail("a pattern at the end of a replacement")
        return re.sub(anchored, lambda _: text, value, count=1)
    expression = patterns.regex(pattern)
    if re.fullmatch(expression, ""):
        raise state.fail("a replacement of nothing")
    return re.sub(expression, lambda _: text, value, count=0 if replacement.has("All") else 1)


def _substring(part: SyntaxNode, value: str, state: State, words: WordReader) -> str:
    offset, length = _bounds(part, state, words)
    start = offset + len(value) if offset < 0 else offset
    if start < 0 or start > len(value):
        return ""
    if length is None:
        return value[start:]
    end = start + length if length >= 0 else len(value) + length
    if end < start:
        raise state.fail("a substring of negative length")
    return value[start:end]


def _bounds(part: SyntaxNode, state: State, words: WordReader) -> tuple[int, int | None]:
    offset, length = part.child("Offset"), part.child("Length")
    return (
        0 if offset is None else arithmetic.evaluate(offset, state, words.text),
        None if length is None else arithmetic.evaluate(length, state, words.text),
    )


def _slice_of_list(
    part: SyntaxNode | None, values: list[str], state: State, words: WordReader, *, starts: int
) -> list[str] | None:
    """Return the items of `${@:2}` or `${a[@]:1:2}`; `$@` counts from 1."""
    if part is None:
        return None
    offset, length = _bounds(part, state, words)
    if (starts and offset < 1) or offset < 0 or (length is not None and length < 0):
        raise state.fail("a part of a list from its end")
    first = offset - starts
    return values[first:] if length is None else values[first : first + length]
