from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "safelaunch"

# Imports go from a later line to an earlier one, or stay within their own folder. config stands
# above launchers: it asks a launcher what it can run.
LAYERS = (
    ("errors", "__init__"),
    ("model",),
    ("environ", "secret", "given"),
    ("script", "launchers", "transports", "lint", "arithmetic", "source", "runtime"),
    ("gates", "serial", "config", "diagnose"),
    ("notices", "nodes"),
    ("pasted", "plan", "hostfacts", "sync", "ssh", "backends"),
    ("checks", "runs"),
    ("execute", "report"),
    ("remote",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))
MAY_PRINT = {"cli", "runtime"}


def unit(path: Path) -> str:
    """Return the module or folder of the package that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree, leaving out what stands under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from (other, *nodes(other))
            continue
        yield child
        yield from nodes(child)


def imported(path: Path) -> set[str]:
    """Return the modules and folders of the package that a file imports, wherever in it."""
    found = set()
    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: a relative import"
            whole = node.module == "safelaunch"
            modules = (
                [f"safelaunch.{alias.name}" for alias in node.names]
                if whole
                else [str(node.module)]
            )
        else:
            continue
        parts = (module.split(".") for module in modules)
        found |= {p[1] if len(p) > 1 else "__init__" for p in parts if p[0] == "safelaunch"}
    return {"__init__" if module.startswith("__version") else module for module in found}


def calls(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_every_module_has_a_layer() -> None:
    assert {unit(path) for path in FILES} - RANK.keys() == set()


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_go_one_way(path: Path) -> None:
    own = unit(path)
    wrong = {m for m in imported(path) if m != own and RANK[m] >= RANK[own]}
    assert wrong == set()


@pytest.mark.parametrize("path", [p for p in FILES if unit(p) == "runtime"], ids=name)
def test_the_runtime_imports_nothing_of_the_rest(path: Path) -> None:
    assert imported(path) <= {"runtime"}


@pytest.mark.parametrize("path", [p for p in FILES if unit(p) not in MAY_PRINT], ids=name)
def test_only_the_command_line_and_the_runtime_print_or_exit(path: Path) -> None:
    if path.name == "__main__.py":
        return
    talking = {
        call
        for call in calls(path)
        if call in ("print", "exit", "quit", "sys.exit", "os._exit", "click.echo", "input")
        or call.startswith(("sys.stdout.", "sys.stderr."))
    }
    assert talking == set()


@pytest.mark.parametrize("path", [p for p in FILES if unit(p) not in MAY_PRINT], ids=name)
def test_only_the_command_line_reads_the_environment(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    found = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    assert found == set()
