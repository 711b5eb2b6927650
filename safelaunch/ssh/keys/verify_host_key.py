"""Verify a host key against known_hosts, and prompt for confirmation of an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.script import quote
from safelaunch.ssh import errors
from safelaunch.ssh.config.address import STANDARD_PORT
from safelaunch.ssh.keys import known_hosts
from safelaunch.ssh.keys.known_hosts import describe_key, known_hosts_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.keys.known_hosts import KnownHost
    from safelaunch.ssh.prompt import Prompter


class HostKeyVerifier:
    """Verifies the host key of a machine; a key known for any of its addresses is accepted."""

    def __init__(self, target: Target, routes: Sequence[Target]) -> None:
        """Read known_hosts. `target` is the current target, `routes` are all of the machine."""
        self.target = target
        self._user_file = next(iter(target.known_hosts), None)
        names = (
            route.host_key_alias or known_hosts_name(route.address, route.port)
            for route in (target, *routes)
        )
        self.host_names = list(dict.fromkeys(names))
        lines = known_hosts.read_entries((*target.known_hosts, *target.system_known_hosts))
        entries = known_hosts.entries_for(lines, self.host_names)
        self.lines = [line for line in entries if line.marker is None]
        self.authorities = [line for line in entries if line.marker == known_hosts.AUTHORITY]
        self._revoked = [line for line in entries if line.marker == known_hosts.REVOKED]
        # OpenSSH also accepts the key that is known for the same host at the standard port
        bare = (
            () if target.host_key_alias else {route.address.lower() for route in (target, *routes)}
        )
        other = known_hosts.entries_for(lines, bare) if target.port != STANDARD_PORT else []
        self._standard_port_lines = [line for line in other if line.marker is None]

    def algorithms(self, supported: Sequence[str]) -> list[str]:
        """Return the host key algorithms to request: first those of the known keys."""
        algorithms = known_hosts.host_key_algorithms(self.lines + self._standard_port_lines)
        return list(dict.fromkeys([*(a for a in algorithms if a in supported), *supported]))

    def check(
        self, kind: str, blob: bytes, ask: Prompter | None, notify: Callable[[str], None]
    ) -> None:
        """Return if the server's key is accepted. Raises UntrustedHostKey."""
        for line in self._revoked:
            if line.blob == blob:
                raise self._error(f"its host key is revoked in {line.where}", None)
        if any(line.blob == blob for line in (*self.lines, *self._standard_port_lines)):
            return
        same_kind = [line for line in self.lines if line.kind == kind]
        if same_kind:
            raise self._changed_key_error(same_kind[0], kind, blob)
        self._handle_unknown(kind, blob, ask, notify)

    def _changed_key_error(self, line: KnownHost, kind: str, blob: bytes) -> HostError:
        name = next(filter(line.matches_name, self.host_names), self.host_names[0])
        return self._error(
            f"its host key has changed: it shows {describe_key(kind, blob)}, but {line.where} has "
            f"{known_hosts.fingerprint(line.blob)}",
            "the machine was replaced or reinstalled, or somebody intercepts the connection. If "
            f"you know the reason: ssh-keygen -f {quote(line.file)} -R {quote(name)}",
        )

    def _handle_unknown(
        self, kind: str, blob: bytes, ask: Prompter | None, notify: Callable[[str], None]
    ) -> None:
        target = self.target
        other = self.lines[0] if self.lines else None
        if target.strict in ("no", "accept-new") and other is None:
            self._store(kind, blob, notify)
            stored = f"new host key {describe_key(kind, blob)}, stored in {self._user_file}"
            notify(f"{target.name}: {stored}")
            return
        notes = self._notes(other)
        shown = f"its host key is not known: {describe_key(kind, blob)}{''.join(notes)}"
        if target.strict != "ask":
            raise self._error(
                shown,
                "StrictHostKeyChecking forbids unknown keys: compare the fingerprint with the "
                "machine's own and add the key to known_hosts",
            )
        if self.authorities:  # `ssh` would check a certificate: a yes to the bare key proves less
            raise self._error(
                shown,
                "only `ssh` can check the certificate of a host key: remove `transport: paramiko`, "
                "or install OpenSSH's client",
            )
        if ask is None:
            raise self._error(
                shown,
                "connect once from a terminal, compare the fingerprint and answer yes: "
                f"safelaunch hosts test {target.name}",
            )
        if not self._confirmed(kind, blob, ask, notes):
            raise self._error("its host key was not accepted", None)
        self._store(kind, blob, notify)

    def _notes(self, other: KnownHost | None) -> list[str]:
        notes = []
        if other is not None:
            key = f"{known_hosts.key_type_name(other.kind)} key"
            notes.append(f"; {other.where} has its {key}, which the server does not offer")
        if self.authorities:
            line = self.authorities[0]
            notes.append(f"; {line.where} trusts a certificate authority for it")
        return notes

    def _confirmed(self, kind: str, blob: bytes, ask: Prompter, notes: Sequence[str]) -> bool:
        address = f"{self.target.address} port {self.target.port}"
        key_fingerprint = known_hosts.fingerprint(blob)
        prompt = (
            f"The authenticity of host '{self.target.name}' ({address}) can't be established.\n"
            f"{known_hosts.key_type_name(kind)} key fingerprint is {key_fingerprint}.\n"
            + "".join(f"{note.removeprefix('; ')}\n" for note in notes)
            + "Are you sure you want to continue connecting (yes/no/[fingerprint])? "
        )
        while True:
            try:
                answer = ask(prompt, secret=False).strip()
            except EOFError:
                return False
            if answer.lower() == "yes" or answer == key_fingerprint:
                return True
            if answer.lower() == "no":
                return False
            prompt = "Please type yes, no or the fingerprint: "

    def _store(self, kind: str, blob: bytes, notify: Callable[[str], None]) -> None:
        file = self._user_file
        try:
            if file is not None:
                known_hosts.add_entry(file, self.host_names, kind, blob)
        except OSError as e:
            notify(f"{self.target.name}: its host key could not be stored in {file}: {e.strerror}")

    def _error(self, message: str, hint: str | None) -> HostError:
        return errors.UntrustedHostKey(message, where=self.target.name, hint=hint)
