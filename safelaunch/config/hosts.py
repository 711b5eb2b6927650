"""Reads a hosts file: the user's machines by name, as far as planning needs them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.interpreter import read_interpreter
from safelaunch.config.load import Node, read_file
from safelaunch.config.schema import HOST, HOST_NAME
from safelaunch.environ import check_rank_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Host, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.model import EnvVar

LOCAL = "localhost"


class Hosts(NamedTuple):
    """The machines of a file by name, and where each says its profile."""

    machines: dict[str, Host]
    profiles: dict[str, Origin]


def load(path: str, shown: str, absolute: Callable[[str, Origin], str]) -> Hosts:
    """Return the hosts of a file. `absolute` resolves a path in it. Raises ConfigError."""
    root = read_file(path, shown)
    for key, _ in root.items:
        if key.text != "hosts":
            raise ConfigError(
                f"unknown key `{key.text}`", where=key.origin, hint="known here: `hosts`"
            )
    entries = root.get("hosts")
    if entries is None or entries.kind != "map":
        raise ConfigError(
            "expected `hosts:` with a mapping of names",
            where=root.origin if entries is None else entries.origin,
        )
    hosts = Hosts({}, {})
    for key, value in entries.items:
        hosts.machines[key.text] = _host(key, value, absolute)
        profile = value.get("profile") if value.kind == "map" else None
        if profile is not None:
            hosts.profiles[key.text] = profile.origin
    return hosts


def _host(key: Node, node: Node, absolute: Callable[[str, Origin], str]) -> Host:
    name = HOST_NAME.read(key)
    if node.is_null:
        return Host(name)
    if node.kind != "map":
        raise ConfigError(f"expected a mapping for host `{name}`", where=node.origin)
    values, origins = HOST.read(node)
    _check_facts(node.get("facts"))
    workdir = values.get("workdir")
    env: tuple[EnvVar, ...] = values.get("env", ())
    for var in env:
        check_rank_name(var)
    return Host(
        name=name,
        profile=values.get("profile"),
        interpreter=read_interpreter(values, origins, absolute),
        workdir=None if workdir is None else absolute(workdir, origins["workdir"]),
        env=env,
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


def pick(hosts: Hosts, name: str, where: Origin) -> Host:
    """Return the host of that name; an entry is only demanded where a hosts file was given."""
    machines = hosts.machines
    if name in machines:
        return machines[name]
    if machines:
        raise ConfigError(f"unknown host `{name}`", where=where, hint=did_you_mean(name, machines))
    return Host(name)
