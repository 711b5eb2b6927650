"""The import graph of the package: modules, lazy imports and those for types included."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

from support import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

PACKAGE = REPOSITORY / "safelaunch"
PAGE = REPOSITORY / "docs" / "architecture.md"
START, END = "<!-- imports -->\n", "<!-- /imports -->\n"


def module_name(path: Path) -> str:
    """Return a module's dotted name below the package; "" for the package itself."""
    name = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix("__init__").removesuffix(".")


@cache
def modules() -> dict[str, Path]:
    """Return {dotted name below the package: file}."""
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def folder(module: str) -> str:
    """Return the folder of a module, relative to the package; a module at the top is its own."""
    path = modules()[module].relative_to(PACKAGE)
    return path.stem if len(path.parts) == 1 else path.parent.as_posix()


def imports(module: str) -> Iterator[str]:
    """Yield the modules of the package that a module imports, wherever in it."""
    paths = modules()
    for node in ast.walk(ast.parse(paths[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, _, path = name.partition(".")
            if root == "safelaunch":
                yield path if path in paths else path.rpartition(".")[0]


@cache
def graph() -> dict[str, frozenset[str]]:
    """Return {module: the modules that it imports}."""
    return {module: frozenset(imports(module)) - {module} for module in modules()}


@cache
def folders() -> dict[str, frozenset[str]]:
    """Return {folder: the folders that its modules import from}."""
    edges: dict[str, set[str]] = {}
    for module, others in graph().items():
        edges.setdefault(folder(module), set()).update(map(folder, others))
    return {name: frozenset(others - {name}) for name, others in edges.items()}


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's algorithm), largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                groups.append(group)

    for node in edges:
        if node not in index:
            visit(node)
    return sorted(groups, key=len, reverse=True)


def parts() -> dict[str, set[str]]:
    """Return {package or module at the top: those that it imports from}."""
    edges: dict[str, set[str]] = {}
    for module, others in graph().items():
        top = folder(module).split("/")[0]
        edges.setdefault(top, set()).update(folder(other).split("/")[0] for other in others)
    return {top: others - {top} for top, others in edges.items() if not top.startswith("__")}


def drawing() -> str:
    """Return the parts and their imports as a Mermaid graph, without arrows that others imply."""
    edges = {top: {o for o in others if not o.startswith("__")} for top, others in parts().items()}

    @cache
    def below(top: str) -> frozenset[str]:
        return frozenset(edges[top]).union(*(below(other) for other in edges[top]))

    lines = ["```mermaid", "graph TD"]
    for top in sorted(edges, key=lambda name: (-len(below(name)), name)):
        implied = set().union(*(below(other) for other in edges[top]))
        lines += [f"  {top} --> {other}" for other in sorted(edges[top] - implied)]
    return "\n".join([*lines, "```"])


def page() -> str:
    """Return docs/architecture.md with the picture of the present code."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return f"{head}{START}{drawing()}\n{END}{rest.partition(END)[2]}"


def write() -> None:
    """Draw the picture of docs/architecture.md anew."""
    text = page()
    PAGE.write_text(text, encoding="utf-8")
