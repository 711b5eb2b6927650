"""`[ ... ]` and `[[ ... ]]`. What only the disk can answer is Unresolved."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.findings import Stop, Unresolved, UnresolvedFile, combined
from safelaunch.importer.syntax import literal_words
from safelaunch.importer.variables.marks import has_mark, is_whole
from safelaunch.importer.words import expansion, patterns
from safelaunch.importer.words.regular_expressions import RegularExpression

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda x, y: x == y, "-ne": lambda x, y: x != y, "-lt": lambda x, y: x < y,
    "-le": lambda x, y: x <= y, "-gt": lambda x, y: x > y, "-ge": lambda x, y: x >= y,
}  # fmt: skip
_OF_LENGTH = ("-z", "-n")
_BINARY = ("=", "==", "!=", "<", ">", "=~", "-nt", "-ot", "-ef", *_NUMBERS)


class TestWithoutFiles(NamedTuple):
    """What tests say while the files that they ask for are absent, and the paths of these."""

    result: bool
    paths: tuple[str, ...]


def test_without_files(statement: SyntaxNode, state: State) -> TestWithoutFiles | None:
    """Return what a test, or several joined by `&&` and `||`, says without files, as they are here.

    None where it is no such test, or where they are there.
    """
    inner = state.fork()
    inner.is_condition = inner.is_without_files = True
    inner.absent_paths = []
    result = _result_without_files(statement, inner)
    return None if result is None else TestWithoutFiles(result, tuple(inner.absent_paths))


def _result_without_files(statement: SyntaxNode, inner: State) -> bool | None:
    command = statement.child("Cmd")
    if command is None or statement.has("Negated") or statement.children("Redirs"):
        return None
    left, right = command.child("X"), command.child("Y")
    if command.kind == "BinaryCmd" and command.text("Op") in ("&&", "||") and left and right:
        result = _result_without_files(left, inner)
        goes_on = result is not None and result == (command.text("Op") == "&&")
        return _result_without_files(right, inner) if goes_on else result
    words = command.children("Args") if command.kind == "CallExpr" else []
    try:
        if command.kind == "TestClause" and (condition := command.child("X")) is not None:
            return double_brackets(condition, inner)
        if literal_words(command)[:1] != ["["]:
            return None
        items = [item for word in words for item in expansion.fields(word, inner)]
        return test(items[1:-1], inner)
    except (Unresolved, Stop):
        return None


def test(items: list[str], state: State) -> bool:
    """Return what `[` says of these words. Raises Unresolved."""
    if not items:
        return False
    unary = re.fullmatch(r"-[a-zA-Z]|!", items[0])
    if len(items) == 2 and not unary:  # noqa: PLR2004 - `[ = x ]`: bash says "unary operator expected"
        return False
    result, rest = _either(items, state)
    if rest:
        raise state.fail("a condition in `[` that is not followed")
    return result


def of_caller(items: Sequence[str | Unresolved], state: State) -> bool | None:
    """Return what `[ -z "$1" ]` and its like say of a variable of the job, which is then not empty.

    None for what depends on its value.
    """
    own = state.job_variables
    words = [item for item in items if item != "]"]
    contents = [
        item.content for item in words if isinstance(item, Unresolved) and item.is_caller_value
    ]
    text = contents[0] if len(contents) == 1 else None
    if own is None or not isinstance(text, str) or not has_mark(text) or not is_whole(text):
        return None
    shape = [item if isinstance(item, str) else "X" for item in words]
    is_negated = shape[:1] == ["!"]
    shape = shape[is_negated:]
    if shape in (["X"], ["-n", "X"], ["X", "!=", ""], ["", "!=", "X"]):
        result = True
    elif shape in (["-z", "X"], ["X", "=", ""], ["X", "==", ""], ["", "=", "X"], ["", "==", "X"]):
        result = False
    else:
        return None
    own.need(text, "nonempty")
    return result != is_negated


def _either(items: list[str], state: State) -> tuple[bool, list[str]]:
    result, rest = _both(items, state)
    while rest[:1] == ["-o"]:
        other, rest = _both(rest[1:], state)
        result = result or other
    return result, rest


def _both(items: list[str], state: State) -> tuple[bool, list[str]]:
    result, rest = _primary(items, state)
    while rest[:1] == ["-a"]:
        other, rest = _primary(rest[1:], state)
        result = result and other
    return result, rest


def _primary(items: list[str], state: State) -> tuple[bool, list[str]]:
    if len(items) > 2 and items[1] in _BINARY:  # noqa: PLR2004 - two operands
        return _compare(items[1], items[0], items[2], state), items[3:]
    if items and items[0] == "!" and len(items) > 1:
        result, rest = _primary(items[1:], state)
        return not result, rest
    if items and items[0] == "(":
        raise state.fail("a condition in `[` with parentheses")
    if len(items) > 1 and re.fullmatch(r"-[a-zA-Z]", items[0]) and items[0] not in ("-a", "-o"):
        return _unary(items[0], items[1], state), items[2:]
    if not items:
        raise state.fail("a condition in `[` that is not complete")
    return bool(items[0]), items[1:]


def _unary(operator: str, operand: str, state: State) -> bool:
    if operator in _OF_LENGTH:
        return bool(operand) == (operator == "-n")
    if operator in ("-d", "-e") and _absolute(operand, state) in state.folders:
        return True
    if operator == "-v" and expansion.is_name(operand):
        return state.default(operand) is not None
    reason = f"`{operator} {operand}`, which depends on the machine"
    if operator in ("-d", "-e", "-f", "-r", "-s", "-x"):
        failure = UnresolvedFile(reason, state.line)
        path = _absolute(operand, state)
        if state.is_without_files and not (os.path.lexists(path) or path in state.files):
            state.absent_paths.append(path)
            return False
        failure.exists = os.path.exists(path) or path in state.files
        raise failure
    raise state.fail(reason)


def _absolute(path: str, state: State) -> str:
    return os.path.normpath(os.path.join(state.where(), path))


def _compare(operator: str, left: str, right: str, state: State) -> bool:
    if operator in ("=", "=="):
        return left == right
    if operator == "!=":
        return left != right
    if operator in _NUMBERS:
        numbers = [
            int(text) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text) else None
            for text in (left, right)
        ]
        if numbers[0] is None or numbers[1] is None:
            raise state.fail(f"`{left} {operator} {right}` compares what is no number")
        return _NUMBERS[operator](numbers[0], numbers[1])
    if operator in ("<", ">") and (left + right).isascii() and (left + right).isdigit():
        return (left < right) == (operator == "<") and left != right  # in each language alike
    raise state.fail(f"`{operator}` in a condition")


def double_brackets(  # noqa: PLR0911 - a return for each kind of node
    node: SyntaxNode, state: State
) -> bool:
    """Return what a node inside of `[[ ]]` says. Raises Unresolved."""
    left, right, operator = node.child("X"), node.child("Y"), node.text("Op")
    state.line = node.line or state.line
    if node.kind == "ParenTest" and left is not None:
        return double_brackets(left, state)
    if node.kind == "UnaryTest" and left is not None:
        if operator == "!":
            return not double_brackets(left, state)
        if operator in _OF_LENGTH:
            return _is_long(operator, left, state)
        return _unary(operator, expansion.text(left, state), state)
    if node.kind == "BinaryTest" and left is not None and right is not None:
        if operator in ("&&", "||"):
            result = double_brackets(left, state)
            return double_brackets(right, state) if result == (operator == "&&") else result
        if operator in ("=", "==", "!="):
            pattern = patterns.ShellPattern(expansion.pattern(right, state), state.budget)
            matches = pattern.matches(expansion.text(left, state))
            return matches == (operator != "!=")
        if operator in _NUMBERS:
            return _NUMBERS[operator](
                expansion.calculate(left, state), expansion.calculate(right, state)
            )
        if operator == "=~":
            return _is_in(expansion.text(left, state), right, state)
        return _compare(operator, expansion.text(left, state), expansion.text(right, state), state)
    return bool(expansion.text(node, state))


def _is_long(operator: str, word: SyntaxNode, state: State) -> bool:
    """Return what `-z` and `-n` inside of `[[ ]]` say. Raises Unresolved."""
    reasons: list[Unresolved] = []
    with state.marking(reasons):
        operand = expansion.text(word, state)
    if not reasons:
        return _unary(operator, operand, state)
    result = of_caller([operator, combined(reasons, operand)], state)
    if result is None:
        raise reasons[0].as_unmarked()
    return result


def _is_in(text: str, right: SyntaxNode, state: State) -> bool:
    """Return what `[[ text =~ expression ]]` says. Raises Unresolved."""
    unresolved = state.fail("`=~` in a condition")
    try:
        expression = RegularExpression(expansion.pattern(right, state), state.budget)
        result = expression.is_in(text)
    except (ValueError, Stop):
        raise unresolved from None
    state.assign("BASH_REMATCH", state.fail("`BASH_REMATCH`"))
    return result
