"""The flags of a launcher on a launch line -> keys of a job.

A flag that has a job key (processes, precision, GPUs) becomes that key, every other one becomes
`launcher_args`. Variables and config files that stand for flags count as if they were typed.
"""

# ruff: noqa: PLC0415 - difflib, the reader of YAML: only for what few lines have

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.config.launcher_config import complete_line
from safelaunch.config.paths import Paths
from safelaunch.config.schema.types import expand_option
from safelaunch.config.yaml_io.node import Node, scalar
from safelaunch.errors import ConfigError
from safelaunch.launchers.flag_table import PASTED_LINE, LineFlag, near_flags
from safelaunch.model import Args
from safelaunch.plan.launch_line import nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.launchers.flag_table import FlagTable
    from safelaunch.plan.launch_line.shell import Shell

# of torchrun: a number that only the machine knows (torch/distributed/run.py)
_COUNTED_THERE = ("cpu", "xpu")


def launcher_keys(
    name: str, table: FlagTable, words: list[str], env: dict[str, str | None], shell: Shell | None
) -> dict[str, Node] | None:
    """Return the keys of a launcher's line; None where it is run word for word.

    That is so where the number of its nodes may change, where only the machine knows how many
    processes there are, and where a flag is not known.
    """
    split = _split(name, words, table)
    if split is None:
        return None
    typed, rest = split
    by_variable = _flags_of_variables(table, env)
    # of two equal flags the last one counts
    named = [(name, *flag) for name, flag in by_variable.items()]
    named += [(f"--{flag}", flag, values) for flag, values in typed]
    flags = [
        LineFlag(flag, values, replace(PASTED_LINE, option=option))
        for option, flag, values in named
    ]
    if table.config_file is not None and shell is not None:
        paths = Paths.from_job(os.path.join(shell.cwd, "-"), shell.cwd)
        environ = shell.with_env(env).environ
        flags = complete_line(flags, table, paths, environ, shell.workdir)
    by_name = {flag.name: (flag.values or ("",))[-1] for flag in flags}
    defaults = table.default_values(by_name)
    flags += [LineFlag(flag, (value,), PASTED_LINE) for flag, value in defaults.items()]
    by_name |= defaults
    direct = table.keep(by_name)
    keyed = [flag for flag in flags if flag.name in table.keys and flag.name not in direct]
    values = {table.keys[flag.name]: (flag.values or ("",))[-1] for flag in keyed}
    values = {key: text for key, text in values.items() if text not in table.unset}
    origins = {table.keys[flag.name]: flag.origin for flag in keyed}
    fewest, _, most = values.get("nodes", "1").partition(":")
    if most not in ("", fewest) or values.get("processes") in _COUNTED_THERE:
        return None
    for variable in by_variable:
        del env[variable]
    values["nodes"] = fewest
    if not rest:
        raise ConfigError(f"the line names no program for {name}", where=PASTED_LINE)
    implied = table.implied
    if fewest == "1":
        implied |= table.one_node
        values = {key: text for key, text in values.items() if key not in ("nodes", "node_rank")}
    others = [
        (flag.origin, expand_option(flag.name, flag.values or ()))
        for flag in flags
        if flag.name in direct or flag.name not in {*implied, *table.keys, table.module}
    ]
    is_module = table.module in by_name
    if values.get("processes") in ("gpu", nodes.AUTO):  # one per GPU
        del values["processes"]
        values.setdefault("gpus", nodes.AUTO)
    numbers_itself = "node_rank" in values and launchers.load(name).numbers_nodes(
        Args(words=tuple(word for _, option in others for word in option))
    )
    if numbers_itself:
        del values["node_rank"]
    counts = table.count_processes(values, by_name)
    by_text = {(flag.values or ("",))[-1]: flag.origin for flag in flags}
    keys = {
        key: (nodes.gpus if key == "gpus" else nodes.word)(
            text, origins.get(key) or by_text.get(text, PASTED_LINE)
        )
        for key, text in counts.items()
    }
    keys = {"launcher": scalar(name, PASTED_LINE), **keys}
    keys["module" if is_module else "script"] = nodes.word(rest[0])
    keys.update(nodes.args(rest[1:]))
    if others:
        items = tuple(nodes.word(word, origin) for origin, option in others for word in option)
        keys["launcher_args"] = Node("list", PASTED_LINE, items=items)
    return keys


def read_scalars(file: str | None, shell: Shell) -> dict[str, str]:
    """Return {key: text} of the scalars in a YAML file; None is accelerate's own of the user.

    Nothing of a file that cannot be read: the launcher itself refuses it.
    """
    from safelaunch.config.yaml_io.reader import read_file
    from safelaunch.launchers.accelerate.config_file import default_path

    shown = default_path(shell.environ) if file is None else file
    path = os.path.join(shell.cwd, shell.workdir, shown or "")
    if not os.path.isfile(path):
        return {}
    try:
        tree = read_file(path, path)
    except ConfigError:
        return {}
    items = tree.items if tree.kind == "map" else ()
    return {key.text: value.text for key, value in items if value.kind == "scalar"}


def _flags_of_variables(
    table: FlagTable, env: Mapping[str, str | None]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return {variable: flag with its values} of the variables that stand for the launcher's flags.

    A switch is on where its number is not 0 (torch/distributed/argparse_util.py, check_env).
    """
    flags: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, value in env.items():
        flag = table.defaults.get(name, "")
        if table.variables and name.startswith(table.variables):
            flag = name.removeprefix(table.variables).lower()
        if value is None:
            continue
        if flag in table.valued:
            flags[name] = (flag, (value,))
        elif flag in table.switches and re.fullmatch(r"0*[1-9]\d*", value):
            flags[name] = (flag, ())
    return flags


def _split(
    name: str, words: list[str], table: FlagTable
) -> tuple[list[tuple[str, tuple[str, ...]]], list[str]] | None:
    """Return the launcher's flags with their values, and the words from the program on.

    None where a flag is none of the launcher's, as far as is known, and no misspelt one.
    """
    flags: list[tuple[str, tuple[str, ...]]] = []
    program: list[str] = []
    rest = list(words)
    while rest and (table.mixes_flags or not program):
        word = rest.pop(0)
        if word == "--":
            break
        if table.short.get(word[:2]) in table.valued and word[2:3] not in ("", "="):
            rest.insert(0, word[2:])  # `-n8`
            word = word[:2]
        flag = _whole_name(word, table)
        is_own = word.startswith("--") and flag in table.names
        if not word.startswith("-") or (program and not is_own):
            program.append(word)
        elif "=" in word:
            flags.append((flag, (word.split("=", 1)[1],)))
        elif flag in table.switches:
            flags.append((flag, ()))
        elif flag in table.valued:
            if not rest:
                raise ConfigError(f"`{word}` has no value", where=PASTED_LINE)
            flags.append((flag, (rest.pop(0),)))
        else:
            _refuse_misspelt(name, word, flag, table)
            return None
    return flags, [*program, *rest]


def _whole_name(word: str, table: FlagTable) -> str:
    """Return the long name of a flag as typed; argparse takes an unambiguous begin for it.

    `--nproc` begins both `--nproc-per-node` and `--nproc_per_node`, which is two for it.
    """
    flag = table.name(word)
    if not (table.abbreviates and word.startswith("--")) or flag in table.names:
        return flag
    longer = [name for name in table.names if name.startswith(flag)]
    is_clear = len(longer) == 1 and ("_" in flag or "_" not in longer[0])
    return longer[0] if is_clear else flag


def _refuse_misspelt(name: str, word: str, flag: str, table: FlagTable) -> None:
    """Raise ConfigError where a flag that is not known is almost one that is."""
    near = near_flags(flag, table)
    if near:
        shown = " or ".join(f"`--{other}`" for other in near[:3])
        raise ConfigError(
            f"`{word}` is not a known option of {name}",
            where=PASTED_LINE,
            hint=f"did you mean {shown}?",
        )
