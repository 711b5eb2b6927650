"""Expansion of `$x` and `${x...}`. Raises Unresolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from safelaunch.importer.budget import LONGEST_VALUE
from safelaunch.importer.findings import UnsetName, combined
from safelaunch.importer.state import CALLER_VALUE, NAME, Variable
from safelaunch.importer.variables.marks import ALL
from safelaunch.importer.words import arithmetic, patterns

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.importer.findings import Unresolved
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
_MOST_DIGITS = 9


def caller_value() -> Variable:
    """Return the variable that stands for the caller's value."""
    return Variable(CALLER_VALUE, is_exported=True)


def is_list(node: SyntaxNode) -> bool:
    """Whether an expansion in double quotes is a field for each element."""
    return node.kind == "ParamExp" and _every(node) == "@" and not node.has("Length")


def _every(node: SyntaxNode) -> str | None:
    """Return `@` or `*` of `$@` or `${a[*]}`, another text for what is no list."""
    index = node.child("Index")
    return node.text("Param") if index is None else index.literal


def joint(node: SyntaxNode, state: State) -> str:
    """Return what stands between the items of a list where they become one text."""
    if _every(node) != "*":
        return " "
    separators = state.text("IFS")
    return " " if separators is None else separators[:1]


def expand(
    node: SyntaxNode, state: State, reader: Callable[[State], WordReader], *, quoted: bool
) -> Value:
    """Return the value of an expansion; a list has a field for each item."""
    value = _expand(node, state, reader(state))
    if isinstance(value, list) and quoted and _every(node) == "*":
        return joint(node, state).join(value)
    return value


def _expand(node: SyntaxNode, state: State, words: WordReader) -> Value:
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
            return [str(key) for key in _in_order(_array(state, name), state)]
        name = state.text(name) or ""
        index = None
        if not NAME.fullmatch(name):
            raise state.fail("an expansion by the name in another variable")
    if index is not None and index.literal in ("@", "*"):
        return _list(node, _array(state, name), state, words)
    values = _special(name, state) if index is None else _element(name, index, state, words)
    if isinstance(values, list):
        return _list(node, dict(enumerate(values, 1)), state, words)
    return _edited(node, _need(values, name, state), state, words)


def _list(node: SyntaxNode, items: Array, state: State, words: WordReader) -> Value:
    """Return what becomes of `$@` or all elements of an array, by their index."""
    if node.has("Length"):
        return str(len(items))
    items = _in_order(items, state)
    if node.child("Slice") is not None:
        starts = int(node.child("Index") is None)
        return _slice_of_list(node, items, state, words, starts=starts)
    return [_edited(node, value, state, words) for value in items.values()]


def _in_order(items: Array, state: State) -> Array:
    """Return an array whose order is known. Raises Unresolved for a map of several keys."""
    if len(items) > 1 and any(isinstance(key, str) for key in items):
        raise state.fail("the order of an associative array, which differs between bashes")
    return items


def _element(name: str, index: SyntaxNode, state: State, words: WordReader) -> str | None:
    """Return an element of an array; None where it is not set."""
    array = _array(state, name)
    if name in state.maps or any(isinstance(key, str) for key in array):
        return array.get(words.text(index))
    at = arithmetic.evaluate(index, state, words.text)
    if at < 0:
        at += 1 + max((key for key in array if isinstance(key, int)), default=-1)
    return array.get(at)


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


def _special(  # noqa: C901, PLR0911, PLR0912 - a case for each special parameter
    name: str, state: State
) -> str | list[str]:
    if name == "0":
        return state.script
    if len(name) > _MOST_DIGITS and name.isdigit():
        raise state.fail("an argument of the script with a number that is too large")
    if name in ("@", "*", "#") or name.isdigit():
        if state.arguments_unresolved is not None:  # any of them may be the one
            raise state.arguments_unresolved.as_unmarked()
        own = state.job_variables if not state.has_all_arguments else None
        if name == "#":
            if own is not None:
                own.is_count_read = True
                return str(max(own.count + state.shift, len(state.arguments)))
            return str(len(state.arguments))
        if not name.isdigit():
            if own is not None and own.has_arguments:  # whoever may take them as they are does
                raise state.fail("all arguments of the script", ALL if ALL in own.names else None)
            marked = state.marked_argument()
            if marked is not None:
                raise marked.as_unmarked()
            return list(state.arguments)
        variable = state.argument(int(name))
        if variable is not None:
            raise variable
        if int(name) > len(state.arguments) and state.is_condition:
            return ""
        is_optional = int(name) in state.optional_arguments and "nounset" not in state.options
        if int(name) > len(state.arguments) and is_optional and not state.has_all_arguments:
            state.assumptions.setdefault(f"${int(name) - state.shift}", state.line)
            return ""
        if int(name) > len(state.arguments) and state.has_all_arguments:
            if "nounset" in state.options:
                raise state.fail(f"argument {name}, without which `set -u` ends the script")
            return ""
        if int(name) > len(state.arguments):
            number = int(name) - state.shift
            raise state.fail(f"argument {number} of the script", f"${number}")
        return state.arguments[int(name) - 1]
    if name == "?":
        if state.status is None:
            raise state.fail("the exit code of a command")
        return str(state.status)
    if not NAME.fullmatch(name):
        raise state.fail(f"`${name}` is known only while it runs", differs=name == "$")
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
        if is_absent:
            return [] if is_list(node) and not value else ""
        return Alternative(word) if word else ""
    if not is_absent:
        return value if value is not None else ""
    if kind == "?":
        state.assumptions.pop(name, None)
        own: str | None = name
        if name.isdigit():
            own = None if state.has_all_arguments else f"${int(name) - state.shift}"
        reason = f"`{own or name}` is not set, without which the script ends"
        why = UnsetName(reason, state.line, own)
        why.is_caller_value = value is None and name not in state.variables
        raise why  # it ends also where it is a word of `:`
    if kind == "=":
        if not NAME.fullmatch(name):
            raise state.fail("an assignment to a parameter")
        reasons: list[Unresolved] = []
        with state.marking(reasons):
            text = words.text(word)
        state.assign(name, combined(reasons, text) if reasons else text)
        return state.text(name) or ""
    return Alternative(word) if word is not None else ""


def _present(
    node: SyntaxNode, name: str, state: State, words: WordReader
) -> str | list[str] | None:
    """Return the value of a parameter that need not be set; None where it is not."""
    if node.has("Excl"):
        raise state.fail("an expansion by the name in another variable")
    if not NAME.fullmatch(name):
        digits = name.isdigit() and len(name) <= _MOST_DIGITS
        if digits and name != "0" and state.arguments_unresolved is None:
            number = int(name)
            variable = state.argument(number)
            if variable is not None:
                raise variable
            return state.arguments[number - 1] if number <= len(state.arguments) else None
        return _special(name, state)
    index = node.child("Index")
    content = state.default(name)
    if index is None:
        return None if content is None else state.text(name)
    if content is None:
        return None
    if index.literal in ("@", "*"):
        return list(_in_order(_array(state, name), state).values())
    return _element(name, index, state, words)


# -- what is done with a value ---------------------------------------------------------------------


def _edited(  # noqa: PLR0911 - a return for each operator
    node: SyntaxNode, value: str, state: State, words: WordReader
) -> str:
    if node.has("Length"):
        return str(len(_ascii(value, state)))
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
        return _trimmed(value, patterns.ShellPattern(words.pattern(word), state.budget), operator)
    if operator in ("^^", ",,", "^", ","):
        _ascii(value, state)
    if word is None and operator in ("^^", ",,"):
        return value.upper() if operator == "^^" else value.lower()
    if word is None and operator in ("^", ","):
        first = value[:1].upper() if operator == "^" else value[:1].lower()
        return first + value[1:]
    raise state.fail(f"`{operator}` in an expansion")


def _ascii(value: str, state: State) -> str:
    """Return a text whose characters are the same in each language. Raises Unresolved."""
    if not value.isascii():
        raise state.fail("characters beyond ASCII, which depend on the language of the caller")
    return value


def _trimmed(value: str, pattern: patterns.ShellPattern, operator: str) -> str:
    if operator[0] == "#":
        end = pattern.longest(value) if operator == "##" else pattern.shortest(value)
        return value if end is None else value[end:]
    start = pattern.at_end(value, longest=operator == "%%")
    return value if start is None else value[:start]


def _replaced(replacement: SyntaxNode, value: str, state: State, words: WordReader) -> str:
    characters, new = words.pattern(replacement.child("Orig")), replacement.child("With")
    text = words.text(new)
    if "&" in text or CALLER_VALUE in value:  # bash 5.2 puts the match there, older ones do not
        raise state.fail("a replacement that differs between versions of bash")
    if not characters:
        raise state.fail("a replacement of nothing")
    first = characters[0]
    if first in (("#", False), ("%", False)) and not replacement.has("All"):
        inner = patterns.ShellPattern(characters[1:], state.budget)
        if first[0] == "#":
            end = inner.longest(value)
            return value if end is None else text + value[end:]
        start = inner.at_end(value, longest=True)
        return value if start is None else value[:start] + text
    pattern = patterns.ShellPattern(characters, state.budget)
    if pattern.matches(""):
        raise state.fail("a replacement of nothing")
    parts, at, size = list[str](), 0, 0
    for begin, end in pattern.finds(value):
        parts += [value[at:begin], text]
        at, size = end, size + begin - at + len(text)
        if size > LONGEST_VALUE:
            raise state.fail(f"a value of more than {LONGEST_VALUE // 1024} KiB")
        if not replacement.has("All"):
            break
    return "".join([*parts, value[at:]])


def _substring(part: SyntaxNode, value: str, state: State, words: WordReader) -> str:
    offset, length = _bounds(part, state, words)
    _ascii(value, state)
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
    node: SyntaxNode, items: Array, state: State, words: WordReader, *, starts: int
) -> list[str]:
    """Return the items of `${@:2}` or `${a[@]:1:2}`, from an index on; `$@` counts from 1."""
    part = node.child("Slice")
    offset, length = _bounds(part, state, words) if part is not None else (0, None)
    if (starts and offset < 1) or offset < 0 or (length is not None and length < 0):
        raise state.fail("a part of a list from its end")
    values = [value for key, value in items.items() if isinstance(key, int) and key >= offset]
    return values if length is None else values[:length]
