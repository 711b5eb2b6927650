"""The config file of a launcher, read as PyYAML reads it, with the position of each value."""

# ruff: noqa: PLC0415 - PyYAML, a fifth of a dry-run: most pasted lines read no file

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.config.schema.types import ArgsType
from safelaunch.config.yaml_io.node import Node, mapping, overlay, scalar
from safelaunch.config.yaml_io.reader import read_file
from safelaunch.errors import ConfigError
from safelaunch.launchers.flag_table import PASTED_LINE, LineFlag, Setting, flag_values
from safelaunch.model import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.paths import Paths
    from safelaunch.launchers.flag_table import ConfigFile, FlagTable
    from safelaunch.model import Origin


def read_settings(path: str, shown: str) -> Setting:
    """Return the settings of a YAML or JSON file; `shown` names it. Raises ConfigError."""
    try:
        root = read_file(path, shown)
    except ConfigError as e:
        hint = "correct the file, or name another one"
        raise ConfigError(e.message, where=e.where, hint=hint) from e
    return _typed(root, root.origin)


def _typed(node: Node, key_origin: Origin) -> Setting:
    import yaml

    value: object
    if node.kind == "map":
        value = {key.text: _typed(item, key.origin) for key, item in node.items}
    elif node.kind == "list":
        value = tuple(_typed(item, item.origin) for item in node.items)
    elif node.plain:
        try:
            value = yaml.safe_load(node.text)
        except (yaml.YAMLError, ValueError):  # 2026-99-99 looks like a date
            value = node.text
        value = node.text if isinstance(value, (dict, list)) else value
    else:
        value = node.text
    return Setting(value, node.origin, key_origin)


def complete_line(
    flags: Sequence[LineFlag],
    table: FlagTable,
    paths: Paths,
    environ: Mapping[str, str],
    workdir: str = "",
) -> list[LineFlag]:
    """Return the flags of a pasted line with what its launcher's config file adds to them.

    A file of the project that the line names by a relative path stays named, since it is copied to
    hosts with the project; only what becomes a key of the job is added. Any other file is replaced
    by the flags that say the same, and so is one that would beat a flag which the plan leaves out.
    A relative path begins in `workdir`. Raises ConfigError.
    """
    file = table.config_file
    if file is None:
        return list(flags)
    line = {flag.name: (flag.values or ("",))[-1] for flag in flags}
    named = line.get(file.flag)
    shown = named if named is not None else file.default(line, environ)
    shown = shown and os.path.join(workdir, shown)
    path = os.path.join(paths.cwd, shown or "")
    exists = os.path.exists if named is not None else os.path.isfile
    if shown is None or not exists(path):
        if named is not None and not any(table.keys.get(n) == "processes" for n in line):
            raise ConfigError(
                f"`--{file.flag} {shown}`: no such file, and only it has the number of processes",
                where=PASTED_LINE,
                hint="correct the path; or add the number to the line",
            )
        return list(flags)
    settings = read_settings(path, shown)
    added = file.complete(settings, line)
    is_cpu = any(flag.name == "cpu" for flag in added)
    is_project_file = named is not None and not os.path.isabs(named)
    is_project_file = is_project_file and paths.is_inside(os.path.normpath(path))
    left_out = {name for name in line if name in table.implied or table.keys.get(name) == "gpus"}
    others = {name: value for name, value in line.items() if name not in left_out}
    if is_project_file and not is_cpu and _says(file, settings, others) == added:
        merged = [*flags, *added]
        nodes = next((f.values for f in merged if table.keys.get(f.name) == "nodes"), None)
        # a node that is started by hand must know where node 0 is
        needed = {*table.keys, *(file.address if nodes not in (None, ("1",)) else ())}
        return [*flags, *(flag for flag in added if flag.name in needed)]
    for flag in added:
        if flag.values is None:
            raise ConfigError(
                f"`{flag.name}` can be set only in a config file",
                where=flag.origin,
                hint=f"copy the file into the project, and name it with `--{file.flag}`",
            )
    return [*(flag for flag in flags if flag.name != file.flag), *added]


def _says(file: ConfigFile, settings: Setting, line: Mapping[str, str]) -> list[LineFlag] | None:
    """Return what the file adds to a line; None where it is refused together with it."""
    try:
        return file.complete(settings, line)
    except ConfigError:
        return None


def complete_job(tree: Node, table: FlagTable, paths: Paths) -> Node:
    """Return the keys of a job with the number of processes that its config file has.

    Only a file of the project is read: the plan depends on no other file of this machine. Raises
    ConfigError.
    """
    file, words = table.config_file, tree.get("launcher_args")
    has_count = any((node := tree.get(k)) and not node.is_null for k in ("processes", "gpus"))
    if file is None or words is None or words.is_null or has_count:
        return tree
    flags = flag_values(ArgsType().read(words), table)
    workdir = tree.get("workdir")
    folder = paths.real(workdir.text, workdir.origin) if workdir else paths.real(".", BUILT_IN)
    path = os.path.normpath(os.path.join(folder, flags.get(file.flag, "")))
    if file.flag not in flags or not paths.is_inside(path) or not os.path.isfile(path):
        return tree
    added = file.complete(read_settings(path, os.path.relpath(path, paths.cwd)), flags)
    values = {table.keys[f.name]: f for f in added if f.values and f.name in table.keys}
    hosts = tree.get("hosts")
    if hosts is not None or tree.get("nodes") is not None:
        values.pop("nodes", None)
    texts = {key: (flag.values or ("",))[0] for key, flag in values.items()}
    if hosts is not None and hosts.kind == "list":
        texts["nodes"] = str(len(hosts.items))
    counts = table.count_processes(texts, flags)
    new: list[str] = [key for key in ("processes", "nodes") if key in values]
    keys = {key: scalar(counts[key], values[key].origin) for key in new}
    return overlay(tree, mapping(keys, tree.origin))
