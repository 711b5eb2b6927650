"""Each launcher module answers every question of `Launcher`, and nothing else knows its name."""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import pytest
from support import REPOSITORY
from support.import_graph import PACKAGE

from safelaunch import launchers
from safelaunch.launchers import NAMES, Launcher
from safelaunch.launchers.flag_table import FlagTable

if TYPE_CHECKING:
    from collections.abc import Callable

CONSTANTS = get_type_hints(Launcher, vars(launchers) | {"FlagTable": FlagTable})
FUNCTIONS = {name: f for name, f in vars(Launcher).items() if name.islower() and name[0] != "_"}
SITE = ast.parse((PACKAGE / "runtime" / "site" / "sitecustomize.py").read_text(encoding="utf-8"))


def is_of(value: object, kind: Any) -> bool:
    """Whether a value has an annotated type: a class, one of several, a tuple of text, a dict."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    if get_origin(kind) is dict:
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        of_key, of_value = get_args(kind)
        return all(isinstance(k, of_key) and isinstance(v, of_value) for k, v in pairs)
    return isinstance(value, tuple(get_args(kind)) or kind)


def shape(function: Callable[..., object]) -> tuple[list[object], object]:
    """Return the annotations of a function's parameters, less `self`, and of what it returns."""
    signature = inspect.signature(function)
    parameters = [p.annotation for p in signature.parameters.values() if p.name != "self"]
    return parameters, signature.return_annotation


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("question", CONSTANTS)
def test_a_launcher_states(question: str, name: str) -> None:
    assert is_of(getattr(launchers.load(name), question), CONSTANTS[question])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("question", FUNCTIONS)
def test_a_launcher_answers(question: str, name: str) -> None:
    assert shape(getattr(launchers.load(name), question)) == shape(FUNCTIONS[question])


def test_no_two_launchers_have_a_name_on_the_command_line_in_common() -> None:
    names = [p for name in NAMES for p in launchers.load(name).PROGRAMS]
    modules = [m for name in NAMES for m in launchers.load(name).MODULES]
    assert (len(set(names)), len(set(modules))) == (len(names), len(modules))


def test_a_launcher_that_reads_pasted_lines_has_a_module_with_its_flags() -> None:
    tables = [name for name in NAMES if launchers.load(name).FLAGS is not None]
    assert [name for name in tables if not launchers.load(name).MODULES] == []


def constant(name: str) -> tuple[str, ...]:
    """Return a constant of the sitecustomize that runs in each process of a job."""
    values = [node.value for node in SITE.body if isinstance(node, ast.Assign)
             and ast.unparse(node.targets[0]) == name]  # fmt: skip
    value: tuple[str, ...] = ast.literal_eval(values[0])
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_launcher_is_no_rank(name: str) -> None:
    launcher = launchers.load(name)
    programs = {program.split()[0] for program in launcher.PROGRAMS}
    assert programs <= set(constant("LAUNCHERS"))
    drivers = getattr(launcher, "DRIVERS", {})  # the program itself: its failure is the job's
    modules = [m for m in launcher.MODULES if m not in drivers]
    assert [m for m in modules if not m.startswith(constant("LAUNCHER_MODULES"))] == []


def test_no_other_module_compares_a_launcher_with_a_name() -> None:
    """A question for the launcher's module is asked instead, so that a new launcher answers it."""
    names = "|".join(NAMES)
    pattern = re.compile(rf"\blauncher\b.*'({names})'|'({names})'.*\blauncher\b")
    compared = []
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "launchers" not in path.parts and re.search(r"\blauncher\b", text):
            comparisons = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Compare))
            compared += [f"{path}: {c}" for c in map(ast.unparse, comparisons) if pattern.search(c)]
    assert compared == []


def test_the_key_of_the_job_file_lists_every_launcher() -> None:
    text = (REPOSITORY / "docs" / "job-file.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `launcher` \| (.*) \|$", text, re.MULTILINE)
    assert [name for name in NAMES if f"`{name}`" not in row] == []
