"""What a script asks of its caller, as its text says: answers that it reads, arguments."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from safelaunch.importer.findings import Unresolved
from safelaunch.importer.syntax import literal_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.importer.syntax import SyntaxNode

_MOST_ARGUMENTS = 99
_MOST_LINES = 1_000_000
_DEFAULTS = frozenset(("-", ":-", "+", ":+", "=", ":="))
_MOST_VALUES = 8  # of a question
_SAME = frozenset(("=", "==", "!="))
_EQUAL = frozenset(("-eq", "=", "=="))
_APART = frozenset(("FuncDecl", "WhileClause"))  # have arguments of their own, or take them in turn
_CONDITIONS = frozenset(("IfClause", "BinaryCmd"))
_ARITHMETIC = frozenset(("ArithmExp", "ArithmCmd"))  # read variables without a `$`
_EMPTY_TESTS = frozenset(("-z", "-n"))


def names_to_preset(tree: SyntaxNode, answers: Mapping[str, str]) -> set[str]:
    """Return the names that a script reads from its caller: not assigned, or by `X=${X:-y}`."""
    # as `X+=y` does too; what else reads them first is seen where that is followed
    assigned: dict[str, bool] = {}
    for node in tree.walk():
        for item in (*node.children("Assigns"), *node.children("Args")):
            name = item.text("Name")
            if name in answers and (item.has("Value") or item.has("Array")):
                own = item.has("Append") or any(
                    n.kind == "ParamExp" and n.text("Param") == name for n in item.walk()
                )
                assigned[name] = assigned.get(name, True) and own
    return {name for name in answers if assigned.get(name, True)}


def arguments(tree: SyntaxNode, count: int, ending: str = "") -> list[Unresolved]:
    """Return the arguments behind the first `count` that a script needs, each as a question.

    `ending` says what becomes of the script without them. A loop over options needs none.
    """
    skipped = {node.span for node in tree.walk() if node.kind in _APART}
    lines = dict[int, int]()
    for node in tree.walk(skipped):
        if _changes_arguments(literal_words(node)):
            break
        for number in (*_read(node), *range(1, _least_count(node) + 1)):
            lines[number] = min(node.line or _MOST_LINES, lines.get(number, _MOST_LINES))
    values = _compared_values(tree)
    return [
        Unresolved(f"argument {number} of the script{_choice(values, number)}{ending}", line, name)
        for number, line in sorted(lines.items())
        if count < number <= _MOST_ARGUMENTS and (name := f"${number}")
    ]


def optional_arguments(tree: SyntaxNode) -> frozenset[int]:
    """Return the arguments without which a script goes on as its author means it to.

    Of each a variable is made, and all uses of that are behind a test whether it is empty, one that
    may set it, or have a default. An argument before one that is needed is needed too.
    """
    skipped = {node.span for node in tree.walk() if node.kind in _APART}
    nodes = [*tree.walk(skipped)]
    if any(_changes_arguments(literal_words(node)) for node in nodes):
        return frozenset()
    names, values = dict[int, str](), set[tuple[int, int]]()
    for item in (item for node in nodes for item in _assignments(node)):
        word = item.child("Value")
        own = parameter(word)
        if word is not None and own.isdigit() and not item.has("Append"):
            names.setdefault(int(own), item.text("Name"))
            values.add(word.span)
    needed = {number for node in tree.walk(skipped | values) for number in _read(node)}
    optional = {n for n, name in names.items() if n not in needed and _does_without(name, nodes)}
    last = max({*names, *needed} - optional, default=0)
    return frozenset(number for number in optional if number > last)


def optional_names(tree: SyntaxNode) -> frozenset[str]:
    """Return the variables of the caller without which a script goes on: `X=$X`, with a test."""
    nodes = [*tree.walk()]
    own = [
        (item.text("Name"), word.span)
        for node in nodes
        for item in _assignments(node)
        if (word := item.child("Value")) is not None and parameter(word) == item.text("Name")
    ]
    spans = {span for _, span in own}
    others = [*tree.walk(spans)] if spans else []
    return frozenset(name for name, _ in own if _does_without(name, others))


def _does_without(name: str, nodes: Sequence[SyntaxNode]) -> bool:
    """Whether a script gives a variable a value where it is empty, or does not use it then."""
    uses, behind = set[tuple[int, int]](), set[tuple[int, int]]()
    for node in nodes:
        if node.kind == "ParamExp" and node.text("Param") == name:
            expression = node.child("Exp")
            operator = expression.text("Op") if expression is not None else ""
            if operator not in _DEFAULTS:
                uses.add(node.span)
        if node.kind in _ARITHMETIC and any(inner.literal == name for inner in node.walk()):
            uses.add(node.span)
        is_test = node.kind in _CONDITIONS and _tests_if_empty(node, name)
        if is_test and _assigns(node, name):
            return True
        if is_test:
            behind.add(node.span)
    return all(any(start <= at < end for start, end in behind) for at, _ in uses)


def _assigns(node: SyntaxNode, name: str) -> bool:
    return any(item.text("Name") == name for inner in node.walk() for item in _assignments(inner))


def _assignments(node: SyntaxNode) -> list[SyntaxNode]:
    """Return the assignments of a command, also those of `export` and `local`."""
    declared = node.children("Args") if node.kind == "DeclClause" else []
    return [*node.children("Assigns"), *declared]


def _tests_if_empty(node: SyntaxNode, name: str) -> bool:
    """Whether the condition of `if`, or the left side of `&&`, asks whether a variable is empty."""
    for inner in (inner for condition in _condition(node) for inner in condition.walk()):
        words = inner.children("Args")
        for operator, word in pairwise(words):
            if operator.literal in _EMPTY_TESTS and parameter(word) == name:
                return True
        is_test = inner.kind == "UnaryTest" and inner.text("Op") in _EMPTY_TESTS
        if is_test and parameter(inner.child("X")) == name:
            return True
        if any(
            parameter(word) == name and not other.literal and other.literal is not None
            for word, other in _comparisons(inner)
        ):
            return True
    return False


def names_in_condition(tree: SyntaxNode, line: int) -> set[str]:
    """Return the variables in the condition of the innermost branch that a line is in."""
    around = [
        node
        for node in tree.walk()
        if node.kind in _CONDITIONS and node.line <= line <= node.position("End", "Line")
    ]
    inner = min(around, key=lambda node: node.span[1] - node.span[0], default=None)
    conditions = [] if inner is None else _condition(inner)
    return {
        node.text("Param")
        for condition in conditions
        for node in condition.walk()
        if node.kind == "ParamExp"
    }


def _condition(node: SyntaxNode) -> list[SyntaxNode]:
    """Return what decides whether `if`, or the right side of `&&`, goes on."""
    left = node.child("X")
    return node.children("Cond") if node.kind == "IfClause" else [left] if left else []


def _choice(values: Mapping[str, list[str]], number: int) -> str:
    """Return how a question names the values that an argument is compared with."""
    shown = [f"`{value}`" for value in values.get(str(number), ())[:_MOST_VALUES]]
    return f" ({', '.join(shown)})" if shown else ""


def _compared_values(tree: SyntaxNode) -> dict[str, list[str]]:
    """Return the texts that each argument is compared with, also through `X=$1`."""
    names = dict[str, str]()
    values = dict[str, list[str]]()
    for node in tree.walk():
        for item in node.children("Assigns"):
            own = parameter(item.child("Value"))
            if own.isdigit():
                names[item.text("Name")] = own
        for word, other in _comparisons(node):
            name, text = parameter(word), other.literal or ""
            number = name if name.isdigit() else names.get(name)
            if number and re.fullmatch(r"[\w.+/][\w.+/-]*", text):
                values.setdefault(number, [])
                values[number] += [text] if text not in values[number] else []
    return values


def is_argument_list(word: SyntaxNode) -> bool:
    """Whether a word is `"$@"` or its like."""
    return parameter(word) in ("@", "*") and not any(
        node.has("Exp") or node.has("Slice") or node.has("Repl") for node in word.walk()
    )


def parameter(word: SyntaxNode | None) -> str:
    """Return the name in `$x`, `"$x"` or `${x:-y}`; an empty text for other words."""
    parts = word.children("Parts") if word is not None else []
    if len(parts) == 1 and parts[0].kind == "DblQuoted":
        parts = parts[0].children("Parts")
    return parts[0].text("Param") if len(parts) == 1 and parts[0].kind == "ParamExp" else ""


def _comparisons(node: SyntaxNode) -> Iterator[tuple[SyntaxNode, SyntaxNode]]:
    """Yield the two words of `[ x = y ]`, `[[ x == y ]]`, and of each pattern of a `case`."""
    words = node.children("Args")
    for left, operator, right in zip(words, words[1:], words[2:], strict=False):
        if node.kind == "CallExpr" and operator.literal in _SAME:
            yield left, right
    first, second = node.child("X"), node.child("Y")
    is_test = node.kind == "BinaryTest" and node.text("Op") in _SAME
    if is_test and first is not None and second is not None:
        yield first, second
    word = node.child("Word")
    if node.kind == "CaseClause" and word is not None:
        for item in node.children("Items"):
            for pattern in item.children("Patterns"):
                yield word, pattern


def _changes_arguments(words: list[str]) -> bool:
    rest = words[1:] if words[:1] == ["set"] else []
    while rest and re.fullmatch(r"[-+]\w+", rest[0]):
        del rest[: 2 if "o" in rest[0] else 1]  # `-euo pipefail`
    return bool(rest) or words[:1] in (["shift"], ["getopts"])


def _read(node: SyntaxNode) -> Iterator[int]:
    """Yield the argument that a node reads without another value in its place."""
    name, expression = node.text("Param"), node.child("Exp")
    operator = expression.text("Op") if expression is not None else ""
    if node.kind == "ParamExp" and re.fullmatch(r"[1-9]\d?", name) and operator not in _DEFAULTS:
        yield int(name)


def _least_count(node: SyntaxNode) -> int:
    """Return how many arguments `[ $# -ne 2 ]` and its like tell from fewer; 0 for others."""
    if node.kind == "CallExpr" and literal_words(node)[:1] in (["["], ["test"]):
        words = node.children("Args")[1:4]
        left, middle, right = (*words, None, None, None)[:3]
        operator = middle.literal if middle is not None else None
    elif node.kind in ("BinaryTest", "BinaryArithm"):
        left, right, operator = node.child("X"), node.child("Y"), node.text("Op")
    else:
        return 0
    number = right.literal if right is not None else None
    is_count = left is not None and [p.text("Param") for p in left.walk() if p.has("Param")] == [
        "#"
    ]
    if not is_count or number is None or not re.fullmatch(r"\d{1,2}", number):
        return 0
    more = operator in ("-le", "<=", "-gt", ">") or (operator in _EQUAL and number == "0")
    return int(number) + more
