"""`--set KEY=VALUE`: merges one value over the tree of a job."""

from __future__ import annotations

from safelaunch.config.schema.blocks import BLOCKS
from safelaunch.config.schema.files import JOB
from safelaunch.config.yaml_io.node import Node, mapping, overlay, scalar
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Origin

# mappings with any names as keys
_OPEN = (
    "args", "launcher_args", "env", "classes", "resume_args", "assets", "resources", "volumes",
    "node_selector", "labels", "annotations", "matrix", "vars",
)  # fmt: skip


def apply_set_option(tree: Node, setting: str) -> Node:
    """Return the tree with one `KEY=VALUE` or `KEY.PART=VALUE` merged over it."""
    path, equals, value = setting.partition("=")
    origin = Origin(f"--set {path}")
    if not equals or not path:
        raise ConfigError("`--set` wants KEY=VALUE", where=f"--set {setting}")
    keys = _keys(path, origin)
    if keys[0] == "vars":
        return _with_variable(tree, keys, value, origin)
    leaf = _flag_value(value, origin)
    for depth in range(len(keys) - 1, 0, -1):
        old: Node | None = tree
        for key in keys[:depth]:
            old = old.get(key) if old is not None and old.kind == "map" else None
        if old is not None and old.kind == "list":
            raise ConfigError(
                f"`{keys[0]}` is a list in {old.origin}",
                where=origin,
                hint=f"--set '{'.'.join(keys[:depth])}=[...]'",
            )
        leaf = mapping({keys[depth]: leaf}, origin)
    return overlay(tree, mapping({keys[0]: leaf}, origin))


def _with_variable(tree: Node, keys: list[str], value: str, origin: Origin) -> Node:
    """Return the tree with the value of a variable: the text as it is, unless it is a list."""
    if len(keys) == 1:
        where = Origin(f"--set vars={value}")
        raise ConfigError("`vars` has names", where=where, hint="--set vars.NAME=VALUE")
    name, block = keys[1], tree.get("vars")
    old = block.get(name) if block is not None and block.kind == "map" else None
    default = old.get("default") if old is not None and old.kind == "map" else old
    leaf = Node("scalar", origin, text=value, plain=not scalar(value, origin).is_null)
    if default is not None and default.kind == "list":
        leaf = _flag_value(value, origin)
        if leaf.kind != "list":
            hint = f"--set 'vars.{name}=[{value}]'" if value else f"--set 'vars.{name}=[]'"
            raise ConfigError(f"`vars.{name}` is a list of words", where=origin, hint=hint)
    return overlay(tree, mapping({"vars": mapping({name: leaf}, origin)}, origin))


def _keys(path: str, origin: Origin) -> list[str]:
    """Return the key and its parts; a part of an open mapping may hold dots itself."""
    name, dot, rest = path.partition(".")
    if JOB.find(name) is None:
        hint = did_you_mean(name, (k.name for k in JOB.keys))
        raise ConfigError(f"unknown key `{name}`", where=origin, hint=hint)
    if name in ("extends", "smoke", "steps"):
        raise ConfigError(f"`{name}` belongs in a job file", where=origin)
    keys = [name]
    if dot and name in BLOCKS:
        part, dot, rest = rest.partition(".")
        if BLOCKS[name].find(part) is None:
            hint = did_you_mean(part, (k.name for k in BLOCKS[name].keys))
            raise ConfigError(f"unknown key `{part}` of `{name}`", where=origin, hint=hint)
        keys.append(part)
    if dot and keys[-1] not in _OPEN:
        hint = f"--set {'.'.join(keys)}=VALUE"
        raise ConfigError(f"`{keys[-1]}` has no parts", where=origin, hint=hint)
    if dot and name == "assets":
        return [name, *rest.split(".", 1)]  # `assets.base`, `assets.base.to`
    return [*keys, rest] if dot else keys


def _flag_value(value: str, origin: Origin) -> Node:
    """Return a flag's value: text as it is, also empty; `[...]` and `{...}` as YAML.

    `null` removes, as in a file; nothing after the `=` is the empty text, not a removal.
    """
    if not value.startswith(("[", "{")) or value.startswith("{assets."):
        return Node("scalar", origin, text=value, plain=bool(value))
    try:
        items = parse(f"v: {value}", origin.source).items
    except ConfigError as e:
        raise ConfigError(e.message, where=origin, hint=e.hint) from None
    if len(items) != 1:
        raise ConfigError("one value at a time", where=origin)
    return _with_origin(items[0][1], origin)


def _with_origin(node: Node, origin: Origin) -> Node:
    items = tuple(
        tuple(_with_origin(part, origin) for part in item)
        if isinstance(item, tuple)
        else _with_origin(item, origin)
        for item in node.items
    )
    return Node(node.kind, origin, text=node.text, plain=node.plain, items=items)
