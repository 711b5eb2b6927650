"""Which configurations of TRL a program uses, and which of them reads the command line.

TRL: each trainer `XTrainer` has an `XConfig`; `TrlParser` (trl/scripts/utils.py) and transformers'
`HfArgumentParser` make one of the command line where its class is among those that they are given.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.imports.follow import Imports
    from safelaunch.analysis.python.names import Module
    from safelaunch.analysis.python.trees import Trees

_CLASS = re.compile(r"trl\.(?:\w+\.)*(\w+)(?:Config|Trainer)")
_OF_ALL = "Model"  # ModelConfig goes with every trainer
_PARSER = re.compile(r"trl\.(?:\w+\.)*TrlParser|transformers\.(?:\w+\.)*HfArgumentParser")
_PARSES = ("parse_args_and_config", "parse_args_into_dataclasses")
_MARK = b"trl"


class Configs(NamedTuple):
    """Names such as `GRPOConfig`: those that the program's text has, and the one that is parsed.

    A class of the project's own that is made from one counts as named: its defaults may be others.
    """

    named: frozenset[str] = frozenset()
    parsed: str | None = None


def configs(script: str, imports: Imports, trees: Trees) -> Configs | None:
    """Return which ones a program uses; None where not all of its text is known."""
    if not imports.is_whole or imports.path_changed or imports.unread:
        return None
    named: set[str] = set()
    parsed: list[str | None] = []
    for path in imports.files:
        if _MARK not in (trees.data(path) or b""):
            continue
        module = _module(path, trees)
        if module is None:
            return None
        named.update(_named(module))
        parsed += _parsed(module)
    own = parsed[0] if len(parsed) == 1 and _is_as_given(script, trees) else None
    return Configs(frozenset(named), own)


def _module(path: str, trees: Trees) -> Module | None:
    from safelaunch.analysis.python.names import Module  # noqa: PLC0415 - only programs that name TRL

    tree = trees.tree(path)
    try:
        return None if tree is None else Module(path, tree)
    except RecursionError:
        return None


def _named(module: Module) -> Iterator[str]:
    attributes = (node for node in module.nodes if isinstance(node, ast.Attribute))
    for full in (*module.imports.values(), *map(module.dotted, attributes)):
        name = _config(full)
        if name is not None:
            yield name


def _config(full: str) -> str | None:
    """Return the configuration that a full name stands for, also by its trainer."""
    found = _CLASS.fullmatch(full)
    return None if found is None or found[1] == _OF_ALL else f"{found[1]}Config"


def _parsed(module: Module) -> Iterator[str | None]:
    """Yield for each parser the only one of TRL's configurations that it makes; None: no such."""
    from safelaunch.analysis.options.hf_arguments import classes  # noqa: PLC0415 - as above
    from safelaunch.analysis.python.trees import Unclear  # noqa: PLC0415 - as above

    for node in module.nodes:
        if isinstance(node, ast.Call) and _PARSER.fullmatch(module.dotted(node.func)):
            try:
                found = [_config(module.dotted(one)) for one in classes(module, node)]
            except Unclear:
                found = []
            known = [name for name in found if name is not None]
            yield known[0] if len(known) == 1 else None


def _is_as_given(script: str, trees: Trees) -> bool:
    """Whether the script parses the command line itself, with the classes' own defaults."""
    tree = trees.tree(script)
    calls = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = [(getattr(call.func, "attr", ""), call) for call in calls]
    parses = [call for name, call in by_name if name in _PARSES]
    return (
        len(parses) == 1
        and not parses[0].args
        and all(word.arg not in ("args", None) for word in parses[0].keywords)
        and all(name != "set_defaults" for name, _ in by_name)
    )
