"""Variables of a job: `{vars.NAME}` in its keys stands for a value that the file or `--set` gives.

A value is one word, or text inside of one, whatever is in it. A list is as many words as it has,
where its name is a whole item of a list, or the whole value of an option.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.config.schema.members.variables import VarsType
from safelaunch.config.schema.members.words import VARIABLE, WITHOUT_VARIABLES, check_quotes
from safelaunch.config.schema.text_checks import shorten
from safelaunch.config.yaml_io.node import Node, leaves, mapping, overlay
from safelaunch.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from safelaunch.config.schema.members.variables import Declaration

_SETTING = re.compile(r"vars\.([^=]+)=", re.DOTALL)
# a value there is a word, never a switch
_WORDS = ("args", "launcher_args", "resume_args", "env")


def substitute(tree: Node) -> Node:
    """Return the keys of a job and its services with the values of their variables.

    Raises ConfigError for values that are missing, all of them in one message.
    """
    own = _declared(tree)
    if own is None and not any(_declared(keys) for _, keys in _services(tree)):
        return tree
    missing = dict[str, Node]()
    new = _with_services(_filled(tree, own or {}, missing), tree, missing)
    if missing:
        nodes = list(missing.values())
        names = ", ".join(f"`vars.{name}`" for name in missing)
        also = ", ".join(str(node.origin) for node in nodes[1:])
        words = " ".join(f"--set vars.{name}=VALUE" for name in missing)
        raise ConfigError(
            f"no value for {names}" + (f" (also at {also})" if also else ""),
            where=nodes[0].origin,
            hint=words,
        )
    return new


def check_settings(settings: Sequence[str], trees: Sequence[Node]) -> None:
    """Refuse settings of variables that no job declares. Raises ConfigError."""
    names = {name for tree in trees for name in _all_declared(tree)}
    for setting in settings:
        match = _SETTING.match(setting)
        if match is not None and match[1] not in names:
            raise _unknown(match[1], names, f"--set vars.{match[1]}")


def settings_of(tree: Node, settings: Sequence[str]) -> tuple[str, ...]:
    """Return the settings without those of variables that a job does not declare."""
    names = _all_declared(tree)
    matches = [(setting, _SETTING.match(setting)) for setting in settings]
    return tuple(s for s, match in matches if match is None or match[1] in names)


def unused(tree: Node) -> Iterator[tuple[str, Node]]:
    """Yield names and nodes of variables that a job declares and does not use."""
    block = tree.get("vars")
    if block is None or block.kind != "map":
        return
    others = [value for key, value in tree.items if key.text != "vars"]
    used = {match[1] for value in others for match in _matches(value)}
    yield from ((key.text, key) for key, _ in block.items if key.text not in used)


def undeclared(tree: Node) -> Iterator[tuple[str, Node]]:
    """Yield words `{vars.NAME}` of a job without `vars`, which are left as they are."""
    if tree.get("vars") is not None or any(_declared(keys) for _, keys in _services(tree)):
        return
    for key, value in tree.items:
        if key.text != "steps":
            for node in leaves(value):
                yield from ((match[0], node) for match in VARIABLE.finditer(node.text))


def _all_declared(tree: Node) -> set[str]:
    """Return the names of the variables of a job, its services and what `--smoke` adds."""
    smoke = tree.get("smoke")
    blocks = [tree, *(keys for _, keys in _services(tree)), *([smoke] if smoke else [])]
    return {name for keys in blocks for name in _declared(keys) or {}}


def _declared(tree: Node) -> dict[str, Declaration] | None:
    block = tree.get("vars") if tree.kind == "map" else None
    return None if block is None or block.is_null else VarsType().read(block)


def _services(tree: Node) -> tuple[tuple[Node, Node], ...]:
    block = tree.get("services")
    return block.items if block is not None and block.kind == "map" else ()


def _with_services(new: Node, tree: Node, missing: dict[str, Node]) -> Node:
    """Return keys whose services have the values of their own variables, over those of the job."""
    services = []
    for name, keys in _services(tree):
        block = overlay(tree.get("vars"), keys.get("vars") or mapping({}, keys.origin))
        own = keys.get("vars")
        for key, value in _settings_in(tree):  # a flag is above what a service says
            if own is not None and own.get(key.text) is not None:
                block = overlay(block, mapping({key.text: value}, value.origin))
        items = tuple(item for item in keys.items if item[0].text != "vars")
        filled = _filled(replace(keys, items=items), VarsType().read(block), missing)
        services.append((name, filled))
    if not services:
        return new
    block = replace(tree.get("services") or tree, items=tuple(services))
    pairs = ((k, block if k.text == "services" else v) for k, v in new.items)
    return replace(new, items=tuple(pairs))


def _settings_in(tree: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the variables that the command line has set."""
    block = tree.get("vars")
    for key, value in block.items if block is not None and block.kind == "map" else ():
        if value.origin.source.startswith("--set "):
            yield key, value


def _filled(tree: Node, values: Mapping[str, Declaration], missing: dict[str, Node]) -> Node:
    if tree.kind != "map":
        return tree
    items = []
    for key, value in tree.items:
        if key.text == "setup":
            _refuse(value)
        new = value
        if key.text == "smoke":
            new = _smoke(value, values)
        elif key.text not in WITHOUT_VARIABLES:
            plain = key.text not in _WORDS
            new = _substituted(value, values, missing, is_plain=plain)
        items.append((key, new))
    return replace(tree, items=tuple(items))


def _smoke(node: Node, values: Mapping[str, Declaration]) -> Node:
    """Return what `--smoke` would set, as far as its values are there: another start needs none."""
    missing = dict[str, Node]()
    filled = _filled(node, {**values, **(_declared(node) or {})}, missing)
    return node if missing else filled


def _substituted(
    node: Node,
    values: Mapping[str, Declaration],
    missing: dict[str, Node],
    *,
    is_plain: bool,
) -> Node:
    if node.kind == "map":
        check_quotes(node, "vars")
        pairs = (
            (
                _key(key),
                _substituted(value, values, missing, is_plain=is_plain and key.text not in _WORDS),
            )
            for key, value in node.items
        )
        return replace(node, items=tuple(pairs))
    if node.kind == "list":
        items = list[Node]()
        for item in node.items:
            new = _substituted(item, values, missing, is_plain=is_plain)
            # only a variable makes a list of an item: its words stand in place of it
            items += new.items if new.kind == "list" and item.kind == "scalar" else (new,)
        return replace(node, items=tuple(items))
    whole = VARIABLE.fullmatch(node.text)
    lists = list[str]()

    def text_of(match: re.Match[str]) -> str:
        value = _value(match[1], node, values, missing)
        if value is not None and value.kind == "list":
            lists.append(match[1])
            return ""
        return "" if value is None else value.text

    text = VARIABLE.sub(text_of, node.text)
    if text == node.text and whole is None:
        return node
    if lists and whole is None:
        raise ConfigError(
            f"`vars.{lists[0]}` is a list, and stands inside of a word",
            where=node.origin,
            hint=f'make it an item of its own: [.., "{{vars.{lists[0]}}}"]',
        )
    origin = node.origin
    if whole is not None:
        value = _value(whole[1], node, values, missing)
        origin = replace(origin, option=f"vars.{whole[1]}")
        if value is not None and value.kind == "list":
            parts = tuple(replace(item, origin=origin, plain=False) for item in value.items)
            return Node("list", origin, items=parts)
        plain = is_plain and value is not None and value.plain and not value.is_null
        return Node("scalar", origin, text=text, plain=plain)
    return Node("scalar", origin, text=text, beats=node.beats)


def _key(key: Node) -> Node:
    """Return a key of a mapping, in which no variable is replaced."""
    match = VARIABLE.search(key.text)
    if match is not None:
        raise ConfigError(f"`{match[0]}` in a name is not replaced", where=key.origin)
    return key


def _value(
    name: str, node: Node, values: Mapping[str, Declaration], missing: dict[str, Node]
) -> Node | None:
    declared = values.get(name)
    if declared is None:
        raise _unknown(name, values, node.origin)
    if declared.value is None:
        missing.setdefault(name, declared.node)
    return declared.value


def _unknown(name: str, names: Iterable[str], where: object) -> ConfigError:
    others = sorted(names)
    declared = ", ".join(f"`{other}`" for other in others)
    hint = did_you_mean(name, others) or (f"`vars:` declares {declared}" if declared else None)
    return ConfigError(f"no variable `{shorten(name)}` in `vars`", where=where, hint=hint)


def _refuse(node: Node) -> None:
    for leaf in leaves(node):
        match = VARIABLE.search(leaf.text)
        if match is not None:
            raise ConfigError(
                f"`{match[0]}` in `setup` is not replaced: its lines are a shell's, verbatim",
                where=leaf.origin,
                hint="a program of `command:` gets it as a word of its own",
            )


def _matches(node: Node) -> Iterator[re.Match[str]]:
    for leaf in leaves(node):
        yield from VARIABLE.finditer(leaf.text)
