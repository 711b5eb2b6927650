"""Reads the options of subcommands such as `swift sft`: dataclasses of the frameworks' packages.

LLaMA-Factory (0.9.5 hparams/parser.py): `FILE key=value`, read by OmegaConf and given to
HfArgumentParser.parse_dict. ms-swift (4.6 utils/utils.py, cli/main.py): HfArgumentParser's options,
which may follow a file that becomes options itself; what remains is refused.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import HF, OPTIONS, OVERRIDES, ScriptOptions, SettingsFile
from safelaunch.analysis.options.parsers.hf_arguments import dataclass_options
from safelaunch.analysis.options.trl_command import read_trl_command
from safelaunch.analysis.python.cpu_budget import CpuBudget
from safelaunch.analysis.python.libraries import Libraries, library_file
from safelaunch.analysis.python.names import Modules
from safelaunch.analysis.python.trees import SourceLine, Trees, Unclear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.analysis.option_model import FrameworkCommand
    from safelaunch.analysis.python.libraries import LibraryPaths

_SUFFIXES = (".yaml", ".yml", ".json")
_LLAMAFACTORY = "llamafactory.hparams.parser"
_LLAMAFACTORY_CLASSES = "_TRAIN_ARGS"
_CHECKS_KEYS = "parser.parse_dict(args, allow_extra_keys=allow_extra_keys)"
# 4.x and 3.x
_SWIFT = {
    "sft": ("swift.pipelines.train.sft", "swift.llm.train.sft"),
    "rlhf": ("swift.pipelines.train.rlhf", "swift.llm.train.rlhf"),
    "pt": ("swift.pipelines.train.pretrain", "swift.llm.train.pt"),
}
_SWIFT_CLASS = re.compile(r"(?m)^    args_class = (\w+)$")
_SWIFT_MAIN = "swift.cli.main"


def read_framework_command(
    command: FrameworkCommand, paths: Callable[[], LibraryPaths], seconds: float | None
) -> ScriptOptions | None:
    """Return the options of a subcommand of a framework; None for one that is not read."""
    if command.name in _SCRIPT_READERS:
        return _SCRIPT_READERS[command.name](command.command, paths(), seconds)
    reader = _CLASS_READERS.get(command.name)
    if reader is None:
        return None
    trees = Trees()
    libraries = Libraries(trees, paths, CpuBudget(seconds))
    modules = Modules(trees, (), CpuBudget(seconds), libraries, is_single=True)
    try:
        options = reader(command.command, modules, libraries, paths())
    except (Unclear, RecursionError) as e:
        where = e.location if isinstance(e, Unclear) else SourceLine(command.name, 1)
        why = e.why if isinstance(e, Unclear) else "nested too deeply"
        return ScriptOptions("", where, is_incomplete=True, why=why)
    return options if options is None or command.reads_files else options._replace(settings=())


def _llamafactory(
    command: str, modules: Modules, libraries: Libraries, paths: LibraryPaths
) -> ScriptOptions | None:
    path = library_file(_LLAMAFACTORY, paths) if command == "train" else None
    module = None if path is None else libraries.module(path)
    if module is None or path is None:
        return None
    lists = [
        node.value.elts
        for node in module.tree.body
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") == _LLAMAFACTORY_CLASSES
        and isinstance(node.value, ast.List)
    ]
    if len(lists) != 1 or _CHECKS_KEYS not in libraries.text(_LLAMAFACTORY):
        raise Unclear("this version of LLaMA-Factory is not known", SourceLine(path, 1))
    settings = SettingsFile("LLaMA-Factory", suffixes=_SUFFIXES, rest=OVERRIDES)
    options = dataclass_options(modules, module, lists[0])
    return ScriptOptions(HF, SourceLine(path, 1), tuple(options), settings=(settings,))


def _swift(
    command: str, modules: Modules, libraries: Libraries, paths: LibraryPaths
) -> ScriptOptions | None:
    files = (library_file(name, paths) for name in _SWIFT.get(command, ()))
    path = next((file for file in files if file is not None), None)
    module = None if path is None else libraries.module(path)
    if module is None or path is None:
        return None
    names = set(_SWIFT_CLASS.findall(modules.trees.text(path)))
    if len(names) != 1:
        raise Unclear("this version of ms-swift is not known", SourceLine(path, 1))
    nodes: Sequence[ast.expr] = [ast.Name(names.pop(), ast.Load(), lineno=1)]
    options = dataclass_options(modules, module, nodes, prefers_text=True)
    reads_files = "def parse_yaml_args" in libraries.text(_SWIFT_MAIN)
    settings = SettingsFile(
        "ms-swift",
        suffixes=_SUFFIXES,
        rest=OPTIONS,
        is_converted=True,
        other_keys=frozenset({"ENV"}),
    )
    return ScriptOptions(
        HF, SourceLine(path, 1), tuple(options), settings=(settings,) if reads_files else ()
    )


_SCRIPT_READERS = {"trl": read_trl_command}  # its subcommands are scripts
_CLASS_READERS = {"llamafactory": _llamafactory, "swift": _swift}
