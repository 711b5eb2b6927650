from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from support.import_graph import (
    PACKAGE,
    PAGE,
    circles,
    folders,
    graph,
    module_name,
    modules,
    page,
    parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Imports go from a later line to an earlier one, or stay within their own folder.
LAYERS = (
    ("errors", "frozen_dataclass", "__init__"),
    ("model",),
    ("environ", "file_lock", "secrets_in_text", "runtime"),
    ("script", "launchers"),
    ("analysis", "engines"),
    ("hostfacts", "sync", "config"),
    ("diagnose", "lint", "runs"),
    ("plan", "ssh"),
    ("checks", "importer", "start", "report"),
    ("remote",),
    ("api", "cli"),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))
MAY_PRINT = {"cli", "runtime"}
PROGRAMS = {"importer/record/sandbox.py"}  # started as processes of their own, like the runtime
MAY_READ_ENVIRONMENT = {*MAY_PRINT, "api"}
MOST_FILES = 13  # a dozen and the face of the package

# A folder's base modules serve its subfolders, and its entry module runs them.
BOTH_WAYS = {
    (
        "config/schema",
        "config/schema/engines",
    ): "files.py declares the blocks, whose keys are of the types and schemas that all files have",
    (
        "config/schema",
        "config/schema/members",
    ): "files.py declares services, whose keys are of the types and schemas that all files have",
    (
        "config/schema",
        "config/schema/ending",
    ): "files.py declares the keys, whose types and schemas are those of all files",
    ("hostfacts/tools", "hostfacts/tools/nvidia_smi"): "recognise.py asks the readers, which use "
    "cells.py and report.py",
    (
        "importer",
        "importer/variables",
    ): "findings.py has the marks, and state.py the questions in whose place they are",
    ("lint", "lint/shell"): "run.py applies the rules, which make the findings of finding.py",
    ("lint", "lint/env"): "file_variables.py applies the rules, which make findings",
    ("lint", "lint/yaml_files"): "run.py applies the rules, which make the findings of finding.py",
    ("runtime", "runtime/backends"): "run_state.py asks the backend that a record names; "
    "the backends use commands.py and processes.py",
    ("runtime", "runtime/containers"): "run_state.py asks how a container ended; what runs it uses "
    "commands.py and processes.py",
    ("runtime/supervise", "runtime/supervise/attempts"): "supervisor.py starts the attempts, which "
    "use launch.py, journal.py, control.py and node_run.py",
    ("runtime/supervise", "runtime/supervise/ending"): "supervisor.py runs what follows the end, "
    "which uses launch.py, journal.py and control.py",
    ("runtime/facts", "runtime/facts/site_packages"): "questions.py asks the readers, which use "
    "commands.py and interpreter.py",
    ("ssh", "ssh/openssh"): "connection.py selects the transport; errors.py and prompt.py serve "
    "both transports",
    ("ssh", "ssh/keys"): "errors.py and paramiko_patches.py serve keys/, which the login uses",
}


def unit(path: Path) -> str:
    """Return the module or folder of the package that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imported(path: Path) -> set[str]:
    """Return the modules and folders at the top of the package that a file imports."""
    return {unit(modules()[other]) for other in graph()[module_name(path)]}


def test_no_modules_import_each_other_not_even_late_or_for_types() -> None:
    assert circles(graph()) == []


def test_folders_import_one_way() -> None:
    edges = {
        at: {other for other in others if (at, other) not in BOTH_WAYS}
        for at, others in folders().items()
    }
    assert circles(edges) == []


@pytest.mark.parametrize("pair", BOTH_WAYS, ids="<>".join)
def test_an_exception_to_one_way_is_needed(pair: tuple[str, str]) -> None:
    assert pair[1] in folders()[pair[0]]
    assert pair[0] in folders()[pair[1]]


def test_a_folder_holds_about_a_dozen_files() -> None:
    count = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in FILES)
    assert [at for at, files in count.items() if files > MOST_FILES] == []


def test_the_picture_of_the_imports_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "scripts/architecture draws it"


def test_the_page_names_every_part() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [part if (PACKAGE / part).is_dir() else f"{part}.py" for part in parts()]
    assert [n for n in names if f"`{n}/`" not in text and f"`{n}`" not in text] == []


def test_every_module_has_a_layer() -> None:
    assert {unit(path) for path in FILES} - RANK.keys() == set()


def test_imports_go_one_way() -> None:
    later = {
        name(path): wrong
        for path in FILES
        if (wrong := {m for m in imported(path) - {unit(path)} if RANK[m] >= RANK[unit(path)]})
    }
    assert later == {}


def test_the_runtime_imports_nothing_of_the_rest() -> None:
    files = {name(path): imported(path) for path in FILES if unit(path) == "runtime"}
    assert {file: units for file, units in files.items() if not units <= {"runtime"}} == {}


def uses(word: str, kind: type[ast.AST], allowed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield file and expression of each node with a word in it, outside of the allowed parts."""
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        if unit(path) not in allowed and re.search(word, source):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, kind):
                    yield name(path), ast.unparse(node)


def test_only_the_command_line_and_the_runtime_print_or_exit() -> None:
    calls = uses(r"print|exit|quit|echo|input|stdout|stderr", ast.Call, {*MAY_PRINT, "__main__"})
    talking = r"(print|exit|quit|sys\.exit|os\._exit|click\.echo|input|sys\.std(out|err)\..*?)\("
    wrong = [(file, call) for file, call in calls if re.match(talking, call)]
    assert [(file, call) for file, call in wrong if file not in PROGRAMS] == []


def test_only_the_command_line_and_the_api_read_the_environment() -> None:
    attributes = uses("environ|getenv", ast.Attribute, MAY_READ_ENVIRONMENT)
    assert [a for a in attributes if a[1] in ("os.environ", "os.getenv")] == []
