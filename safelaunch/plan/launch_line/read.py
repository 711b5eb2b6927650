"""A pasted line in the shell where it is typed: what is exported there, what is secret in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.config.schema.files import JOB
from safelaunch.config.schema.text_checks import is_secret
from safelaunch.config.topology.nodes import read_topology
from safelaunch.config.yaml_io.node import Node, mapping
from safelaunch.environ import PROCESS_GROUP, RANK_NAMES, inherited, matches, rank_values
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.plan.launch_line import nodes
from safelaunch.plan.launch_line.parse import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.plan.launch_line.shell import Shell

_ELASTIC = "TORCHELASTIC_RUN_ID"  # torchrun sets it for its ranks
_COUNTS = ("processes", "gpus", "nodes", "node_rank", "launcher_args")
_SHELL_WORD = r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])*"""


class Line(NamedTuple):
    """A pasted line as the user's shell would run it.

    `tree` are the keys of its job, `words` the line without secrets, `secrets` their values by
    variable, which `tree` has in `env_from`, `notes` what the user should know of how it was read.
    """

    tree: Node
    words: tuple[str, ...]
    secrets: Mapping[str, str]
    notes: tuple[str, ...]


def read_line(words: Sequence[str], shell: Shell, *, is_remote: bool = False) -> Line:
    """Return a line as this shell would run it. Raises ConfigError.

    `is_remote`: it runs on a host, where nothing of this shell is exported.
    """
    shell = shell._replace(is_here=not is_remote)
    tree, notes = parse_line(words, shell), []
    flags, names = ({}, []) if is_remote else _exported(tree, shell.environ)
    if flags:
        tree = parse_line(words, shell, flags)
        notes.append(f"read from your environment: {_assignments(flags)}")
    if names:
        tree = _with_keys(tree, {"env_from": nodes.words(names)})
        notes.append(f"handed on from your environment: {', '.join(names)} (`env_from`)")
    tree, overridden = _without_overridden(tree)
    if overridden:
        launcher = _text(tree, "launcher")
        notes.append(f"left out: {_assignments(overridden)}; {launcher} sets it for each rank")
    tree, secrets = split_secrets(tree)
    notes += [f"settings from {file}; --explain shows which" for file in sorted({*_files(tree)})]
    return Line(tree, _without_variables(words, secrets), secrets, tuple(notes))


def _exported(tree: Node, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the exported variables that a job's launcher reads, and names that its program may.

    Those of a torchrun above this shell are its own: they say nothing of this line.
    """
    if _ELASTIC in environ:
        return {}, []
    name, env = _text(tree, "launcher"), tree.get("env")
    own = {key.text for key, _ in env.items} if env is not None else set()
    exported = {name: value for name, value in environ.items() if name not in own and value}
    launcher = launchers.load(name)
    flags = {n: v for n, v in exported.items() if matches(n, launcher.READS)}
    passed = [] if launcher.STARTS_RANKS else inherited(exported, PROCESS_GROUP)
    return flags, passed


def _without_overridden(tree: Node) -> tuple[Node, dict[str, str]]:
    """Return the keys without variables that a launcher of several ranks sets to other values."""
    env, launcher = tree.get("env"), _text(tree, "launcher")
    values = {key.text: value for key, value in env.items} if env is not None else {}
    names = [name for name in values if name in RANK_NAMES and name != "NODE_RANK"]
    names = [name for name in names if not values[name].is_null]
    if env is None or not names or not launchers.load(launcher).STARTS_RANKS:
        return tree, {}
    items = tuple((key, value) for key, value in tree.items if key.text in _COUNTS)
    counts, origins = JOB.read(Node("map", tree.origin, items=items))
    _, topology = read_topology(counts, origins, launcher)
    if topology.world_size == 1:  # it may be the launcher's only process, which keeps them
        return tree, {}
    same = rank_values(topology)
    names = [name for name in names if same.get(name) != values[name].text]
    rest = tuple((key, value) for key, value in env.items if key.text not in names)
    overridden = {name: values[name].text for name in names}
    return _with_keys(tree, {"env": Node("map", env.origin, items=rest)}), overridden


def _with_keys(tree: Node, keys: dict[str, Node]) -> Node:
    return mapping({**{key.text: value for key, value in tree.items}, **keys}, PASTED_LINE)


def _text(tree: Node, key: str) -> str:
    node = tree.get(key)
    return "" if node is None else node.text


def _assignments(variables: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in variables.items())


def _without_variables(words: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line, as words or as one text, without the assignments of some variables."""
    if not names:
        return tuple(words)
    assignment = re.compile(rf"(?<!\S)(?:{'|'.join(names)})={_SHELL_WORD}\s*")
    if len(words) == 1:
        return (assignment.sub("", words[0]),)
    return tuple(word for word in words if word.partition("=")[0] not in names)


def split_secrets(tree: Node) -> tuple[Node, dict[str, str]]:
    """Return the keys with `env_from` for the secrets of `env`, and the values of those."""
    env = tree.get("env")
    items = env.items if env is not None else ()
    secrets = {k.text: v.text for k, v in items if is_secret(k.text, v)}
    if not secrets:
        return tree, {}
    public = {key.text: value for key, value in items if key.text not in secrets}
    handed = tree.get("env_from")
    names = [*([item.text for item in handed.items] if handed is not None else []), *secrets]
    keys = {"env": mapping(public, PASTED_LINE), "env_from": nodes.words(names)}
    return _with_keys(tree, keys), secrets


def _files(node: Node) -> Iterator[str]:
    """Yield the file of each value that does not come from the line itself."""
    for item in node.items:
        yield from _files(item[1] if node.kind == "map" else item)
    if node.origin.line:
        yield node.origin.source
