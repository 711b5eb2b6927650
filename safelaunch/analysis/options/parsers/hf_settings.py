"""Reads which settings files HfArgumentParser and TRL's TrlParser take their fields from.

`TrlParser.parse_args_and_config` takes out `--config FILE` and makes its values the defaults of
argparse, which converts those that are text; what else of the file is refused differs by version
(trl/scripts/utils.py, before 0.13 trl/commands/cli_utils.py). HfArgumentParser's `parse_yaml_file`
and `parse_json_file` convert nothing.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import SettingsFile
from safelaunch.analysis.python.trees import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.names import Module, Modules

TRL_PARSERS = frozenset(
    {"trl.TrlParser", "trl.scripts.TrlParser", "trl.scripts.utils.TrlParser"}
    | {"trl.commands.cli_utils.TrlParser"}
)
_TRL_FILES = ("trl.scripts.utils", "trl.commands.cli_utils")
_FILE_METHODS = {"parse_json_file": (".json",), "parse_yaml_file": (".yaml", ".yml")}
_HF_FILE = "transformers.hf_argparser"


def trl_config(
    modules: Modules, module: Module, call: ast.Call, constructor: ast.Call
) -> tuple[SettingsFile, ...]:
    """Return how a parse call of a TrlParser reads `--config`; raise Unclear if that is not known.

    `constructor`: the call that created the parser.
    """
    if getattr(call.func, "attr", "") != "parse_args_and_config":
        return ()
    texts = (modules.text(name).partition("class TrlParser")[2] for name in _TRL_FILES)
    text = next(filter(None, texts), "")
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    refuses = module.literal(keywords.get("return_remaining_strings")) is not True
    if "fail_with_unknown_args" in text:  # 0.16 and newer
        refuses = refuses and module.literal(keywords.get("fail_with_unknown_args")) is not False
    elif "ignore_extra_args" in text:  # 0.8.7 to 0.12
        ignored = (k.value for k in constructor.keywords if k.arg == "ignore_extra_args")
        refuses = refuses and all(module.literal(value) is False for value in ignored)
    elif "config_remaining_strings" in text:  # 0.13 to 0.15 drop them
        refuses = False
    else:
        why = "TRL is not installed on this machine, or its parser is another one"
        raise Unclear(why, module.location(call))
    return (
        SettingsFile(
            "TrlParser",
            option="--config",
            is_converted=True,
            refuses_unknown=refuses,
            other_keys=frozenset({"env"}),
        ),
    )


def single_files(modules: Modules, module: Module, parser: ast.expr) -> tuple[SettingsFile, ...]:
    """Return the files that a script reads with a parser's own methods if they are all it gets.

    The idiom: `if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):` and `parse_json_file()`.
    """
    text = modules.text(_HF_FILE)
    has_keys = not text or "allow_extra_keys" in text  # before 4.21 they were dropped
    settings = []
    for node in module.nodes:
        method = getattr(getattr(node, "func", None), "attr", "")
        if not isinstance(node, ast.Call) or method not in _FILE_METHODS:
            continue
        receiver = getattr(node.func, "value", None)
        is_same = isinstance(parser, ast.Name) and getattr(receiver, "id", "") == parser.id
        suffixes = tuple(_tested_suffixes(module, node))
        if not is_same or not suffixes:
            continue
        allowed = [keyword for keyword in node.keywords if keyword.arg == "allow_extra_keys"]
        refuses = has_keys and len(node.args) < 2 and not allowed  # noqa: PLR2004 - the second
        settings.append(
            SettingsFile("HfArgumentParser", suffixes=suffixes, refuses_unknown=refuses)
        )
    return tuple(settings)


def _tested_suffixes(module: Module, node: ast.AST) -> Iterator[str]:
    """Yield what `sys.argv[1].endswith(...)` tests in the branch that a node is the body of."""
    child, parent = node, module.parents.get(node)
    while parent is not None and not (isinstance(parent, ast.If) and child in parent.body):
        child, parent = parent, module.parents.get(parent)
    for test in ast.walk(parent.test) if isinstance(parent, ast.If) else ():
        if not isinstance(test, ast.Call) or getattr(test.func, "attr", "") != "endswith":
            continue
        subject = getattr(test.func, "value", None)
        is_first = isinstance(subject, ast.Subscript) and module.literal(subject.slice) == 1
        if is_first and module.dotted(getattr(subject, "value", node)) == "sys.argv":
            suffixes = module.literal(test.args[0]) if test.args else ()
            for suffix in (suffixes,) if isinstance(suffixes, str) else suffixes:
                if isinstance(suffix, str):
                    yield suffix
