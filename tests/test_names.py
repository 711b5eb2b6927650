"""Names that say nothing, and class names with two meanings, do not come back."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
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
# parts that still have such names
NOT_YET = (
    "checks/environment",
    "checks/hardware",
    "checks/network",
    "checks/project",
    "cli/start",
    "remote",
    "remote/hosts",
    "remote/runs",
    "runs",
    "runtime",
    "runtime/agent",
    "runtime/backends",
    "runtime/facts",
    "runtime/failure",
    "runtime/site",
    "runtime/start",
    "runtime/supervise",
    "start",
)
FILES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parent.as_posix()


def bindings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each variable, parameter, attribute, function and class."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


@pytest.mark.parametrize("folder", sorted({part(path) for path in FILES} - set(NOT_YET)))
def test_names_say_what_a_value_is(folder: str) -> None:
    empty = [
        f"{path.name}:{line} {name}"
        for path in FILES
        if part(path) == folder
        for line, name in bindings(path)
        if name.strip("_").lower() in EMPTY
    ]
    assert empty == []


@pytest.mark.parametrize("folder", NOT_YET)
def test_a_folder_that_is_not_done_has_such_names(folder: str) -> None:
    names = {name.strip("_") for p in FILES if part(p) == folder for _, name in bindings(p)}
    assert names & EMPTY


def test_no_function_has_a_vague_name() -> None:
    vague = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name in VAGUE
    }
    assert vague == set()


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].add(part(path))
    doubles = {name: at for name, at in places.items() if len(at) > 1 and not at & set(NOT_YET)}
    assert doubles == {}
