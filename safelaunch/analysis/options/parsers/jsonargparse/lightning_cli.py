"""Reads programs of LightningCLI: `LightningCLI(Model, Data)`, also by a class derived from it."""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import ScriptOptions
from safelaunch.analysis.options.parsers.jsonargparse import signature
from safelaunch.analysis.options.parsers.jsonargparse.rules import (
    ConfigKeys,
    DottedOptionRules,
    group_keys,
)
from safelaunch.analysis.options.parsers.jsonargparse.signature import TypedParameter
from safelaunch.analysis.python import parameters
from safelaunch.analysis.python.names import UNKNOWN, Function
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Definition, Module, Modules
    from safelaunch.analysis.python.parameters import Callers

KIND = "LightningCLI"
_CLASSES = frozenset(
    f"{package}.cli.LightningCLI"
    for package in ("lightning.pytorch", "pytorch_lightning", "pytorch_lightning.utilities")
)
_PARAMETERS = (
    "model_class", "datamodule_class", "save_config_callback", "save_config_kwargs",
    "trainer_class", "trainer_defaults", "seed_everything_default", "parser_kwargs",
    "parser_class", "subclass_mode_model", "subclass_mode_data", "args", "run",
    "auto_configure_optimizers", "load_from_checkpoint_support",
)  # fmt: skip
_PARSER_CHANGES = {"parser_kwargs", "parser_class", "args"}
_COMMANDS = ("fit", "validate", "test", "predict")
# parameters of Trainer's methods that are no options: LightningCLI.subcommands()
_PASSED = ("model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule")
# methods of a derived class that change nothing of the parser
_HOOKS = (
    "before_", "after_", "instantiate_", "configure_optimizers", "link_optimizers", "_dump", "__doc"
)  # fmt: skip
_OPEN_KEYS = frozenset({"optimizer", "lr_scheduler"})
_MAX_BASES = 6


def is_call(modules: Modules, module: Module, call: ast.Call) -> bool:
    """Whether a call creates a LightningCLI."""
    return _derived(modules, module, call.func) is not None


def read(
    modules: Modules, module: Module, call: ast.Call, cwd: str | None, callers: Callers
) -> ScriptOptions:
    """Return the rules of `LightningCLI(...)`; raise Unclear if the text is not explicit."""
    place = module.location(call)
    arguments: dict[str, ast.expr] = dict(zip(_PARAMETERS, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in _PARAMETERS:
            raise Unclear("LightningCLI gets arguments that are not explicit", place)
        arguments[keyword.arg] = keyword.value
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        raise Unclear("LightningCLI gets arguments that are not explicit", place)
    for name in _PARSER_CHANGES & arguments.keys():
        if not _is_none(module, arguments[name], callers):
            raise Unclear(f"`{name}` changes the parser of LightningCLI", place)
    runs = module.literal(arguments["run"]) if "run" in arguments else True
    if not isinstance(runs, bool):
        raise Unclear("`run` of LightningCLI is computed", place)
    common = _common_keys(modules, module, call, arguments)
    commands = {"": common}
    if runs:
        trainer = _trainer(modules, module, call, arguments)
        if trainer is None:
            raise Unclear("the class Trainer is not installed on this machine", place)
        names = [*_COMMANDS]
        if any(getattr(part, "name", "") == "tune" for part in trainer.node.body):
            names.append("tune")  # before Lightning 2.0
        commands = {name: _with_method(trainer, name, common) for name in names}
    return ScriptOptions(KIND, place, rules=DottedOptionRules(commands, place, cwd))


def _is_none(module: Module, node: ast.expr, callers: Callers) -> bool:
    """Whether an argument is None, also by a parameter with that default."""
    if not isinstance(node, ast.Name) or not module.is_local(node):
        return module.literal(node) is None
    with contextlib.suppress(Unclear):
        return not parameters.values(module, node, callers)
    return False


def _derived(
    modules: Modules, module: Module, node: ast.expr, depth: int = _MAX_BASES
) -> list[Definition] | None:
    """Return the project's classes between a name and LightningCLI; None for another name."""
    if module.dotted(node) in _CLASSES:
        return []
    definition = modules.resolve(module, node) if depth else None
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return None
    for base in definition.node.bases:
        classes = _derived(modules, definition.module, base, depth - 1)
        if classes is not None:
            return [definition, *classes]
    return None


def _common_keys(
    modules: Modules, module: Module, call: ast.Call, arguments: dict[str, ast.expr]
) -> ConfigKeys:
    """Return the keys that all subcommands share."""
    place = module.location(call)
    keys = {"seed_everything": TypedParameter("seed_everything", place)}
    prefixes = set(_OPEN_KEYS)
    groups: set[str] = set()
    for prefix, name in (("model", "model_class"), ("data", "datamodule_class")):
        node = arguments.get(name)
        mode = arguments.get(f"subclass_mode_{prefix}")
        if node is None or module.literal(node) is None or mode is not None:
            prefixes.add(prefix)
            continue
        taken = signature.of_node(modules, module, node)
        keys.update(group_keys(prefix, taken))
        (prefixes if taken.is_open else groups).add(prefix)
    trainer = _trainer(modules, module, call, arguments)
    taken = signature.OPEN if trainer is None else signature.of_definition(modules, trainer)
    keys.update(group_keys("trainer", taken))
    (prefixes if taken.is_open else groups).add("trainer")
    linked: set[str] = set()
    checks_required = True
    for definition in _derived(modules, module, call.func) or []:
        for use in _parser_calls(definition):
            names = [definition.module.literal(arg) for arg in use.args]
            kind = getattr(use.func, "attr", "")
            if kind == "link_arguments":
                checks_required &= len(names) > 1 and isinstance(names[1], str)
                linked.update(n for n in names[1:2] if isinstance(n, str))
            elif kind == "set_defaults":
                checks_required = False
            else:
                prefixes.update(_added(definition, use, names))
    return ConfigKeys(
        keys, frozenset(groups), frozenset(prefixes), frozenset(linked), checks_required
    )


def _added(definition: Definition, use: ast.Call, names: list[object]) -> Iterator[str]:
    """Yield the keys that a call on the parser adds, whatever is below them."""
    keywords = {keyword.arg: keyword.value for keyword in use.keywords}
    kind = getattr(use.func, "attr", "")
    place = definition.module.location(use)
    key: object = UNKNOWN
    if kind == "add_argument":
        if len(names) == 1 and isinstance(names[0], str) and names[0].startswith("--"):
            key = names[0][2:]
    elif kind in ("add_optimizer_args", "add_lr_scheduler_args"):
        key = "optimizer" if "optimizer" in kind else "lr_scheduler"
        if len(names) > 1 or "nested_key" in keywords:
            key = names[1] if len(names) > 1 else definition.module.literal(keywords["nested_key"])
    elif kind in ("add_lightning_class_args", "add_class_arguments", "add_subclass_arguments"):
        key = names[1] if len(names) > 1 else UNKNOWN
        if "nested_key" in keywords:
            key = definition.module.literal(keywords["nested_key"])
    if not isinstance(key, str) or not key or None in keywords:
        raise Unclear("what the program adds to LightningCLI is not explicit", place)
    yield key


def _parser_calls(definition: Definition) -> Iterator[ast.Call]:
    """Yield the calls on the parser in `add_arguments_to_parser`; raise Unclear for more."""
    module, cls = definition
    if len(getattr(cls, "bases", ())) != 1:
        raise Unclear(f"`{cls.name}` has several bases", module.location(cls))
    for part in cls.body:
        if isinstance(part, ast.Expr | ast.Pass):
            continue
        name = part.name if isinstance(part, Function) else ""
        if not name or not (name.startswith(_HOOKS) or name == "add_arguments_to_parser"):
            raise Unclear(f"`{cls.name}` changes LightningCLI", module.location(part))
        if not isinstance(part, Function) or name != "add_arguments_to_parser":
            continue
        parser = part.args.args[-1].arg
        for node in ast.walk(part):
            if not isinstance(node, ast.Name) or node.id != parser:
                continue
            attribute = module.parents[node]
            call = module.parents[attribute]
            is_method = isinstance(attribute, ast.Attribute) and isinstance(call, ast.Call)
            if isinstance(call, ast.Call) and is_method and call.func is attribute:
                yield call
            elif not _is_super_call(attribute):
                place = module.location(node)
                raise Unclear("what the program adds to LightningCLI is not explicit", place)


def _is_super_call(node: ast.AST) -> bool:
    func = getattr(node, "func", None)
    return isinstance(func, ast.Attribute) and func.attr == "add_arguments_to_parser"


def _trainer(
    modules: Modules, module: Module, call: ast.Call, arguments: dict[str, ast.expr]
) -> Definition | None:
    """Return the class Trainer of the package that LightningCLI is from."""
    if "trainer_class" in arguments or modules.libraries is None:
        return None
    base_module, base = module, call.func
    for definition in _derived(modules, module, call.func) or []:
        if isinstance(definition.node, ast.ClassDef):
            base_module, base = definition.module, definition.node.bases[0]
    package = base_module.dotted(base).partition(".cli.")[0].removesuffix(".utilities")
    if package not in ("lightning.pytorch", "pytorch_lightning"):
        return None
    source = ast.parse(f"from {package}.trainer.trainer import Trainer\nTrainer")
    statement = source.body[1]
    name = statement.value if isinstance(statement, ast.Expr) else statement
    finder = type(module)("", source)
    return signature.full_definition(modules, modules.libraries.resolve(finder, name))


def _with_method(trainer: Definition, name: str, common: ConfigKeys) -> ConfigKeys:
    """Return the keys of a subcommand: those of all, and its method's parameters."""
    taken = signature.of_method(trainer, name)
    if taken.is_open:
        raise Unclear(f"`Trainer.{name}` is not read", trainer.module.location(trainer.node))
    own = group_keys("", taken)
    keys = {key: p for key, p in own.items() if key not in _PASSED}
    return common._replace(keys={**common.keys, **keys})
