"""`safelaunch hosts add`: a key that opens a machine, and the machine's entry in the hosts file."""

from __future__ import annotations

import base64
import contextlib
import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.cli.output import say, warn
from safelaunch.config.hosts_file import update_file
from safelaunch.errors import ConfigError, HostError
from safelaunch.remote.hosts.new_entry import HostRequest, HostsFileEdit
from safelaunch.runs import store
from safelaunch.ssh import errors, install_key
from safelaunch.ssh.config.address import STANDARD_PORT
from safelaunch.ssh.config.local_user import current_user
from safelaunch.ssh.config.target import format_route, resolve_target
from safelaunch.ssh.keys import agent, identities
from safelaunch.ssh.keys.known_hosts import describe_key, without_fingerprint
from safelaunch.ssh.prompt import terminal_prompter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Host
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.connection import Connection
    from safelaunch.ssh.login import Prompter


def run(request: HostRequest) -> int:
    """Add a host; nothing is written unless a key opens it. Raises SafelaunchError."""
    file = HostsFileEdit(request, current_user(os.environ), store.home(os.environ))
    workdir = file.fields.get("workdir")
    if workdir is not None and workdir != posixpath.normpath(request.workdir or ""):
        say(f"workdir: {workdir}, the home folder there")
    _, host = file.planned()
    KeyInstaller(host, file.local).open()
    if _write(file):
        say(f"{request.name}: written to {file.shown}")
    else:
        say(f"{request.name}: is in {file.shown} already")
    say(f"next: safelaunch hosts test {request.name}")
    return 0


def _write(file: HostsFileEdit) -> bool:
    """Write the host, and tell whether it was not there yet."""
    try:
        with update_file.alone(file.path):
            text, _ = file.planned()  # again: it may have been edited while a person was asked
            if text is not None:
                file.write(text)
            return text is not None
    except OSError as e:
        raise ConfigError(f"cannot be written: {e.strerror}", where=file.shown) from e


def _with_usual_keys(found: Target, host: Host, local: LocalUser) -> Target:
    """Return the same way with all keys: a usual one may let in the one that the entry names."""
    usual = resolve_target(host.name, replace(host, identity=None), local)
    ways = [
        replace(
            way,
            identities=tuple(dict.fromkeys((*way.identities, *plain.identities))),
            identities_configured=plain.identities_configured,
            identities_only=plain.identities_only,
        )
        for way, plain in zip((found, *found.others), (usual, *usual.others), strict=True)
    ]
    return replace(ways[0], others=tuple(ways[1:]))


def _check_keys_are_used(found: Target) -> None:
    if "publickey" not in found.authentications:
        raise ConfigError(
            f"~/.ssh/config forbids keys for `{found.name}`: a password would be asked for ever",
            hint="`PubkeyAuthentication` or `PreferredAuthentications` there says so",
        )


# -- the door --------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """A key that is to open the host: `line` is its public half, None if it is to be made."""

    label: str
    path: str | None  # None: an agent has it
    line: str | None


class KeyInstaller:
    """The host's login: tries the keys there are, else lets a new one in."""

    def __init__(self, host: Host, local: LocalUser) -> None:
        self.name = host.name
        self.target = resolve_target(host.name, host, local)
        _check_keys_are_used(self.target)
        self.first = _with_usual_keys(self.target, host, local)  # before its key is in
        self.local = local
        self.is_named = host.identity is not None
        terminal = terminal_prompter()
        self.ask = None if terminal is None else _Memory(terminal)

    def open(self) -> None:
        """Make sure that a key opens the host. Raises HostError, ConfigError."""
        say(f"{self.name}: connecting to {format_route(self.target)}")
        with self._connected(self.first) as connection:
            proof = connection.credential
            if proof.startswith("no proof"):
                say(f"{self.name}: lets everybody in as {connection.target.user}: no key is needed")
                return
            key = self._key()
            if self._is_enough(proof, key):
                say(f"{self.name}: is opened by {without_fingerprint(proof)}: nothing to install")
                return
            say(f"{self.name}: logged in with {proof}")
            warning = self._install(connection, key)
        self._prove(key, warning)

    def _is_enough(self, proof: str, key: _Key) -> bool:
        """Whether a key opened the door: the one that was named, if one was."""
        if "SHA256:" not in proof:
            return False
        known = identities.parse_public_key(key.line) if key.line else None
        return not self.is_named or (known is not None and describe_key(*known) in proof)

    @contextlib.contextmanager
    def _connected(self, way: Target) -> Iterator[Connection]:
        if self.ask is not None:
            self.ask.start_connection()
        try:
            connection = self._connect(way)
        except HostError as e:
            e.hint = self._hint(e)
            raise
        with connection:
            try:
                yield connection
            except (OSError, EOFError) as e:
                raise HostError(
                    str(e), where=self.name, hint="nothing was written into the hosts file"
                ) from e

    def _connect(self, way: Target) -> Connection:
        from safelaunch.ssh.connection import connect  # noqa: PLC0415 - Paramiko: 0.1 s

        try:
            return connect(way, ask=self.ask, notify=say)
        except errors.TooManyKeys:
            if way is not self.first or way.identities_only:
                raise
            # the named key, or the password, may not have had its turn
            say(f"{self.name}: hung up after too many keys of the agent; again without them")
            return connect(_changed(way, identities_only=True), ask=self.ask, notify=say)

    def _hint(self, error: HostError) -> str | None:
        """Return the hint of an error, where it would lead back to this command."""
        if isinstance(error, errors.UnknownHostName) and self.target.address == self.name:
            return f"where is it? safelaunch hosts add {self.name} USER@ADDRESS"
        if "safelaunch hosts " not in (error.hint or ""):
            return error.hint
        if self.ask is None and isinstance(error, errors.UntrustedHostKey):
            return "run this in a terminal, compare the fingerprint with the machine's and say yes"
        if "only at a terminal" in (error.hint or ""):
            return (
                "nobody is there to type a password: run this in a terminal, or install a key by "
                f"hand first: ssh-copy-id {self.name if self.target.jumps else self._by_hand()}"
            )
        return (
            f"no password will do: the server takes keys only. Bring {self._public_half()} into "
            "~/.ssh/authorized_keys there by another way: its console, or who runs it"
        )

    def _public_half(self) -> str:
        with contextlib.suppress(ConfigError):
            key = self._key()
            if key.line is None:
                return f"the .pub of a key (ssh-keygen -t ed25519 -f {key.label} makes one)"
            if key.path is not None:
                return f"the line of {key.label}.pub"
        return "the line of your public key (ssh-add -L)"

    def _by_hand(self) -> str:
        port = f"-p {self.target.port} " if self.target.port != STANDARD_PORT else ""
        return f"{port}{self.target.user}@{self.target.address}"

    # -- the key

    def _key(self) -> _Key:
        """Return the key to let in: the named one, the first that there is, or one to be made."""
        paths = self.target.identities
        for path in paths[: 1 if self.is_named else None]:
            line = self._public_line(path)
            if line is not None:
                return _Key(self.local.shown(path), path, line)
        usual = str(self.local.path.join(self.local.ssh_folder, "id_ed25519"))
        path = paths[0] if self.target.identities_configured else usual
        held = None if self.is_named else self._of_agent()
        return held or _Key(self.local.shown(path), path, None)

    def _public_line(self, path: str) -> str | None:
        shown = self.local.shown(path)
        try:
            found = identities.read_identities(path, shown)[-1]
        except FileNotFoundError:
            return None
        except identities.PassphraseRequired:
            found = None
        except identities.UnusableKey as e:
            if self.is_named:
                raise ConfigError(f"this key cannot be used: {e}", where=shown) from e
            return None
        if found is None or not found.blob:
            raise ConfigError(
                "the public half of this key is not known without its passphrase",
                where=shown,
                hint=f"write it beside it: ssh-keygen -y -f {shown} > {shown}.pub",
            )
        return _line(found.kind, found.blob, self._comment())

    def _of_agent(self) -> _Key | None:
        with agent.agent_keys(self.target, warn) as held:
            for key in held:
                line = _line(key.kind, key.blob, self._comment())
                if not key.kind.endswith(identities.CERTIFICATE):
                    return _Key(key.label, None, line)
        return None

    def _comment(self) -> str:
        return f"{self.local.user}@{self.local.hostname}"

    def _install(self, connection: Connection, key: _Key) -> str | None:
        """Let a key in, made first if need be; return why it may not be taken all the same."""
        line = key.line
        made = []
        if line is None and key.path is not None:
            line = self._made(key.path)
            made = [key.path, f"{key.path}.pub"]
        try:
            done = install_key.install_key(connection, line or "")
        except BaseException:
            for path in made:  # it opens nothing
                with contextlib.suppress(OSError):
                    os.unlink(path)
            raise
        state = "installed" if done.added else "there already"
        say(f"{self.name}: the key {key.label} is {state}, for {connection.target.user}")
        return done.warning

    def _made(self, path: str) -> str:
        shown = self.local.shown(path)
        try:
            line = install_key.generate_key(path, comment=self._comment())
        except OSError as e:
            raise ConfigError(f"no key can be made: {e.strerror}", where=shown) from e
        say(f"{self.name}: made the key {shown}, without a passphrase")
        return line

    def _prove(self, key: _Key, warning: str | None) -> None:
        """Connect again with keys alone."""
        way = _changed(self.target, authentications=("publickey",))
        try:
            with self._connected(way) as connection:
                say(f"{self.name}: is opened by {without_fingerprint(connection.credential)} alone")
        except errors.LoginFailed as e:
            raise errors.LoginFailed(
                f"the key {key.label} is installed, and is not enough: {e.message}",
                where=self.name,
                hint=_why_not_enough(e, key, warning),
            ) from e


def _why_not_enough(error: HostError, key: _Key, warning: str | None) -> str | None:
    if isinstance(error, errors.TooManyKeys):
        if key.path is None:
            return error.hint
        return f"the agent's keys go first: name this one, with --identity {key.label}"
    return warning or (
        "sshd's log there says why. Often others may write to ~ or ~/.ssh there, or the server "
        "demands more than a key: then write the entry by hand"
    )


def _line(kind: str, blob: bytes, comment: str) -> str:
    return f"{kind} {base64.b64encode(blob).decode()} {comment}"


def _changed(found: Target, **changes: Any) -> Target:
    """Return the same target, each way with the changes."""
    ways = tuple(replace(way, **changes) for way in (found, *found.others))
    return replace(ways[0], others=ways[1:])


class _Memory:
    """Asks a person, and answers a jump host's question again at the second connection."""

    def __init__(self, ask: Prompter) -> None:
        self._ask = ask
        self._answers: dict[str, str] = {}
        self._asked: set[str] = set()

    def start_connection(self) -> None:
        """Expect the questions of another connection."""
        self._asked.clear()

    def __call__(self, prompt: str, *, secret: bool) -> str:
        """Return the answer; a question that comes twice at one connection is put again."""
        if prompt in self._answers and prompt not in self._asked:
            self._asked.add(prompt)
            return self._answers[prompt]
        answer = self._ask(prompt, secret=secret)
        self._asked.add(prompt)
        if secret and prompt.endswith("'s password: "):  # no code that is good for once
            self._answers[prompt] = answer
        return answer
