"""argparse and HfArgumentParser: all that happens to one parser, from where it is made on.

The rule: every use of the parser must be understood. One that is not (a library adds to it, it
is kept in an attribute) makes the whole unclear, and then nothing is said about any option.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import ARGPARSE, HF, Flags, Option
from safelaunch.analysis.options import add_argument, hf_arguments
from safelaunch.analysis.python import calls
from safelaunch.analysis.python.names import Function, Module, Modules, Scope
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from safelaunch.analysis.python.trees import Place

_ARGPARSE = frozenset({"argparse.ArgumentParser"})
_HF = frozenset({"transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser"})
_PLAIN = frozenset(
    {"prog", "usage", "description", "epilog", "formatter_class", "conflict_handler"}
    | {"argument_default", "exit_on_error", "color", "suggest_on_error"}
)
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
PARSES = frozenset({"parse_args", "parse_args_into_dataclasses"})
_ARGS_AND_NAMESPACE = 2
Callers = Mapping[Function, tuple[Module, ast.Call]]
# What leaves the options as they are.
_HARMLESS = frozenset(
    {"print_help", "print_usage", "format_help", "format_usage", "error", "exit", "get_default"}
    | {"set_defaults", "description", "epilog", "usage", "prog", "formatter_class"}
    | {"_optionals", "_positionals", "_action_groups"}
    | {"parse_json_file", "parse_yaml_file", "parse_dict"}
)
_SHOWING = frozenset({"print", "isinstance", "type", "id", "repr", "argcomplete.autocomplete"})


def read(modules: Modules, module: Module, call: ast.Call, callers: Callers) -> Flags:
    """Return the options of the parser that a call of `parse_args` belongs to, or raise Unclear.

    `callers`: the call by which each function was reached.
    """
    reader = _Reader(modules, callers)
    _check_parse(module, call, callers)
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - what `parse_args` is called on
    reader.origin(module, call.func.value, is_certain=True)
    place = reader.place or module.place(call)
    options = tuple(reader.options)
    return Flags(reader.kind, place, options, abbreviates=reader.abbreviates)


def _check_parse(module: Module, call: ast.Call, callers: Callers) -> None:
    """Refuse a call that reads other words than the command line's, or gives the rest back."""
    words = {word.arg: word.value for word in call.keywords}
    for value in (*call.args[:1], *(v for k, v in words.items() if k == "args")):
        if not _is_command_line(module, value, callers):
            raise Unclear("the words that it reads are not the command line's", module.place(call))
    if len(call.args) > _ARGS_AND_NAMESPACE or any(
        name not in ("args", "namespace", "look_for_args_file")
        and module.literal(value) not in (False, None)
        for name, value in words.items()
    ):
        raise Unclear("it gives back what it does not know", module.place(call))


def _is_command_line(module: Module, value: ast.expr, callers: Callers) -> bool:
    """Whether an argument of `parse_args` is None or `sys.argv[1:]`, also by way of a parameter."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        part = value.slice
        is_rest = module.literal(part.lower) == 1 and part.upper is None and part.step is None
        return is_rest and module.dotted(value.value) == "sys.argv"
    if not isinstance(value, ast.Name):
        return module.literal(value) is None
    scope = module.owner(value)
    if (
        isinstance(scope, ast.Module)
        or scope not in callers
        or calls.stores(module, scope, value.id)
    ):
        return False
    caller, call = callers[scope]
    given = calls.given(call, scope, value.id)
    if given is not None:
        return _is_command_line(caller, given, callers)
    return module.literal(calls.default(scope, value.id)) is None


class _Reader:
    """Collects the options of one parser from every place that adds to it."""

    def __init__(self, modules: Modules, callers: Callers) -> None:
        self.modules = modules
        self.callers = callers
        self.options: list[Option] = []
        self.abbreviates = True
        self.kind = ARGPARSE
        self.place: Place | None = None
        self.seen: set[tuple[str, ast.AST, str]] = set()
        self.following: list[ast.AST] = []

    def origin(self, module: Module, node: ast.expr, *, is_certain: bool) -> None:
        """Read the parser that an expression gives."""
        if isinstance(node, ast.Name):
            self.variable(module, module.owner(node), node.id, is_certain=is_certain)
            return
        if not isinstance(node, ast.Call):
            raise Unclear("the parser is not a variable of its own", module.place(node))
        name = module.dotted(node.func)
        if name in _ARGPARSE | _HF:
            self.create(module, node, is_hf=name in _HF, is_certain=is_certain)
            return
        found = self.modules.resolve(module, node.func)
        if found is None or not isinstance(found.node, Function):
            shown = name.lstrip("?.") or "a call"
            raise Unclear(f"`{shown}` makes the parser", module.place(node))
        self.returned(module, node, found.module, found.node, is_certain=is_certain)

    def create(self, module: Module, call: ast.Call, *, is_hf: bool, is_certain: bool) -> None:
        """Take a parser as it is made."""
        self.place = self.place or module.place(call)
        has_help = True
        for word in call.keywords:
            value = module.literal(word.value)
            if word.arg == "parents" and isinstance(word.value, ast.List | ast.Tuple):
                for parent in word.value.elts:
                    self.origin(module, parent, is_certain=is_certain)
            elif word.arg == "add_help" and isinstance(value, bool):
                has_help = value
            elif word.arg == "allow_abbrev" and isinstance(value, bool):
                self.abbreviates = value
            elif not (word.arg in _PLAIN or (is_hf and word.arg == "dataclass_types")):
                raise Unclear(f"the parser is made with `{word.arg or '**'}`", module.place(call))
        if has_help and not any("--help" in option.names for option in self.options):
            names = ("-h", "--help")
            self.options.append(Option("help", names, module.place(call), least=0, most=0))
        if is_hf:
            self.kind = HF
            self.options += hf_arguments.options(self.modules, module, call)

    def returned(
        self, module: Module, call: ast.Call, home: Module, node: Function, *, is_certain: bool
    ) -> None:
        """Read the parser that a function of the project gives back."""
        if node.decorator_list or node in self.following:
            raise Unclear(f"`{node.name}` is not a plain function", home.place(node))
        values = {id(v): v for v in calls.returns(home, node)}
        names = {v.id for v in values.values() if isinstance(v, ast.Name)}
        self.following.append(node)
        if len(names) == 1 and all(isinstance(v, ast.Name) for v in values.values()):
            name = names.pop()
            given = calls.given(call, node, name)
            if given is not None:
                self.origin(module, given, is_certain=is_certain)
                self.uses(home, node, name, is_certain=is_certain)
            else:
                self.variable(home, node, name, is_certain=is_certain)
        elif len(values) == 1 and not names:
            self.origin(home, next(iter(values.values())), is_certain=is_certain)
        else:
            raise Unclear(f"`{node.name}` gives back more than one thing", home.place(node))
        self.following.pop()

    def variable(self, module: Module, scope: Scope, name: str, *, is_certain: bool) -> None:
        """Read a parser that lies in a variable: where it is made, and each use of it."""
        made = []
        for node in calls.stores(module, scope, name):
            above = module.parents[node]
            value = getattr(above, "value", None)
            if not isinstance(above, ast.Assign | ast.AnnAssign) or value is None:
                raise Unclear(f"`{name}` is not a plain variable", module.place(node))
            if not _is_parsed(value, name) and not calls.takes(value, name):
                made.append(value)
        if len(made) != 1:
            raise Unclear(f"`{name}` is made in {len(made)} places", module.place(scope))
        is_sure = is_certain and calls.is_certain(module, made[0], scope)
        self.origin(module, made[0], is_certain=is_sure)
        self.uses(module, scope, name, is_certain=is_certain)

    def uses(self, module: Module, scope: Scope, name: str, *, is_certain: bool) -> None:
        """Take every use of a variable that holds the parser or a group of it."""
        if (module.path, scope, name) in self.seen:
            return
        self.seen.add((module.path, scope, name))
        above = (module.parents[node] for node in calls.stores(module, scope, name))
        ends = [n.lineno for n in above if isinstance(n, ast.Assign) and _is_parsed(n.value, name)]
        last = min(ends, default=None)  # from there on the name means something else
        if name in module.shared:
            raise Unclear(f"`{name}` is shared among functions", module.place(scope))
        for node in module.named.get(name, []):
            if module.owner(node) is not scope:
                continue
            if isinstance(node.ctx, ast.Load) and (last is None or node.lineno <= last):
                is_sure = is_certain and calls.is_certain(module, node, scope)
                self.use(module, scope, node, is_certain=is_sure)

    def use(self, module: Module, scope: Scope, node: ast.expr, *, is_certain: bool) -> None:
        """Take one use of the parser, or raise Unclear."""
        above = module.parents[node]
        if isinstance(above, ast.Attribute):
            self.attribute(module, scope, above, is_certain=is_certain)
        elif isinstance(above, ast.Call) and above.func is not node:
            self.passed(module, scope, above, node, is_certain=is_certain)
        elif isinstance(above, ast.keyword):
            call = module.parents[above]
            if isinstance(call, ast.Call):
                self.passed(module, scope, call, node, is_certain=is_certain)
        elif isinstance(above, ast.List | ast.Tuple):
            # `parents=[parser]` of the one that is read: taken from there
            word = module.parents[above]
            if not isinstance(word, ast.keyword) or word.arg != "parents":
                raise Unclear("the parser goes into a list", module.place(node))
        elif not isinstance(above, ast.Return | ast.Expr):
            raise Unclear("the parser goes where its text does not say", module.place(node))

    def attribute(
        self, module: Module, scope: Scope, node: ast.Attribute, *, is_certain: bool
    ) -> None:
        """Take `parser.x`."""
        call = module.parents[node]
        is_call = isinstance(call, ast.Call) and call.func is node
        if is_call and isinstance(call, ast.Call):
            if node.attr == "add_argument":
                self.options.append(add_argument.option(module, call, is_certain=is_certain))
                return
            if node.attr in _GROUPS:
                self.group(module, scope, call, is_certain=is_certain)
                return
            if node.attr in PARSES:
                _check_parse(module, call, self.callers)
                return
        if node.attr not in _HARMLESS:
            raise Unclear(f"`{node.attr}` of the parser", module.place(node))

    def group(self, module: Module, scope: Scope, call: ast.Call, *, is_certain: bool) -> None:
        """Take a group of options."""
        above = module.parents[call]
        if isinstance(above, ast.Attribute):
            self.attribute(module, scope, above, is_certain=is_certain)
            return
        if isinstance(above, ast.Expr):
            return
        targets = above.targets if isinstance(above, ast.Assign) else []
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            raise Unclear("a group of options goes where its text does not say", module.place(call))
        name = targets[0].id
        for node in calls.stores(module, scope, name):
            value = getattr(module.parents[node], "value", None)
            func = getattr(value, "func", None)
            if getattr(func, "attr", "") not in _GROUPS:
                raise Unclear(f"`{name}` is not only a group of options", module.place(node))
        self.uses(module, scope, name, is_certain=is_certain)

    def passed(
        self, module: Module, scope: Scope, call: ast.Call, node: ast.expr, *, is_certain: bool
    ) -> None:
        """Follow the parser into a function of the project."""
        name = module.dotted(call.func)
        if name in _SHOWING:
            return
        found = self.modules.resolve(module, call.func)
        if found is None or not isinstance(found.node, Function) or found.node.decorator_list:
            shown = name.lstrip("?.") or "a call"
            raise Unclear(f"`{shown}` gets the parser and is not read here", module.place(call))
        param = calls.parameter(call, found.node, node)
        if param is None:
            raise Unclear(f"`{found.node.name}` gets the parser in an unclear way",
                          module.place(call))  # fmt: skip
        for stored in calls.stores(found.module, found.node, param):
            value = getattr(found.module.parents[stored], "value", None)
            if value is None or not calls.takes(value, param):
                raise Unclear(f"`{param}` becomes something else", found.module.place(stored))
        self.uses(found.module, found.node, param, is_certain=is_certain)
        above = module.parents[call]
        target = above.targets[0] if isinstance(above, ast.Assign) else None
        gives = [getattr(v, "id", None) for v in calls.returns(found.module, found.node)]
        is_alias = bool(gives) and all(value == param for value in gives)
        own = getattr(node, "id", None)
        if isinstance(target, ast.Name) and target.id == own and not is_alias:
            raise Unclear(f"`{own}` becomes what `{found.node.name}` gives", module.place(call))
        if isinstance(target, ast.Name) and target.id != own and is_alias:
            self.uses(module, scope, target.id, is_certain=is_certain)


def _is_parsed(value: ast.expr, name: str) -> bool:
    """Whether it is `x.parse_args()` of the variable itself: `args = args.parse_args()`."""
    func = getattr(value, "func", None)
    if not isinstance(func, ast.Attribute) or func.attr not in PARSES:
        return False
    return isinstance(func.value, ast.Name) and func.value.id == name
