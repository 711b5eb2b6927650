"""Names that say nothing, and class names with two meanings, do not come back."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY
from support.import_graph import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# participles, pronouns and prepositions: what a value is, is what its name has to say
EMPTY = frozenset((
    "told", "said", "known", "found", "wanted", "given", "one", "of", "here", "there", "seen",
    "kept", "made", "begun", "asked", "held", "sought", "gone",
))  # fmt: skip
VAGUE = frozenset(("judge", "begin", "take", "of", "one"))  # of functions
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(path for top in ("tests", "scripts") for path in (REPOSITORY / top).rglob("*.py"))


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parent.as_posix()


@cache
def bindings(path: Path) -> tuple[tuple[int, str], ...]:
    """Return line and name of each variable, parameter, attribute, function and class."""
    return tuple(_bindings(ast.parse(path.read_text(encoding="utf-8"))))


def _bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


@pytest.mark.parametrize("paths", [FILES, TESTS], ids=["package", "tests and scripts"])
def test_names_say_what_a_value_is(paths: list[Path]) -> None:
    empty = [
        f"{path.relative_to(REPOSITORY)}:{line} {name}"
        for path in paths
        for line, name in bindings(path)
        if name.strip("_").lower() in EMPTY
    ]
    assert empty == []


def test_no_function_has_a_vague_name() -> None:
    pattern = re.compile(rf"^\s*(?:async )?def ({'|'.join(VAGUE)})\(", re.MULTILINE)
    texts = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in FILES}
    assert {path: names for path, text in texts.items() if (names := pattern.findall(text))} == {}


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for path in FILES:
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].add(part(path))
    doubles = {name: at for name, at in places.items() if len(at) > 1}
    assert doubles == {}
