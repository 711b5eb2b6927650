"""`--set KEY=VALUE`: lays one value over the tree of a job."""

from __future__ import annotations

from safelaunch.config.load import Node, mapping, overlay, parse
from safelaunch.config.schema import JOB
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Origin


def lay_setting(tree: Node, setting: str) -> Node:
    """Return the tree with one `KEY=VALUE` or `KEY.PART=VALUE` laid over it."""
    path, equals, value = setting.partition("=")
    origin = Origin(f"--set {path}")
    if not equals or not path:
        raise ConfigError("`--set` wants KEY=VALUE", where=f"--set {setting}")
    keys = path.split(".", 1)
    key = JOB.find(keys[0])
    if key is None:
        raise ConfigError(
            f"unknown key `{keys[0]}`",
            where=origin,
            hint=did_you_mean(keys[0], (k.name for k in JOB.keys)),
        )
    if keys[0] == "extends":
        raise ConfigError("`extends` belongs into a job file", where=origin)
    inner = keys[0] in ("args", "launcher_args", "env")
    if len(keys) > 1 and not inner:
        raise ConfigError(f"`{keys[0]}` has no parts", where=origin, hint=f"--set {keys[0]}=VALUE")
    if len(keys) == 1:
        return overlay(tree, mapping({keys[0]: _flag_value(value, origin)}, origin))
    old = tree.get(keys[0])
    if old is not None and old.kind == "list":
        raise ConfigError(
            f"`{keys[0]}` is a list in {old.origin}", where=origin, hint=f"--set '{keys[0]}=[...]'"
        )
    leaf = mapping({keys[1]: _flag_value(value, origin)}, origin)
    return overlay(tree, mapping({keys[0]: leaf}, origin))


def _flag_value(value: str, origin: Origin) -> Node:
    """Read a flag's value: text as it stands, also none; `[...]` and `{...}` as YAML.

    `null` removes, as in a file; nothing after the `=` is the empty text, not a removal.
    """
    if not value.startswith(("[", "{")):
        return Node("scalar", origin, text=value, plain=bool(value))
    try:
        items = parse(f"v: {value}", origin.source).items
    except ConfigError as e:
        raise ConfigError(e.message, where=origin, hint=e.hint) from None
    if len(items) != 1:
        raise ConfigError("one value at a time", where=origin)
    return _at(items[0][1], origin)


def _at(node: Node, origin: Origin) -> Node:
    if node.kind == "scalar":
        return Node("scalar", origin, text=node.text, plain=node.plain)
    if node.kind == "list":
        return Node("list", origin, items=tuple(_at(item, origin) for item in node.items))
    return Node("map", origin, items=tuple((_at(k, origin), _at(v, origin)) for k, v in node.items))
