"""Reads a hosts file: the user's machines by name, how each is reached, and groups of them."""

from __future__ import annotations

import os
import posixpath
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.schema.ending.read import take_end_keys
from safelaunch.config.schema.files import HOST
from safelaunch.config.schema.host_types import HOST_NAME, INSTEAD, check_no_password
from safelaunch.config.schema.interpreter import read_interpreter
from safelaunch.config.schema.text_checks import check_kind, check_text, wrong
from safelaunch.config.schema.types import Choice
from safelaunch.config.yaml_io.reader import read_file
from safelaunch.environ import check_rank_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import EnvVar, Host, Origin
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from safelaunch.config.yaml_io.node import Node

LOCAL = "localhost"
FILE = "hosts.yaml"  # in safelaunch's folder
_SHARED = "shared"  # a `workdir` that all checkouts and runs use as it is: `shared`, `shared:PATH`

_CONNECTION = ("ssh", "address", "user", "port", "identity", "transport")
_PASSWORDS = ("pass", "pw", "pwd", "sshpass", "password", "passphrase")
_OTHER_NAMES = {
    "key": "identity", "keyfile": "identity", "privatekey": "identity", "sshkey": "identity",
    "identityfile": "identity", "host": "address", "hostname": "address", "alias": "ssh",
    "username": "user", "mirror": "hub",
}  # fmt: skip
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_FACTS = ("nccl", "driver", "torch", "cuda", "p2p")
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)+(\+[0-9A-Za-z.]+)?")


class Hosts(NamedTuple):
    """The machines of a file by name, the origin of each one's profile, and groups of machines."""

    machines: dict[str, Host]
    profiles: dict[str, Origin]
    groups: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def default_path(home: str) -> str | None:
    """Return the path of the user's hosts file; None where there is none."""
    path = os.path.join(home, FILE)
    return path if os.path.lexists(path) else None


def load_default(home: str) -> Hosts:
    """Return the hosts of safelaunch's folder; none where it has no such file."""
    path = default_path(home)
    return Hosts({}, {}) if path is None else load_file(path, path)


def load(path: str, shown: str, absolute: Callable[[str, Origin], str]) -> Hosts:
    """Return the hosts of a file; `absolute` resolves paths of this machine. Raises ConfigError."""
    root = read_file(path, shown)
    for key, _ in root.items:
        if key.text not in ("hosts", "groups"):
            _check_key(key, "NAME")
            hint = did_you_mean(key.text, ("hosts", "groups")) or "known: `hosts`, `groups`"
            raise ConfigError(f"unknown key `{key.text}`", where=key.origin, hint=hint)
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
    return hosts._replace(groups=_groups(root.get("groups"), hosts.machines))


def load_file(path: str, shown: str) -> Hosts:
    """Return the hosts of a file, whose paths are relative to its folder. Raises ConfigError."""
    folder = os.path.dirname(path)
    return load(path, shown, lambda path, _: os.path.normpath(os.path.join(folder, path)))


def _host(key: Node, node: Node, absolute: Callable[[str, Origin], str]) -> Host:
    check_no_password(key)
    name = HOST_NAME.read(key)
    if node.is_null:
        return Host(name)
    if node.kind != "map":
        raise ConfigError(f"expected a mapping for host `{name}`", where=node.origin)
    for entry, _ in node.items:
        _check_key(entry, name)
    fields, origins = HOST.read(node)
    _check_connection(name, origins)
    _check_facts(node.get("facts"))
    for var in fields.get("env", ()):
        check_rank_name(var)
    on_host = absolute if name == LOCAL else _absolute_on_host
    fields["interpreter"] = read_interpreter(fields, origins, on_host)
    for key_name in ("python", "venv", "conda", "conda_root"):
        fields.pop(key_name, None)
    if "workdir" in fields:
        fields["workdir"], fields["is_shared"] = _workdir(
            fields["workdir"], origins["workdir"], on_host
        )
    if "container" in fields:
        from safelaunch.config.hosts_file.mounts import place_mounts  # noqa: PLC0415 - few have one

        fields["container"] = place_mounts(fields["container"], on_host)
    fields["end_keys"] = take_end_keys(fields)
    if "identity" in fields:
        fields["identity"] = _identity(fields["identity"], origins["identity"], absolute)
    if "hub" in fields:
        fields["env"] = (*_hub(fields["hub"], origins["hub"]), *fields.get("env", ()))
    return Host(name=name, addresses=fields.pop("address", ()), **fields)


def _check_key(key: Node, name: str) -> None:
    """Refuse a password or a token by its key, and hint at the right name of another."""
    if HOST.find(key.text) is not None:
        return
    word = re.sub(r"[^a-z]", "", key.text.lower())
    if word in _OTHER_NAMES:
        raise ConfigError(
            f"unknown key `{key.text}`",
            where=key.origin,
            hint=f"did you mean `{_OTHER_NAMES[word]}`?",
        )
    misspelt = did_you_mean(word, _PASSWORDS[-2:]) is not None
    if is_secret_name(key.text) or word in _PASSWORDS or misspelt:
        raise ConfigError(
            f"`{key.text}`: a secret does not belong in a file",
            where=key.origin,
            hint=f"remove it; {INSTEAD.format(name=name)}. A token goes under `env_from` of a job",
        )


def _check_connection(name: str, origins: Mapping[str, Origin]) -> None:
    keys = [key for key in _CONNECTION if key in origins]
    if name == LOCAL and keys:
        raise ConfigError(
            f"`{keys[0]}` of `{LOCAL}`, which is this machine",
            where=origins[keys[0]],
            hint="give the entry another name",
        )
    if "ssh" in keys and "address" in keys:
        raise ConfigError(
            "`ssh` and `address` together",
            where=origins["address"],
            hint="`ssh` names an entry of ~/.ssh/config, which has the address",
        )


def _absolute_on_host(path: str, origin: Origin) -> str:
    """Return a path of the host; a relative one is refused, as nothing here is its base."""
    if path.startswith("/"):
        return posixpath.normpath(path)
    hint = "it is a path on the host: write it whole, such as /home/me/llm"
    if path.startswith("~"):
        hint = "`~/` works in `workdir` and `identity` only; write it whole, such as /home/me/env"
    raise ConfigError(f"`{path}` is not absolute", where=origin, hint=hint)


def _workdir(
    path: str, origin: Origin, on_host: Callable[[str, Origin], str]
) -> tuple[str | None, bool]:
    """Return the working directory, and whether it is `shared`; the host expands `~/`."""
    if on_host is not _absolute_on_host:
        return on_host(path, origin), False
    word, _, folder = path.partition(":")
    if word == _SHARED:
        return (_workdir(folder, origin, on_host)[0] if folder else None), True
    if path == "~" or path.startswith("~/"):
        return posixpath.normpath(path), False
    return on_host(path, origin), False


def _identity(path: str, origin: Origin, absolute: Callable[[str, Origin], str]) -> str:
    """Return the path of a key file on this machine, absolute or with `~/`."""
    if path.startswith(("~/", "~\\", "/")) or re.match(r"[A-Za-z]:[\\/]|\\\\", path):
        return path
    if path.startswith("~"):
        raise ConfigError(f"`{path}`: `~/` is the only form of it", where=origin)
    return absolute(path, origin)


def _hub(hub: str, origin: Origin) -> Iterator[EnvVar]:
    """Yield what `hub` sets, and removes of what the machine may have set before."""
    if hub == "offline":
        for name in _OFFLINE:
            yield EnvVar(name, "1", origin, why="no hub there: what is missing fails at once")
        return
    for name in _OFFLINE:
        yield EnvVar(name, None, origin, why=f"the hub is to be used ({hub})")
    mirror = None if hub == "online" else hub
    why = "the hub itself is to be used" if mirror is None else "the hub's mirror for this host"
    yield EnvVar("HF_ENDPOINT", mirror, origin, why=why)


def _check_facts(facts: Node | None) -> None:
    """Refuse facts that no gate is evaluated on, and those that are no version."""
    for key, value in facts.items if facts is not None and facts.kind == "map" else ():
        if key.text not in _FACTS:
            hint = did_you_mean(key.text, _FACTS) or "known: " + ", ".join(_FACTS)
            raise ConfigError(f"unknown fact `{key.text}`", where=key.origin, hint=hint)
        if key.text == "p2p" and not value.is_null:
            Choice(("yes", "no")).read(value)
        elif not value.is_null and not _VERSION.fullmatch(value.text):
            raise ConfigError(
                f"`{value.text}` is no version of {key.text}",
                where=value.origin,
                hint="write it with dots, such as 2.27.3",
            )


def _groups(node: Node | None, machines: Mapping[str, Host]) -> dict[str, tuple[str, ...]]:
    if node is None or node.is_null:
        return {}
    check_kind(node, "map", "a mapping such as {lab: [gpu1, gpu2]}")
    groups = {}
    for key, members in node.items:
        name = HOST_NAME.read(key)
        if name in machines:
            raise ConfigError(f"`{name}` is a host already", where=key.origin)
        if members.kind != "list" or not members.items:
            raise wrong(members, "a list of hosts")
        groups[name] = tuple(_member(member, machines) for member in members.items)
        if len(set(groups[name])) != len(groups[name]):
            raise ConfigError("a host is listed twice", where=members.origin)
    return groups


def _member(node: Node, machines: Mapping[str, Host]) -> str:
    check_kind(node, "scalar", "the name of a host")
    check_text(node)
    if node.text not in machines:
        hint = did_you_mean(node.text, machines)
        hint = hint or f"add an entry `{node.text}:` under `hosts`; it may be empty"
        raise ConfigError(f"unknown host `{node.text}`", where=node.origin, hint=hint)
    return node.text


def expand(hosts: Hosts, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names with the machines of each group in its place, in the group's order."""
    return tuple(member for name in names for member in hosts.groups.get(name, (name,)))


def select(hosts: Hosts, name: str, where: Origin) -> Host:
    """Return the host of that name; it needs an entry only if there is a hosts file."""
    if hosts.machines and name not in hosts.machines:
        hint = did_you_mean(name, (*hosts.machines, *hosts.groups))
        raise ConfigError(f"unknown host `{name}`", where=where, hint=hint)
    return hosts.machines.get(name) or Host(name)


def hosts_file_path(home: str, hosts_path: str | None) -> str:
    """Return the whole path of the hosts file, whether it exists or not."""
    return os.path.abspath(hosts_path or os.path.join(home, FILE))
