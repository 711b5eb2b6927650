"""What the packages of training frameworks say of their own command lines.

Run as a program with a folder into which their wheels are unpacked, it rewrites the recorded file,
tests/data/frameworks.json: `PYTHONPATH=tests python -m support.frameworks FOLDER`. Nothing of the
packages is imported.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import DATA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE = DATA / "frameworks.json"
DRIVERS = {"verl": "ray.init|run_ppo", "openrlhf": "ray.init"}


def recorded() -> dict[str, Any]:
    """Return what was recorded, by package."""
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a function or method by its last name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            yield node


def _strings(nodes: Iterable[ast.AST]) -> list[str]:
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return sorted(set(texts))


def _routes(tree: ast.AST) -> list[str]:
    """Return the keys of ms-swift's table of subcommands."""
    named = (n for n in ast.walk(tree) if isinstance(n, ast.AnnAssign))
    (table,) = (n.value for n in named if ast.unparse(n.target) == "ROUTE_MAPPING")
    assert isinstance(table, ast.Dict)
    return _strings(key for key in table.keys if key is not None)


def swift(folder: Path) -> dict[str, Any]:
    """Return the subcommands of ms-swift, and those that torchrun runs."""
    tree = ast.parse((folder / "swift/cli/main.py").read_text(encoding="utf-8"))
    megatron = ast.parse((folder / "swift/cli/_megatron/main.py").read_text(encoding="utf-8"))
    (names,) = (n.elts for n in ast.walk(tree) if isinstance(n, ast.Set))
    loops = (n.iter for n in ast.walk(tree) if isinstance(n, ast.For))
    lists = (loop.elts for loop in loops if isinstance(loop, ast.List))
    return {
        "swift": _routes(tree),
        "distributed": _strings(names),
        "variables": _strings(name for elements in lists for name in elements),
        "megatron": _routes(megatron),
    }


def llamafactory(folder: Path) -> dict[str, Any]:
    """Return the subcommands of LLaMA-Factory, and the variables that it reads."""
    tree = ast.parse((folder / "llamafactory/launcher.py").read_text(encoding="utf-8"))
    compared = (n for n in ast.walk(tree)
                if isinstance(n, ast.Compare) and ast.unparse(n.left) == "command")  # fmt: skip
    reads = (*_calls(tree, "getenv"), *_calls(tree, "is_env_enabled"))
    return {
        "subcommands": _strings(c.comparators[0] for c in compared),
        "variables": _strings(call.args[0] for call in reads),
    }


def trl(folder: Path) -> dict[str, Any]:
    """Return TRL's subcommands that accelerate runs, and the others."""
    commands = folder / "trl/cli/commands"
    trees = [ast.parse(p.read_text(encoding="utf-8")) for p in sorted(commands.glob("*.py"))]
    training = (call.args[0] for tree in trees for call in _calls(tree, "TrainingCommand"))
    names = (keyword.value for tree in trees for call in _calls(tree, "__init__")
             for keyword in call.keywords if keyword.arg == "name")  # fmt: skip
    return {"training": _strings(training), "others": _strings(names)}


def axolotl(folder: Path) -> dict[str, Any]:
    """Return Axolotl's subcommands that take `--launcher`, and the others."""
    tree = ast.parse((folder / "axolotl/cli/main.py").read_text(encoding="utf-8"))
    names_by_kind: dict[str, list[str]] = {"launcher": [], "others": []}
    for node in ast.walk(tree):
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        commands = [c for d in decorators for c in _calls(d, "command")]
        if commands and isinstance(node, ast.FunctionDef):
            own = _strings(commands[0].args)
            name = own[0] if own else node.name.replace("_", "-")
            options = _strings(o for d in decorators for c in _calls(d, "option") for o in c.args)
            names_by_kind["launcher" if "--launcher" in options else "others"].append(name)
    return {key: sorted(names) for key, names in names_by_kind.items()}


def torchtune(folder: Path) -> dict[str, Any]:
    """Return the subcommands of torchtune, and whose flags `tune run` takes but for its own."""
    parsers = (folder / "torchtune/_cli").glob("*.py")
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(parsers)]
    names = (call.args[0] for tree in trees for call in _calls(tree, "add_parser"))
    run = ast.parse((folder / "torchtune/_cli/run.py").read_text(encoding="utf-8"))
    imports = [n for n in ast.walk(run) if isinstance(n, ast.ImportFrom)]
    parser = [n.module for n in imports for a in n.names if a.name == "get_args_parser"]
    is_set = [ast.unparse(n.targets[0]) for n in ast.walk(run) if isinstance(n, ast.Assign)]
    return {
        "subcommands": _strings(names),
        "flags": parser,
        "own": sorted(name for name in is_set if name.startswith("args.")),
    }


def xtuner(folder: Path) -> dict[str, Any]:
    """Return the subcommands of XTuner, and the variables that it reads."""
    tree = ast.parse((folder / "xtuner/entry_point.py").read_text(encoding="utf-8"))
    tables = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    (modes,) = (n.value for n in tables if ast.unparse(n.targets[0]) == "modes")
    assert isinstance(modes, ast.Dict)
    reads = (call for call in _calls(tree, "get") if "environ" in ast.unparse(call.func))
    return {
        "subcommands": _strings(key for key in modes.keys if key is not None),
        "variables": _strings(call.args[0] for call in reads),
    }


def drivers(folder: Path, package: str) -> list[str]:
    """Return the modules of a package that start Ray when they are run."""
    modules = []
    for path in folder.rglob(f"{package}/**/*.py"):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text and re.search(rf"^\s+({DRIVERS[package]})\(", text, re.MULTILINE):
            parts = path.with_suffix("").parts
            modules.append(".".join(parts[len(parts) - parts[::-1].index(package) - 1 :]))
    return sorted(modules)


READERS = {
    "ms-swift": swift, "llamafactory": llamafactory, "trl": trl, "axolotl": axolotl,
    "torchtune": torchtune, "xtuner": xtuner,
}  # fmt: skip


def packages(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each package with its version, its console scripts, and what a reader says."""
    for info in sorted(folder.rglob("*.dist-info")):
        metadata = (info / "METADATA").read_text(encoding="utf-8")
        name, version = (re.findall(rf"^{key}: (.+)$", metadata, re.MULTILINE)[0].strip()
                         for key in ("Name", "Version"))  # fmt: skip
        key = name.lower().replace("_", "-")
        entries, scripts = info / "entry_points.txt", {}
        if entries.exists():
            text = entries.read_text(encoding="utf-8").partition("[console_scripts]")[2]
            lines = re.findall(r"^([\w-]+) = ([\w.]+):\w+$", text.partition("[")[0], re.MULTILINE)
            scripts = dict(lines)
        if key in READERS:
            yield key, {"version": version, "scripts": scripts, **READERS[key](info.parent)}
        elif key in DRIVERS:
            yield key, {"version": version, "drivers": drivers(info.parent, key)}
        elif key == "ray":
            yield key, {"version": version, "scripts": scripts}


if __name__ == "__main__":
    text = json.dumps(dict(packages(Path(sys.argv[1]))), indent=2, sort_keys=True)
    FILE.write_text(text + "\n", encoding="utf-8")
