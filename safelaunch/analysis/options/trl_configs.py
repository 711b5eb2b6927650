"""Finds which configuration classes of TRL a program uses, and which one reads the command line.

TRL: each trainer `XTrainer` has an `XConfig`; `TrlParser` (trl/scripts/utils.py) and transformers'
`HfArgumentParser` build one from the command line if its class is among their arguments. So does
transformers' own `TrainingArguments`, from which they are derived.
"""

# ruff: noqa: PLC0415 - names and hf_arguments are imported only for programs that mention TRL

from __future__ import annotations

import ast
import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.imports.follow import Imports
    from safelaunch.analysis.python.names import Module
    from safelaunch.analysis.python.trees import Trees

_CLASS = re.compile(r"trl\.(?:\w+\.)*(\w+)(?:Config|Trainer)")
_ARGUMENTS = re.compile(r"transformers\.(?:\w+\.)*(?:Seq2Seq)?(TrainingArguments)")
_SHARED_CONFIG = "Model"  # ModelConfig goes with every trainer
_PARSER = re.compile(r"trl\.(?:\w+\.)*TrlParser|transformers\.(?:\w+\.)*HfArgumentParser")
_PARSE_METHODS = ("parse_args_and_config", "parse_args_into_dataclasses")
_MARKS = (b"trl", b"TrainingArguments")


class TrlConfigs(NamedTuple):
    """Names such as `GRPOConfig`: those that a program mentions, and the one that it parses.

    transformers' `TrainingArguments` and its variants are `TrainingArguments`.

    A subclass in the project counts as mentioned only: its defaults may differ.
    """

    config_names: frozenset[str] = frozenset()
    parsed: str | None = None


def read_configs(script: str, imports: Imports, trees: Trees) -> TrlConfigs | None:
    """Return the TRL configurations of a program; None if not all of its text was read."""
    if not imports.is_complete or imports.path_changed or imports.unread:
        return None
    names: set[str] = set()
    parsed: list[str | None] = []
    for path in imports.files:
        data = trees.data(path) or b""
        if not any(mark in data for mark in _MARKS):
            continue
        module = _module(path, trees)
        if module is None:
            return None
        names.update(_config_names(module))
        parsed += _parsed_configs(module)
    parsed_config = parsed[0] if len(parsed) == 1 and _parses_unmodified(script, trees) else None
    return TrlConfigs(frozenset(names), parsed_config)


def _module(path: str, trees: Trees) -> Module | None:
    from safelaunch.analysis.python.names import Module

    tree = trees.tree(path)
    try:
        return None if tree is None else Module(path, tree)
    except RecursionError:
        return None


def _config_names(module: Module) -> Iterator[str]:
    attributes = (node for node in module.nodes if isinstance(node, ast.Attribute))
    names = (*module.imports.values(), *map(module.dotted, attributes))
    return filter(None, map(_config_name, names))


def _config_name(full: str) -> str | None:
    """Return the configuration class that a dotted class or trainer name refers to."""
    arguments = _ARGUMENTS.fullmatch(full)
    if arguments is not None:
        return arguments[1]
    match = _CLASS.fullmatch(full)
    return None if match is None or match[1] == _SHARED_CONFIG else f"{match[1]}Config"


def _parsed_configs(module: Module) -> Iterator[str | None]:
    """Yield for each parser its only TRL configuration; None if it has none or several."""
    from safelaunch.analysis.options.parsers.hf_arguments import dataclass_nodes
    from safelaunch.analysis.python.trees import Unclear

    for node in module.nodes:
        if isinstance(node, ast.Call) and _PARSER.fullmatch(module.dotted(node.func)):
            configs: list[str] = []
            with contextlib.suppress(Unclear):
                names = map(module.dotted, dataclass_nodes(module, node))
                configs = list(filter(None, map(_config_name, names)))
            yield configs[0] if len(configs) == 1 else None


def _parses_unmodified(script: str, trees: Trees) -> bool:
    """Whether the script parses the command line once, with the classes' own defaults."""
    tree = trees.tree(script)
    calls = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = [(getattr(call.func, "attr", ""), call) for call in calls]
    parses = [call for name, call in by_name if name in _PARSE_METHODS]
    return (
        len(parses) == 1
        and not parses[0].args
        and all(keyword.arg not in ("args", None) for keyword in parses[0].keywords)
        and all(name != "set_defaults" for name, _ in by_name)
    )
