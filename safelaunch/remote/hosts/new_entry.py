"""A host as the user describes it, as an entry of the hosts file beside what is there."""

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
from safelaunch.config.hosts_file.update_file import write
from safelaunch.config.schema.files import HOST_NAME
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

_REACHED = ("ssh", "address", "port")


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
    force: bool = False


class _Difference(NamedTuple):
    """A key whose value is another one than asked for; None: it is not there."""

    key: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"`{self.key}` is {self.old or 'not set'}, you ask for {self.new or 'none'}"


class HostsFileEdit:
    """The hosts file, and what a request makes of it."""

    def __init__(self, request: HostRequest, local: LocalUser, home: str) -> None:
        self.request = request
        self.local = local
        self.path = hosts_file_path(home, request.hosts_path)
        self.shown = local.shown(self.path)
        self.fields = _fields(request, local)
        _check_name(request.name)
        if request.profile is not None:
            profiles.load(request.profile, Origin("--profile"), os.path.dirname(self.path))

    def planned(self) -> tuple[str | None, Host]:
        """Return the file's new text, None if it says it already, and the host. Raises ConfigError.

        The text is one that can be read: it was tried.
        """
        name = self.request.name
        text = read_text(self.path, self.shown) if os.path.lexists(self.path) else ""
        hosts = (
            hosts_file.load_file(self.path, self.shown)
            if _says_something(text)
            else hosts_file.Hosts({}, {})
        )
        if name in hosts.groups:
            raise ConfigError(f"`{name}` is a group already", where=self.shown)
        if name not in hosts.machines:
            new = with_entry(text, self.shown, name, self._written())
            return new, self._tried(new).machines[name]
        host = hosts.machines[name]
        differences = _differences(host, self.fields)
        if not differences:
            return None, host
        if not self.request.force:
            where = entry(parse(text, self.shown), name)[0].origin
            told = "; ".join(map(str, differences))
            raise ConfigError(
                f"`{name}` is there already, and says otherwise: {told}",
                where=where,
                hint="--force changes it; or take another name",
            )
        new = with_changes(text, self.shown, name, {d.key: d.new for d in differences})
        return new, self._tried(new).machines[name]

    def _written(self) -> dict[str, str]:
        return {key: value for key, value in self.fields.items() if value is not None}

    def _tried(self, text: str) -> hosts_file.Hosts:
        """Return the hosts of a text as the file would have them."""
        folder = os.path.dirname(self.path)
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "hosts.yaml")
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            return hosts_file.load(
                path, self.shown, lambda said, _: os.path.normpath(os.path.join(folder, said))
            )

    def write(self, text: str) -> None:
        """Put the text in the file's place. Raises ConfigError."""
        try:
            write(self.path, text)
        except OSError as e:
            raise ConfigError(
                f"cannot be written: {e.strerror}; the key is installed", where=self.shown
            ) from e


def _check_name(name: str) -> None:
    where = Origin("NAME")
    HOST_NAME.read(scalar(name, where))
    if name == hosts_file.LOCAL:
        raise ConfigError(f"`{name}` is this machine", where=where, hint="take another name")


def _says_something(text: str) -> bool:
    return any(line.split("#")[0].strip() for line in text.splitlines())


# -- what the entry says ---------------------------------------------------------------------------


def _fields(request: HostRequest, local: LocalUser) -> dict[str, str | None]:
    """Return the keys that the entry is to have, in their order; None: it is to have it not."""
    fields = _reached(request, local)
    if request.identity is not None:
        path = os.path.abspath(os.path.expanduser(request.identity))
        fields["identity"] = local.shown(path)
    if request.profile is not None:
        fields["profile"] = request.profile
    if request.python is not None:
        fields["python"] = request.python
    if request.workdir is not None:
        fields["workdir"] = _workdir(request.workdir, local)
    return fields


def _reached(request: HostRequest, local: LocalUser) -> dict[str, str | None]:
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


def _workdir(said: str, local: LocalUser) -> str:
    """Return the folder there; a `~/` that the shell here has expanded is one again."""
    if said == local.home or said.startswith(local.home.rstrip("/\\") + "/"):
        said = "~" + said[len(local.home.rstrip("/\\")) :]
    return posixpath.normpath(said)


def _differences(host: Host, fields: Mapping[str, str | None]) -> list[_Difference]:
    """Return what an entry says otherwise than asked for."""
    python = str(host.interpreter.path) if host.interpreter else None
    has = {
        "ssh": host.ssh,
        "address": ", ".join(host.addresses) or None,
        "port": None if host.port is None else str(host.port),
        "user": host.user,
        "identity": host.identity,
        "profile": host.profile,
        "python": python,
        "workdir": host.workdir,
    }
    wanted: dict[str, str | None] = {}
    if not _is_reached_so(host, fields):
        # an address stands for all that says where the machine is
        wanted = dict.fromkeys(_REACHED) if {"ssh", "address"} & {*fields} else {}
        wanted |= {key: fields[key] for key in _REACHED if key in fields}
    wanted |= {key: value for key, value in fields.items() if key not in _REACHED}
    if "identity" in wanted and _same_file(host.identity, fields["identity"]):
        del wanted["identity"]
    found = [_Difference(key, has[key], new) for key, new in wanted.items() if has[key] != new]
    if host.interpreter and any(difference.key == "python" for difference in found):
        found = [d._replace(old=f"{python} ({host.interpreter.kind})") if d.key == "python" else d
                 for d in found]  # fmt: skip
    return found


def _is_reached_so(host: Host, fields: Mapping[str, str | None]) -> bool:
    """Whether an entry leads to where the fields do; they may name one address of several."""
    port = fields.get("port")
    if "address" in fields:
        ways = [parse_address(address) for address in host.addresses]
        found = {(way.host, str(way.port or host.port or STANDARD_PORT)) for way in ways}
        return (fields["address"], port or str(STANDARD_PORT)) in found or (
            port is None and fields["address"] in {way.host for way in ways}
        )
    if "ssh" in fields:
        named = host.ssh or (None if host.addresses else host.name)
        return named == fields["ssh"] and port in (None, str(host.port))
    return port is None or str(host.port) == port


def _same_file(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one == other
    return os.path.expanduser(one) == os.path.expanduser(other)
