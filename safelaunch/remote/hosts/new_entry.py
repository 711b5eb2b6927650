"""A host as the user describes it, as a new or changed entry of the hosts file."""

from __future__ import annotations

import os
import posixpath
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config import profiles
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.add_entry import with_entry
from safelaunch.config.hosts_file.edit_entry import entry, with_changes
from safelaunch.config.hosts_file.reader import hosts_file_path
from safelaunch.config.schema.host_types import HOST_NAME
from safelaunch.config.yaml_io.node import scalar
from safelaunch.config.yaml_io.reader import parse, read_text
from safelaunch.errors import ConfigError
from safelaunch.model import Origin
from safelaunch.ssh.config import reader as ssh_config
from safelaunch.ssh.config.address import STANDARD_PORT, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Host
    from safelaunch.ssh.config.local_user import LocalUser

_CONNECTION = ("ssh", "address", "port")


@dataclass(frozen=True, slots=True)
class HostRequest:
    """A host as the user describes it."""

    name: str
    address: str | None
    hosts_path: str | None
    port: int | None = None
    identity: str | None = None
    profile: str | None = None
    workdir: str | None = None
    python: str | None = None
    transport: str | None = None
    force: bool = False


class _Difference(NamedTuple):
    """A key whose value in the file is not the requested one; None: the key is not there."""

    key: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"`{self.key}` is {self.old or 'not set'}, you ask for {self.new or 'none'}"


class HostsFileEdit:
    """The hosts file, and the entry that a request adds or changes."""

    def __init__(self, request: HostRequest, local: LocalUser, home: str) -> None:
        self.request = request
        self.local = local
        self.path = hosts_file_path(home, request.hosts_path)
        self.shown = local.shown(self.path)
        self.fields = _fields(request, local)
        where = Origin("NAME")
        HOST_NAME.read(scalar(request.name, where))
        if request.name == hosts_file.LOCAL:
            message = f"`{request.name}` is this machine"
            raise ConfigError(message, where=where, hint="take another name")
        if request.profile is not None:
            profiles.load(request.profile, Origin("--profile"), os.path.dirname(self.path))

    def planned(self) -> tuple[str | None, Host]:
        """Return the file's new text, None if it has the entry already, and the host.

        The text can be read: it was tried. Raises ConfigError.
        """
        name = self.request.name
        text = read_text(self.path, self.shown) if os.path.lexists(self.path) else ""
        hosts = hosts_file.Hosts({}, {})
        if any(line.split("#")[0].strip() for line in text.splitlines()):
            hosts = hosts_file.load_file(self.path, self.shown)
        if name in hosts.groups:
            raise ConfigError(f"`{name}` is a group already", where=self.shown)
        if name not in hosts.machines:
            fields = {key: value for key, value in self.fields.items() if value is not None}
            new = with_entry(text, self.shown, name, fields)
            return new, self._load(new).machines[name]
        host = hosts.machines[name]
        differences = _differences(host, self.fields)
        if not differences:
            return None, host
        if not self.request.force:
            raise ConfigError(
                f"`{name}` is there already, with other values: {'; '.join(map(str, differences))}",
                where=entry(parse(text, self.shown), name)[0].origin,
                hint="--force changes them; or take another name",
            )
        new = with_changes(text, self.shown, name, {d.key: d.new for d in differences})
        return new, self._load(new).machines[name]

    def _load(self, text: str) -> hosts_file.Hosts:
        """Return the hosts of a text, read as if it were the file."""
        folder = os.path.dirname(self.path)
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "hosts.yaml")
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            return hosts_file.load(
                path, self.shown, lambda value, _: os.path.normpath(os.path.join(folder, value))
            )


# -- the keys of the entry -------------------------------------------------------------------------


def _fields(request: HostRequest, local: LocalUser) -> dict[str, str | None]:
    """Return the keys that the entry is to have, in their order; None: it must not have the key."""
    fields = _connection_fields(request, local)
    if request.identity is not None:
        path = os.path.abspath(os.path.expanduser(request.identity))
        fields["identity"] = local.shown(path)
    own = {
        "transport": request.transport,
        "profile": request.profile,
        "python": request.python,
    }
    fields |= {key: value for key, value in own.items() if value is not None}
    if request.workdir is not None:
        home, path = local.home.rstrip("/\\"), request.workdir
        if path == local.home or path.startswith(home + "/"):
            path = "~" + path[len(home) :]  # this machine's shell has expanded `~/`
        fields["workdir"] = posixpath.normpath(path)
    return fields


def _connection_fields(request: HostRequest, local: LocalUser) -> dict[str, str | None]:
    port = None if request.port is None else str(request.port)
    if request.address is None:
        return {"port": port} if port else {}
    at = parse_address(request.address, "ADDRESS")
    if at.port is not None and request.port not in (None, at.port):
        raise ConfigError(f"`{request.address}` and `--port {port}`: which port is it?")
    port = str(at.port) if at.port is not None else port
    is_alias = at.host in ssh_config.declared_hosts(local) and at.port is None
    fields: dict[str, str | None] = {"ssh" if is_alias else "address": at.host}
    if at.user is not None:
        fields["user"] = at.user
    return {**fields, "port": port} if port else fields


def _differences(host: Host, fields: Mapping[str, str | None]) -> list[_Difference]:
    """Return the keys of an entry whose values are not the requested ones."""
    python = str(host.interpreter.path) if host.interpreter else None
    values = {
        "ssh": host.ssh,
        "address": ", ".join(host.addresses) or None,
        "port": None if host.port is None else str(host.port),
        "user": host.user,
        "identity": host.identity,
        "transport": host.transport,
        "profile": host.profile,
        "python": python,
        "workdir": host.workdir,
    }
    new: dict[str, str | None] = {}
    if not _leads_to(host, fields):
        # an address stands for all keys that say where the machine is
        new = dict.fromkeys(_CONNECTION) if {"ssh", "address"} & {*fields} else {}
        new |= {key: fields[key] for key in _CONNECTION if key in fields}
    new |= {key: value for key, value in fields.items() if key not in _CONNECTION}
    if "identity" in new and _same_file(host.identity, new["identity"]):
        del new["identity"]
    old = values
    if host.interpreter:
        old = {**values, "python": f"{python} ({host.interpreter.kind})"}
    return [_Difference(key, old[key], value) for key, value in new.items() if values[key] != value]


def _leads_to(host: Host, fields: Mapping[str, str | None]) -> bool:
    """Whether an entry leads to the machine of the fields; they may name one address of several."""
    port = fields.get("port")
    if "address" in fields:
        addresses = [parse_address(address) for address in host.addresses]
        ways = {(at.host, str(at.port or host.port or STANDARD_PORT)) for at in addresses}
        return (fields["address"], port or str(STANDARD_PORT)) in ways or (
            port is None and fields["address"] in {at.host for at in addresses}
        )
    if "ssh" in fields:
        alias = host.ssh or (None if host.addresses else host.name)
        return alias == fields["ssh"] and port in (None, str(host.port))
    return port is None or str(host.port) == port


def _same_file(old: str | None, new: str | None) -> bool:
    if old is None or new is None:
        return old == new
    return os.path.expanduser(old) == os.path.expanduser(new)
