"""Reads a hosts file: the user's machines by name, as far as planning needs them."""

from __future__ import annotations

import os
import re

from safelaunch.config.interpreter import read_interpreter
from safelaunch.config.load import Node, read_file
from safelaunch.config.schema import HOST
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Host, Origin

LOCAL = "localhost"


def load(path: str, shown: str) -> dict[str, Host]:
    """Return the hosts of a file by name. Raises ConfigError with the position."""
    root = read_file(path, shown)
    for key, _ in root.items:
        if key.text != "hosts":
            raise ConfigError(
                f"unknown key `{key.text}`", where=key.origin, hint="known here: `hosts`"
            )
    entries = root.get("hosts")
    if entries is None or entries.kind != "map":
        raise ConfigError("expected `hosts:` with a mapping of names", where=root.origin)
    return {key.text: _host(key.text, value, os.path.dirname(path)) for key, value in entries.items}


def _host(name: str, node: Node, base: str) -> Host:
    if node.is_null:
        return Host(name)
    if node.kind != "map":
        raise ConfigError(f"expected a mapping for host `{name}`", where=node.origin)
    values, origins = HOST.read(node)
    _check_facts(node.get("facts"))
    return Host(
        name=name,
        profile=values.get("profile"),
        interpreter=read_interpreter(values, origins, lambda path, _: os.path.join(base, path)),
        workdir=values.get("workdir"),
        env=values.get("env", ()),
        setup=values.get("setup", ()),
        interface=values.get("interface"),
        facts=values.get("facts", {}),
    )


_FACTS = ("nccl", "driver", "torch", "cuda")


def _check_facts(facts: Node | None) -> None:
    """Facts are what gates are judged on: a name nobody asks for, or no version, is a mistake."""
    for key, value in facts.items if facts is not None and facts.kind == "map" else ():
        if key.text not in _FACTS:
            hint = did_you_mean(key.text, _FACTS) or "known: " + ", ".join(_FACTS)
            raise ConfigError(f"unknown fact `{key.text}`", where=key.origin, hint=hint)
        if not value.is_null and not re.fullmatch(
            r"[0-9]+(\.[0-9A-Za-z]+)+(\+[0-9A-Za-z.]+)?", value.text
        ):
            raise ConfigError(
                f"`{value.text}` is no version of {key.text}",
                where=value.origin,
                hint="write it with dots, such as 2.27.3",
            )


def pick(hosts: dict[str, Host], name: str, where: Origin) -> Host:
    """Return the host of that name; an entry is only demanded where a hosts file was given."""
    if name in hosts:
        return hosts[name]
    if hosts:
        raise ConfigError(f"unknown host `{name}`", where=where, hint=did_you_mean(name, hosts))
    return Host(name)
