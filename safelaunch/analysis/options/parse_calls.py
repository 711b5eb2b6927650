"""Where a program parses its command line: the one place that is certain, and any other."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import HF, Flags
from safelaunch.analysis.options import argparse_parser, click_command, fire_function
from safelaunch.analysis.python.names import Function, Module, Modules, Scope
from safelaunch.analysis.python.statements import main_guard
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PARSES = argparse_parser.PARSES | {
    "parse_known_args",
    "parse_intermixed_args",
    "parse_args_and_config",
}
_MARKS = (b"parse_args", b"parse_known_args", b"parse_intermixed_args", b"Fire")
# Frameworks with a command line of their own, which is not read here.
_OTHERS = {
    "hydra.main": "Hydra",
    "tyro.cli": "tyro",
    "tyro.extras.subcommand_cli": "tyro",
    "absl.app.run": "absl",
    "absl.flags": "absl",
    "draccus.wrap": "draccus",
    "draccus.parse": "draccus",
    "pyrallis.wrap": "pyrallis",
    "pyrallis.parse": "pyrallis",
    "simple_parsing.parse": "simple_parsing",
    "simple_parsing.ArgumentParser": "simple_parsing",
    "simple_parsing.ArgumentGenerationParser": "simple_parsing",
    "jsonargparse.CLI": "jsonargparse",
    "jsonargparse.auto_cli": "jsonargparse",
    "jsonargparse.ArgumentParser": "jsonargparse",
    "configargparse.ArgumentParser": "configargparse",
    "configargparse.ArgParser": "configargparse",
    "lightning.pytorch.cli.LightningCLI": "LightningCLI",
    "pytorch_lightning.cli.LightningCLI": "LightningCLI",
    "omegaconf.OmegaConf.from_cli": "OmegaConf",
    "typer.Typer": "typer",
    "typer.run": "typer",
    "click.group": "click",
    "docopt.docopt": "docopt",
    "chz.entrypoint": "chz",
    "chz.nested_entrypoint": "chz",
    "trl.TrlParser": "TrlParser",
    "tap.Tap": "tap",
}
_PACKAGES = frozenset(name.partition(".")[0] for name in _OTHERS)
_CHANGED = re.compile(
    rb"\bargv\s*(?:\[[^\]\n]*\]\s*)?\+?=(?!=)|\bargv\.(?:append|extend|insert|pop|remove|clear)"
    rb"|\bdel\s+sys\.argv"
)
_READING = frozenset({"join", "print", "info", "debug", "warning", "log", "write", "len"})
_FROM_FILE = frozenset({"parse_json_file", "parse_yaml_file", "abspath", "endswith"})
_DEPTH = 8


class Site(NamedTuple):
    """A call that parses the command line."""

    module: Module
    call: ast.Call
    command: Function | None = None  # of click


class Sites:
    """The program's files, searched for where it parses."""

    def __init__(self, modules: Modules, script: str, files: Mapping[str, str]) -> None:
        self.modules = modules
        self.script = script
        self.files = files
        self.seen: set[ast.AST] = set()
        self.callers: dict[Function, tuple[Module, ast.Call]] = {}
        self.is_switched = False  # inside a branch that asks sys.argv for a lone file

    def read(self) -> Flags | None:
        """Return the options of the program, or None if it parses nothing."""
        main = self.modules.at(self.script)
        if main is None:
            return None
        packages = {full.partition(".")[0] for full in main.imports.values()}
        for node in [] if packages.isdisjoint(_PACKAGES) else main.nodes:
            other = _OTHERS.get(main.dotted(node)) if isinstance(node, _NAMES) else None
            if other is not None:
                return Flags(other, main.place(node), is_open=True, why=f"{other} is not read")
        site = self.first(main, main.tree.body, _DEPTH)
        others = [other for other in self.all() if site is None or other.call is not site.call]
        if site is None:
            if not others:
                return None
            place = others[0].module.place(others[0].call)
            raise Unclear("it is not certain that the options are read", place)
        if others:
            place = others[0].module.place(others[0].call)
            raise Unclear("there is more than one place that reads options", place)
        flags = self.flags(site)
        given = {id(arg) for _, call in self.callers.values() for arg in call.args}
        for module in {main.path: main, site.module.path: site.module}.values():
            _check_argv(module, flags, given)
        self.check_changes()
        return flags

    def flags(self, site: Site) -> Flags:
        """Return the options of the place that was found."""
        if site.command is not None:
            return click_command.read(site.module, site.command)
        if site.module.dotted(site.call.func) in fire_function.NAMES:
            return fire_function.read(self.modules, site.module, site.call)
        flags = argparse_parser.read(self.modules, site.module, site.call, self.callers)
        if self.is_switched and flags.kind != HF:
            raise Unclear("the script asks `sys.argv` first", site.module.place(site.call))
        return flags

    def first(self, module: Module, body: Iterable[ast.stmt], depth: int) -> Site | None:
        """Return the first place that these statements reach whatever happens."""
        if depth == 0:
            return None
        for statement in body:
            site = self.in_statement(module, statement, depth)
            if site is not None or isinstance(statement, ast.Return | ast.Raise):
                return site
        return None

    def in_statement(self, module: Module, node: ast.stmt, depth: int) -> Site | None:
        """Return the first place that one statement reaches."""
        if isinstance(node, Function | ast.ClassDef):
            return None
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self.imported(module, node, depth)
        if isinstance(node, ast.If):
            return self.in_branch(module, node, depth)
        parts: list[ast.expr] = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
        if isinstance(node, ast.With | ast.AsyncWith):
            parts = [item.context_expr for item in node.items]
        elif isinstance(node, ast.For | ast.AsyncFor):
            parts = [node.iter]
        for part in parts:
            site = self.in_expression(module, part, depth)
            if site is not None:
                return site
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try):
            return self.first(module, node.body, depth)
        return None

    def in_branch(self, module: Module, node: ast.If, depth: int) -> Site | None:
        """Return the place that an `if` reaches either way, or as the program itself."""
        guard = main_guard(node)
        if guard is not None:
            is_main = module.path == self.script
            return self.first(module, node.body if guard is is_main else node.orelse, depth)
        site = self.in_expression(module, node.test, depth)
        if site is None and any(module.dotted(n) == "sys.argv" for n in ast.walk(node.test)):
            site = self.first(module, node.orelse, depth) or self.first(module, node.body, depth)
            self.is_switched = site is not None
        return site

    def in_expression(self, module: Module, node: ast.AST, depth: int) -> Site | None:
        """Return the place that an expression reaches whatever happens."""
        if isinstance(
            node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.DictComp | ast.SetComp
        ):
            return None
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.BoolOp):
            parts = [node.values[0]]
        elif isinstance(node, ast.IfExp):
            parts = [node.test]
        for part in parts:
            site = self.in_expression(module, part, depth)
            if site is not None:
                return site
        return self.in_call(module, node, depth) if isinstance(node, ast.Call) else None

    def in_call(self, module: Module, call: ast.Call, depth: int) -> Site | None:
        """Return the place that a call is, or reaches."""
        found = self.modules.resolve(module, call.func)
        if found is None or not isinstance(found.node, Function):
            return self.site(module, call)
        if click_command.is_command(found.module, found.node):
            return Site(found.module, call, found.node) if not call.args else None
        plain = [d for d in found.node.decorator_list if not _is_record(found.module, d)]
        if plain or found.node in self.seen:
            return None
        self.seen.add(found.node)
        self.callers[found.node] = (module, call)
        return self.first(found.module, found.node.body, depth - 1)

    def imported(
        self, module: Module, node: ast.Import | ast.ImportFrom, depth: int
    ) -> Site | None:
        """Return the place that a module of the project reaches as it is imported."""
        if not self.seen.isdisjoint({node}):
            return None
        self.seen.add(node)
        for target in self.modules.imported(module, node):
            if target.tree not in self.seen:
                self.seen.add(target.tree)
                site = self.first(target, target.tree.body, depth - 1)
                if site is not None:
                    return site
        return None

    def site(self, module: Module, call: ast.Call) -> Site | None:
        """Return a call as a place that parses, if it is one."""
        is_parse = isinstance(call.func, ast.Attribute) and call.func.attr in _PARSES
        return (
            Site(module, call)
            if is_parse or module.dotted(call.func) in fire_function.NAMES
            else None
        )

    def all(self) -> Iterator[Site]:
        """Yield every place in the program's files that could be reached."""
        for path in self.files:
            data = self.modules.trees.data(path) or b""
            if not any(mark in data for mark in _MARKS):
                continue
            module = self.modules.at(path)
            for node in [] if module is None else module.nodes:
                if module is None or not isinstance(node, ast.Call):
                    continue
                site = self.site(module, node)
                found = None if site is None else self.modules.resolve(module, node.func)
                if site is not None and found is None and self.is_live(module, node):
                    yield site

    def is_live(self, module: Module, node: ast.AST) -> bool:
        """Whether a node could run: at the top of a file, or in a function that someone names."""
        inner: ast.AST = node
        scope: Scope = module.scope(node)
        while not isinstance(scope, ast.Module):
            if not self.is_named(module, scope):
                return False
            inner, scope = scope, module.scope(scope)
        return module.path == self.script or not _is_guarded(module, inner)

    def is_named(self, module: Module, function: Function) -> bool:
        """Whether a function is used by any file of the program, as far as names tell."""
        name = function.name
        for path in self.files:
            if name.encode() not in (self.modules.trees.data(path) or b""):
                continue
            other = self.modules.at(path)
            for node in [] if other is None else other.nodes:
                is_so_called = name in (getattr(node, "id", None), getattr(node, "attr", None))
                if other is None or not is_so_called:
                    continue
                is_run = path == self.script or not _is_guarded(other, node)
                if is_run and self.may_mean(other, node, module, function):
                    return True
        return False

    def may_mean(self, other: Module, node: ast.AST, module: Module, function: Function) -> bool:
        """Whether a name in one file may mean a function of another."""
        if module.top(function.name) is not function:
            return True  # a method, or one of several: any attribute of that name may be it
        found = self.modules.resolve(other, node)
        if found is not None:
            return found.node is function
        return isinstance(node, ast.Name) and (other is module or "*" in other.imports)

    def check_changes(self) -> None:
        """Refuse a program that changes sys.argv before it is read."""
        for path in self.files:
            data = self.modules.trees.data(path) or b""
            match = _CHANGED.search(data) if b"argv" in data else None
            module = None if match is None else self.modules.at(path)
            if module is not None and any(_changes(module, node) for node in module.nodes):
                raise Unclear("the program changes `sys.argv`", module.place(module.tree))


_NAMES = (ast.Name, ast.Attribute)


def _is_record(module: Module, decorator: ast.expr) -> bool:
    """Whether a decorator is torch's `record`, which calls the function as it stands."""
    return module.dotted(decorator) == "torch.distributed.elastic.multiprocessing.errors.record"


def _is_guarded(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where its file is the program."""
    below, above = node, module.parents.get(node)
    while above is not None:
        if isinstance(above, ast.If) and main_guard(above) and below in above.body:
            return True
        below, above = above, module.parents.get(above)
    return False


def _changes(module: Module, node: ast.AST) -> bool:
    """Whether a node changes sys.argv."""
    if not isinstance(node, _NAMES) or module.dotted(node) != "sys.argv":
        return False
    above = module.parents[node]
    if isinstance(above, ast.Attribute):
        return above.attr in ("append", "extend", "insert", "pop", "remove", "clear")
    held = above if isinstance(above, ast.Subscript) else node
    return not isinstance(getattr(held, "ctx", None), ast.Load)


def _check_argv(module: Module, flags: Flags, given: set[int]) -> None:
    """Refuse a file that looks into sys.argv itself, but for what is harmless.

    `given`: what the functions on the way are called with.
    """
    is_used = "argv" in module.imports or "sys" in module.imports.values()
    for node in module.nodes if is_used else []:
        if isinstance(node, _NAMES) and module.dotted(node) == "sys.argv":
            above: ast.AST | None = module.parents[node]
            is_name = isinstance(above, ast.Subscript) and module.literal(above.slice) == 0
            if is_name or id(above) in given:
                continue
            if not _is_harmless(module, node, flags):
                raise Unclear("the script reads `sys.argv` itself", module.place(node))


def _is_harmless(module: Module, node: ast.AST, flags: Flags) -> bool:
    above = module.parents.get(node)
    while above is not None and not isinstance(above, ast.stmt):
        if isinstance(above, ast.JoinedStr):
            return True
        if isinstance(above, ast.Call) and node is not above.func:
            name = getattr(above.func, "attr", getattr(above.func, "id", ""))
            if name in _READING or name in _PARSES or (flags.kind == HF and name in _FROM_FILE):
                return True
        above = module.parents.get(above)
    return flags.kind == HF and isinstance(above, ast.If)
