"""Adds a machine: makes sure that a key logs in, then writes the entry into the hosts file."""

# ruff: noqa: PLC0415 - connect: it imports Paramiko, 0.1 s

from __future__ import annotations

import base64
import contextlib
import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.hosts_file import update_file
from safelaunch.errors import ConfigError, HostError
from safelaunch.remote.hosts.new_entry import HostRequest, HostsFileEdit
from safelaunch.ssh import errors, install_key
from safelaunch.ssh.config.address import STANDARD_PORT
from safelaunch.ssh.config.target import format_route, resolve_target
from safelaunch.ssh.keys import agent, identities
from safelaunch.ssh.keys.known_hosts import describe_key, without_fingerprint
from safelaunch.ssh.prompt import SharedAnswers, is_typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.model import Host
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.connection import Connection
    from safelaunch.ssh.prompt import Prompter


def add_host(
    request: HostRequest,
    local: LocalUser,
    home: str,
    *,
    ask: Prompter | None,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Add a host; the entry is written only if a key logs in. Raises SafelaunchError."""
    file = HostsFileEdit(request, local, home)
    workdir = file.fields.get("workdir")
    if workdir is not None and workdir != posixpath.normpath(request.workdir or ""):
        say(f"workdir: {workdir}, in the home folder of the host")
    _, host = file.planned()
    KeyInstaller(host, local, ask, say, warn).ensure_login()
    try:
        with update_file.lock(file.path):
            text, _ = file.planned()  # again: it may have been edited during the prompts
            if text is not None:
                update_file.write(file.path, text)
    except OSError as e:
        message = f"cannot be written: {e.strerror}; the key is installed"
        raise ConfigError(message, where=file.shown) from e
    state = f"is already in {file.shown}" if text is None else f"written to {file.shown}"
    say(f"{request.name}: {state}")


class _LoginKey(NamedTuple):
    """The key that is to log in."""

    label: str
    path: str | None  # None: an agent has it
    public: str | None  # its public line; None: the key is to be created


class KeyInstaller:
    """Makes sure that a key logs in to a host: an existing one, or one that it installs."""

    def __init__(
        self,
        host: Host,
        local: LocalUser,
        ask: Prompter | None,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self.name = host.name
        # a login that `ssh` shares would not show whether a key logs in
        self.target = _with_changes(resolve_target(host.name, host, local), shares_login=False)
        if "publickey" not in self.target.authentications:
            raise ConfigError(
                f"~/.ssh/config disables keys for `{self.name}`: every login would ask for a "
                "password",
                hint="`PubkeyAuthentication` or `PreferredAuthentications` in it disables them",
            )
        # for the first login also the usual keys: one may log in, and install the entry's key
        self.first = _with_usual_keys(self.target, host, local)
        self.local = local
        self.is_named = host.identity is not None
        self.answers = None if ask is None else SharedAnswers(ask)
        self.say, self.warn = say, warn

    def ensure_login(self) -> None:
        """Make sure that a key logs in. Raises HostError, ConfigError."""
        self.say(f"{self.name}: connecting to {format_route(self.target)}")
        with self._connected(self.first) as connection:
            credential = connection.credential
            if credential.startswith("no proof"):
                user = connection.target.user
                self.say(f"{self.name}: {user} can log in without a key or password: none needed")
                return
            key = self._key()
            if self._is_key_login(credential, key):
                label = without_fingerprint(credential)
                self.say(f"{self.name}: login with {label} works, nothing to install")
                if is_typed(credential):
                    self._say_asks_each_time()
                return
            self.say(f"{self.name}: logged in with {credential}")
            warning = self._install(connection, key)
        self._verify(key, warning)

    def _say_asks_each_time(self) -> None:
        self.say(f"{self.name}: each login asks for more than the key; {errors.SHARE_LOGIN}")

    def _is_key_login(self, credential: str, key: _LoginKey) -> bool:
        """Whether a key logged in: the entry's own, if it names one."""
        if "SHA256:" not in credential or not self.is_named:
            return "SHA256:" in credential or not is_typed(credential)
        public = identities.parse_public_key(key.public) if key.public else None
        return public is not None and describe_key(*public) in credential

    @contextlib.contextmanager
    def _connected(self, target: Target) -> Iterator[Connection]:
        try:
            connection = self._connect(target)
        except HostError as e:
            e.hint = self._hint(e)
            raise
        with connection:
            try:
                yield connection
            except (OSError, EOFError) as e:
                raise HostError(
                    str(e), where=self.name, hint="nothing was written to the hosts file"
                ) from e

    def _connect(self, target: Target) -> Connection:
        from safelaunch.ssh.connection import connect

        ask = None if self.answers is None else self.answers.prompter(self.name)
        try:
            return connect(target, ask=ask, notify=self.say)
        except errors.TooManyKeys:
            if target is not self.first or target.identities_only:
                raise
            # the named key, or the password, may not have been tried yet
            self.say(
                f"{self.name}: disconnected after too many keys of the agent; retrying without them"
            )
            fewer = _with_changes(target, identities_only=True)
            return connect(fewer, ask=ask, notify=self.say)

    def _hint(self, error: HostError) -> str | None:
        """Return the hint of an error, or another one if it names `hosts add` itself."""
        if isinstance(error, errors.UnknownHostName) and self.target.address == self.name:
            return f"name its address: safelaunch hosts add {self.name} USER@ADDRESS"
        if "safelaunch hosts " not in (error.hint or ""):
            return error.hint
        if self.answers is None and isinstance(error, errors.UntrustedHostKey):
            return "run this in a terminal, compare the fingerprint with the machine's, answer yes"
        if "only at a terminal" in (error.hint or ""):
            port = f"-p {self.target.port} " if self.target.port != STANDARD_PORT else ""
            address = f"{port}{self.target.user}@{self.target.address}"
            return (
                "no terminal to ask for a password: run this in one, or install a key by hand "
                f"first: ssh-copy-id {self.name if self.target.jumps else address}"
            )
        return (
            f"the server accepts keys only: add {self._public_line_text()} to "
            "~/.ssh/authorized_keys there in another way: on its console, or by its administrator"
        )

    def _public_line_text(self) -> str:
        with contextlib.suppress(ConfigError):
            key = self._key()
            if key.public is None:
                return f"the .pub file of a key (ssh-keygen -t ed25519 -f {key.label} creates one)"
            if key.path is not None:
                return f"the line of {key.label}.pub"
        return "the line of your public key (ssh-add -L)"

    # -- the key

    def _key(self) -> _LoginKey:
        """Return the key to install: the named one, the first existing one, or one to create."""
        paths = self.target.identities
        for path in paths[: 1 if self.is_named else None]:
            public = self._public_line(path)
            if public is not None:
                return _LoginKey(self.local.shown(path), path, public)
        if not self.is_named:
            with agent.agent_keys(self.target, self.warn) as agent_keys:
                for key in agent_keys:
                    if not key.kind.endswith(identities.CERTIFICATE):
                        return _LoginKey(key.label, None, self._format_public(key))
        usual = str(self.local.path.join(self.local.ssh_folder, "id_ed25519"))
        path = paths[0] if self.target.identities_configured else usual
        return _LoginKey(self.local.shown(path), path, None)

    def _public_line(self, path: str) -> str | None:
        """Return the public line of a key file, None without such a file. Raises ConfigError."""
        shown = self.local.shown(path)
        identity = None
        try:
            identity = identities.read_identities(path, shown)[-1]
        except FileNotFoundError:
            return None
        except identities.PassphraseRequired:
            pass
        except identities.UnusableKey as e:
            if self.is_named:
                raise ConfigError(f"this key cannot be used: {e}", where=shown) from e
            return None
        if identity is None or not identity.blob:
            raise ConfigError(
                "the public key cannot be read without the passphrase",
                where=shown,
                hint=f"write it to a file: ssh-keygen -y -f {shown} > {shown}.pub",
            )
        return self._format_public(identity)

    def _format_public(self, key: identities.Identity) -> str:
        return f"{key.kind} {base64.b64encode(key.blob).decode()} {self._comment()}"

    def _comment(self) -> str:
        return f"{self.local.user}@{self.local.hostname}"

    def _install(self, connection: Connection, key: _LoginKey) -> str | None:
        """Install a key, created if necessary; return why sshd may still reject it."""
        public, created = key.public, []
        if public is None and key.path is not None:
            try:
                public = install_key.generate_key(key.path, comment=self._comment())
            except OSError as e:
                raise ConfigError(f"cannot create the key: {e.strerror}", where=key.label) from e
            self.say(f"{self.name}: created the key {key.label}, without a passphrase")
            created = [key.path, f"{key.path}.pub"]
        try:
            result = install_key.install_key(connection, public or "")
        except BaseException:
            for path in created:  # the key is of no use
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise
        state = "installed" if result.added else "already installed"
        self.say(f"{self.name}: the key {key.label} is {state} for {connection.target.user}")
        return result.warning

    def _verify(self, key: _LoginKey, warning: str | None) -> None:
        """Connect again with keys alone."""
        target = _with_changes(self.target, authentications=("publickey",))
        try:
            with self._connected(target) as connection:
                label = without_fingerprint(connection.credential)
                self.say(f"{self.name}: login with {label} alone works")
        except errors.IncompleteLogin as e:
            self.say(f"{self.name}: {without_fingerprint(e.message)}")
            self._say_asks_each_time()
        except errors.LoginFailed as e:
            hint: str | None = warning or (
                "sshd's log on the host has the reason. Often other users may write to ~ or "
                "~/.ssh there"
            )
            if isinstance(e, errors.TooManyKeys):
                named = f"the agent's keys are tried first: add --identity {key.label}"
                hint = named if key.path is not None else e.hint
            raise errors.LoginFailed(
                f"the key {key.label} is installed, but does not log in: {e.message}",
                where=self.name,
                hint=hint,
            ) from e


def _with_usual_keys(target: Target, host: Host, local: LocalUser) -> Target:
    """Return a target with the usual keys added, at each of its addresses."""
    usual = resolve_target(host.name, replace(host, identity=None), local)
    targets = [
        replace(
            named,
            identities=tuple(dict.fromkeys((*named.identities, *plain.identities))),
            identities_configured=plain.identities_configured,
            identities_only=plain.identities_only,
        )
        for named, plain in zip((target, *target.others), (usual, *usual.others), strict=True)
    ]
    return replace(targets[0], others=tuple(targets[1:]))


def _with_changes(target: Target, **changes: Any) -> Target:
    """Return a target with changes at each of its addresses."""
    others = tuple(replace(other, **changes) for other in target.others)
    return replace(target, **changes, others=others)
