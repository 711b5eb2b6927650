"""Finds the call by which a program parses its command line."""

from __future__ import annotations

import ast
import os
import re
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import HF, HYDRA, ScriptOptions
from safelaunch.analysis.options.parsers import (
    absl_flags,
    argparse_parser,
    click_command,
    fire_function,
    simple_parsing_config,
    typer_app,
    tyro_config,
)
from safelaunch.analysis.options.parsers.draccus import program as draccus_program
from safelaunch.analysis.options.parsers.hydra import program as hydra_program
from safelaunch.analysis.options.parsers.jsonargparse import (
    argument_parser,
    function_cli,
    lightning_cli,
)
from safelaunch.analysis.python import parameters
from safelaunch.analysis.python.names import Function, Module, Modules, Scope
from safelaunch.analysis.python.statements import main_guard
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.analysis.python.trees import SourceLine

_PARSE_METHODS = {
    "parse_known_args", "parse_intermixed_args", "parse_args_and_config",
    *argparse_parser.PARSE_METHODS,
}  # fmt: skip
_MARKS = (
    b"parse_args", b"parse_known_args", b"parse_intermixed_args", b"Fire", b"tyro", b"typer",
    b"LightningCLI", b"simple_parsing", b"absl", b"jsonargparse",
    *(kind.encode() for kind in draccus_program.KINDS),
)  # fmt: skip
# Frameworks with their own command-line parser, which is not supported here.
_OTHER_FRAMEWORKS = {
    "tyro.conf": "tyro.conf", "tyro.extras": "tyro.extras", "absl.flags": "absl",
    "draccus.ArgumentParser": "draccus", "draccus.argparsing.ArgumentParser": "draccus",
    "pyrallis.ArgumentParser": "pyrallis", "pyrallis.argparsing.ArgumentParser": "pyrallis",
    "simple_parsing.ArgumentGenerationParser": "simple_parsing",
    "omegaconf.OmegaConf.from_cli": "OmegaConf",
    "docopt.docopt": "docopt", "chz.entrypoint": "chz",
    "chz.nested_entrypoint": "chz", "tap.Tap": "tap",
}  # fmt: skip
_PACKAGES = frozenset(name.partition(".")[0] for name in _OTHER_FRAMEWORKS)
_ARGV_CHANGE = re.compile(
    rb"\bargv\s*(?:\[[^\]\n]*\]\s*)?\+?=(?!=)|\bargv\.(?:append|extend|insert|pop|remove|clear)"
    rb"|\bdel\s+sys\.argv"
)
_READ_ONLY_CALLS = frozenset({"join", "print", "info", "debug", "warning", "log", "write", "len"})
_FILE_CALLS = frozenset({"parse_json_file", "parse_yaml_file", "abspath", "endswith"})
# functions that parse when called
_COMMANDS = (click_command.is_command, hydra_program.is_main, draccus_program.is_main)
_FUNCTION_READERS = {
    **dict.fromkeys(fire_function.FIRE_CALLS, fire_function.read),
    **dict.fromkeys(tyro_config.CALLS, tyro_config.read),
    **dict.fromkeys(simple_parsing_config.CALLS, simple_parsing_config.read),
}
_METHOD_READERS = (simple_parsing_config, typer_app)
_DEPTH = 8
_NAMES = (ast.Name, ast.Attribute)
_DEFERRED = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.SetComp)


class ParseCall(NamedTuple):
    """A call that parses the command line."""

    module: Module
    call: ast.Call
    command: Function | None = None  # for click and Hydra


class ParseCallFinder:
    """Searches the program's files for calls that parse the command line."""

    def __init__(
        self, modules: Modules, script: str, files: Mapping[str, str], cwd: str | None = None
    ) -> None:
        self.modules = modules
        self.script = script
        self.files = files
        self.cwd = cwd
        self.visited: set[ast.AST] = set()
        self.callers: dict[Function, tuple[Module, ast.Call]] = {}
        self.parser_class: SourceLine | None = None  # where a class calls its own parse method
        # statements that a function's parameters exclude, each with the function
        self.dead: dict[ast.AST, Scope] = {}
        self.checks_argv_first = False  # found in a branch that tests sys.argv for a single file

    def read(self) -> ScriptOptions | None:
        """Return the options of the program, or None if it parses no command line."""
        main = self.modules.load(self.script)
        if main is None:
            return None
        packages = {full.partition(".")[0] for full in main.imports.values()}
        has_run = any(
            isinstance(n, _NAMES) and main.dotted(n) == absl_flags.RUN for n in main.nodes
        )
        for node in [] if packages.isdisjoint(_PACKAGES) else main.nodes:
            other = _OTHER_FRAMEWORKS.get(main.dotted(node)) if isinstance(node, _NAMES) else None
            if other == absl_flags.KIND and has_run:
                continue
            if other is not None:
                why = f"{other} is not supported"
                return ScriptOptions(other, main.location(node), is_incomplete=True, why=why)
        parse_call = self.first_in_block(main, main.tree.body, _DEPTH)
        way = set() if parse_call is None else self.way_to(parse_call)
        self.dead = {node: scope for node, scope in self.dead.items() if scope in way}
        flags = None if parse_call is None else self.options_at(parse_call)
        if parse_call is not None and self.checks_argv_first and flags and flags.kind != HF:
            place = parse_call.module.location(parse_call.call)
            raise Unclear("the script tests `sys.argv` first", place)
        if flags is not None and flags.kind == HYDRA:
            self.check_argv_unchanged()
            return flags  # it refuses its overrides whatever is parsed later
        self.check_single(parse_call)
        if parse_call is None or flags is None:
            return None
        if flags.kind not in draccus_program.KINDS:  # those take all words, whoever reads them
            self.check_argv_unread(main, parse_call, flags)
        self.check_argv_unchanged()
        if flags.kind == HF:
            self.check_args_file(main)
        return flags

    def check_argv_unread(self, main: Module, parse_call: ParseCall, flags: ScriptOptions) -> None:
        """Raise Unclear if the script, or the file of the parse call, reads sys.argv itself."""
        passed_arguments = {id(arg) for _, call in self.callers.values() for arg in call.args}
        for module in {main.path: main, parse_call.module.path: parse_call.module}.values():
            _check_argv(module, flags, passed_arguments)

    @cached_property
    def has_lightning_cli(self) -> bool:
        """Whether any file of the program mentions LightningCLI."""
        data = (self.modules.trees.data(path) or b"" for path in self.files)
        return any(b"LightningCLI" in text for text in data)

    def check_single(self, parse_call: ParseCall | None) -> None:
        """Raise Unclear if another call, or a class of the program, may parse the options too."""
        call = None if parse_call is None else parse_call.call
        others = (other for other in self.all_calls() if other.call is not call)
        if parse_call is not None:
            others = (other for other in others if not _is_tolerant(other.call))
        second = next(others, None)
        if second is not None:
            why = "the script parses options in more than one place"
            if parse_call is None:
                why = "it is not certain that the script parses options"
            raise Unclear(why, second.module.location(second.call))
        if parse_call is None and self.parser_class is not None:
            raise Unclear("a parser class of its own reads the options", self.parser_class)

    def check_args_file(self, main: Module) -> None:
        """Raise Unclear if HfArgumentParser takes more options from a file beside the script."""
        # transformers 5.24.0 hf_argparser.py, parse_args_into_dataclasses: look_for_args_file
        path = os.path.splitext(self.script)[0] + ".args"
        if os.path.exists(path):
            why = f"{os.path.basename(path)} beside the script has more options"
            raise Unclear(why, main.location(main.tree))

    def way_to(self, parse_call: ParseCall) -> set[Scope]:
        """Return the functions that lead from the script to a parse call."""
        way: set[Scope] = set()
        scope = parse_call.module.scope(parse_call.call)
        while not isinstance(scope, ast.Module) and scope in self.callers and scope not in way:
            way.add(scope)
            module, call = self.callers[scope]
            scope = module.scope(call)
        return way

    def options_at(self, parse_call: ParseCall) -> ScriptOptions:
        """Return the options that a parse call accepts."""
        if parse_call.command is not None:
            return self.options_of_command(parse_call.module, parse_call.command)
        module, call = parse_call.module, parse_call.call
        read = _FUNCTION_READERS.get(module.dotted(call.func))
        if module.dotted(call.func) == absl_flags.RUN:
            read = partial(absl_flags.read, files=self.files)
        reader = next((r for r in _METHOD_READERS if r.is_call(module, call)), None)
        if reader is not None:
            read = reader.read
        if module.dotted(call.func) in function_cli.CALLS:
            read = partial(function_cli.read, cwd=self.cwd, files=self.files)
        if draccus_program.is_call(module, call):
            read = partial(draccus_program.read, files=self.files)
        if read is not None:
            return read(self.modules, module, call)
        if self.has_lightning_cli and lightning_cli.is_call(self.modules, module, call):
            return lightning_cli.read(self.modules, module, call, self.cwd, self.callers)
        if argument_parser.is_call(self.modules, module, call):
            return argument_parser.read(
                self.modules, module, call, self.callers, cwd=self.cwd, files=self.files
            )
        return argparse_parser.read(self.modules, module, call, self.callers, self.dead)

    def options_of_command(self, module: Module, command: Function) -> ScriptOptions:
        """Return the options of a function that parses when it is called."""
        if hydra_program.is_main(module, command):
            return hydra_program.read(self.modules, module, command, self.files, self.cwd)
        if draccus_program.is_main(module, command):
            return draccus_program.read_main(self.modules, module, command, self.files)
        return click_command.read(module, command)

    def first_in_block(
        self, module: Module, body: Iterable[ast.stmt], depth: int
    ) -> ParseCall | None:
        """Return the first parse call that these statements always reach."""
        if depth == 0:
            return None
        for statement in body:
            parse_call = self.first_in_statement(module, statement, depth)
            if parse_call is not None or isinstance(statement, ast.Return | ast.Raise):
                return parse_call
        return None

    def first_in_statement(self, module: Module, node: ast.stmt, depth: int) -> ParseCall | None:
        """Return the first parse call that one statement reaches."""
        if isinstance(node, Function | ast.ClassDef):
            return None
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self.first_in_import(module, node, depth)
        if isinstance(node, ast.If):
            return self.first_in_branch(module, node, depth)
        parts: list[ast.expr] = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
        if isinstance(node, ast.With | ast.AsyncWith):
            parts = [item.context_expr for item in node.items]
        elif isinstance(node, ast.For | ast.AsyncFor):
            parts = [node.iter]
        for part in parts:
            parse_call = self.first_in_expression(module, part, depth)
            if parse_call is not None:
                return parse_call
        if isinstance(node, ast.With | ast.AsyncWith | ast.Try):
            return self.first_in_block(module, node.body, depth)
        return None

    def first_in_branch(self, module: Module, node: ast.If, depth: int) -> ParseCall | None:
        """Return the parse call that an `if` reaches in all cases, or as the main program."""
        guard = main_guard(node)
        if guard is not None:
            is_run = guard is (module.path == self.script)
            return self.first_in_block(module, node.body if is_run else node.orelse, depth)
        is_true = parameters.truth(module, node.test, self.callers)
        for statement in (*node.body, *node.orelse):
            self.dead.pop(statement, None)  # another call may have decided otherwise
        if is_true is not None:
            alive, dead = (node.body, node.orelse) if is_true else (node.orelse, node.body)
            self.dead.update(dict.fromkeys(dead, module.scope(node)))
            return self.first_in_block(module, alive, depth)
        parse_call = self.first_in_expression(module, node.test, depth)
        if parse_call is None and any(module.dotted(n) == "sys.argv" for n in ast.walk(node.test)):
            parse_call = self.first_in_block(module, node.orelse, depth)
            parse_call = parse_call or self.first_in_block(module, node.body, depth)
            self.checks_argv_first = parse_call is not None
        return parse_call

    def first_in_expression(self, module: Module, node: ast.AST, depth: int) -> ParseCall | None:
        """Return the parse call that an expression always reaches."""
        if isinstance(node, _DEFERRED):
            return None
        parts = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.BoolOp):
            parts = [node.values[0]]
        elif isinstance(node, ast.IfExp):
            parts = [node.test]
        for part in parts:
            parse_call = self.first_in_expression(module, part, depth)
            if parse_call is not None:
                return parse_call
        return self.first_in_call(module, node, depth) if isinstance(node, ast.Call) else None

    def first_in_call(self, module: Module, call: ast.Call, depth: int) -> ParseCall | None:
        """Return the parse call that a call is, or reaches."""
        definition = self.modules.resolve(module, call.func)
        if definition is None or not isinstance(definition.node, Function):
            # what tolerates unknown words refuses none: the next call may
            return None if _is_tolerant(call) else self.as_parse_call(module, call)
        if any(f(definition.module, definition.node) for f in _COMMANDS):
            is_bare = not call.args and not call.keywords
            return ParseCall(definition.module, call, definition.node) if is_bare else None
        plain = [d for d in definition.node.decorator_list if not _is_record(definition.module, d)]
        if plain or call in self.visited:
            return None
        self.visited.add(call)
        self.callers[definition.node] = (module, call)
        return self.first_in_block(definition.module, definition.node.body, depth - 1)

    def first_in_import(
        self, module: Module, node: ast.Import | ast.ImportFrom, depth: int
    ) -> ParseCall | None:
        """Return the parse call that importing a module of the project reaches."""
        targets = [] if node in self.visited else self.modules.imported(module, node)
        self.visited.add(node)
        for target in targets:
            if target.tree not in self.visited:
                self.visited.add(target.tree)
                parse_call = self.first_in_block(target, target.tree.body, depth - 1)
                if parse_call is not None:
                    return parse_call
        return None

    def as_parse_call(self, module: Module, call: ast.Call) -> ParseCall | None:
        """Return a call as a ParseCall if it parses a command line, else None."""
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _PARSE_METHODS
        is_parse = is_method or module.dotted(call.func) in _FUNCTION_READERS
        is_parse |= module.dotted(call.func) in (absl_flags.RUN, *function_cli.CALLS)
        is_parse |= draccus_program.is_call(module, call)
        is_parse = is_parse or typer_app.is_call(module, call)
        if not is_parse and self.has_lightning_cli:
            is_parse = lightning_cli.is_call(self.modules, module, call)
        return ParseCall(module, call) if is_parse else None

    def all_calls(self) -> Iterator[ParseCall]:
        """Yield every parse call in the program's files that could be reached."""
        for path in self.files:
            data = self.modules.trees.data(path) or b""
            if not any(mark in data for mark in _MARKS):
                continue
            module = self.modules.load(path)
            if module is None:
                continue
            for node in (node for node in module.nodes if isinstance(node, ast.Call)):
                parse_call = self.as_parse_call(module, node)
                if parse_call is None or self.modules.resolve(module, parse_call.call.func):
                    continue
                if _is_own_method(module, node):
                    self.parser_class = self.parser_class or module.location(node)
                    continue
                if self.is_reachable(module, node):
                    yield parse_call

    def is_reachable(self, module: Module, node: ast.AST) -> bool:
        """Whether a node could run: at module level, or in a function that is named anywhere."""
        if parameters.is_below(module, node, self.dead):
            return False
        inner: ast.AST = node
        scope: Scope = module.scope(node)
        while not isinstance(scope, ast.Module):
            if not self.is_named(module, scope):
                return False
            inner, scope = scope, module.scope(scope)
        return module.path == self.script or not _is_guarded(module, inner)

    def is_named(self, module: Module, function: Function) -> bool:
        """Whether any file of the program mentions a function by its name."""
        name = function.name
        for path in self.files:
            if name.encode() not in (self.modules.trees.data(path) or b""):
                continue
            other = self.modules.load(path)
            for node in [] if other is None else other.nodes:
                has_name = name in (getattr(node, "id", None), getattr(node, "attr", None))
                if other is None or not has_name:
                    continue
                may_run = path == self.script or not _is_guarded(other, node)
                if may_run and self.may_refer_to(other, node, module, function):
                    return True
        return False

    def may_refer_to(
        self, other: Module, node: ast.AST, module: Module, function: Function
    ) -> bool:
        """Whether a name in one file may refer to a function of another."""
        if module.top_level(function.name) is not function:
            return True  # a method, or one of several: any attribute of that name may refer to it
        definition = self.modules.resolve(other, node)
        if definition is not None:
            return definition.node is function
        return isinstance(node, ast.Name) and (other is module or "*" in other.imports)

    def check_argv_unchanged(self) -> None:
        """Raise Unclear if the program changes sys.argv."""
        for path in self.files:
            data = self.modules.trees.data(path) or b""
            match = _ARGV_CHANGE.search(data) if b"argv" in data else None
            module = None if match is None else self.modules.load(path)
            if module is not None and any(_changes_argv(module, node) for node in module.nodes):
                raise Unclear("the program changes `sys.argv`", module.location(module.tree))


def _is_own_method(module: Module, call: ast.Call) -> bool:
    """Whether a call is inside a parser class, which parses in turn: as in TrlParser."""
    cls = module.parents.get(module.scope(call))
    bases = cls.bases if isinstance(cls, ast.ClassDef) else []
    return any(module.dotted(base).endswith("ArgumentParser") for base in bases)


def _is_tolerant(call: ast.Call) -> bool:
    """Whether a call parses what it knows and refuses no other words."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "parse_known_args"


def _is_record(module: Module, decorator: ast.expr) -> bool:
    """Whether a decorator is torch's `record`, which calls the function unchanged."""
    return module.dotted(decorator) == "torch.distributed.elastic.multiprocessing.errors.record"


def _is_guarded(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where its file is the main program."""
    child, parent = node, module.parents.get(node)
    while parent is not None:
        if isinstance(parent, ast.If) and main_guard(parent) and child in parent.body:
            return True
        child, parent = parent, module.parents.get(parent)
    return False


def _changes_argv(module: Module, node: ast.AST) -> bool:
    """Whether a node changes sys.argv."""
    if not isinstance(node, _NAMES) or module.dotted(node) != "sys.argv":
        return False
    parent = module.parents[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("append", "extend", "insert", "pop", "remove", "clear")
    target = parent if isinstance(parent, ast.Subscript) else node
    return not isinstance(getattr(target, "ctx", None), ast.Load)


def _check_argv(module: Module, flags: ScriptOptions, passed_arguments: set[int]) -> None:
    """Raise Unclear if a file reads sys.argv itself in a way that may change the options.

    `passed_arguments`: ids of the arguments of the calls that lead to the parse call.
    """
    is_used = "argv" in module.imports or "sys" in module.imports.values()
    for node in module.nodes if is_used else []:
        if isinstance(node, _NAMES) and module.dotted(node) == "sys.argv":
            parent: ast.AST | None = module.parents[node]
            is_name = isinstance(parent, ast.Subscript) and module.literal(parent.slice) == 0
            is_passed = id(parent) in passed_arguments
            if not is_name and not is_passed and not _is_harmless(module, node, flags):
                raise Unclear("the script reads `sys.argv` itself", module.location(node))


def _is_harmless(module: Module, node: ast.AST, flags: ScriptOptions) -> bool:
    parent = module.parents.get(node)
    while parent is not None and not isinstance(parent, ast.stmt):
        if isinstance(parent, ast.JoinedStr):
            return True
        if isinstance(parent, ast.Call) and node is not parent.func:
            name = getattr(parent.func, "attr", getattr(parent.func, "id", ""))
            if name in _READ_ONLY_CALLS or name in _PARSE_METHODS:
                return True
            if flags.kind == HF and name in _FILE_CALLS:
                return True
        parent = module.parents.get(parent)
    return flags.kind == HF and isinstance(parent, ast.If)
