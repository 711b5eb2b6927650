"""Is this the machine that is meant? Its host key against known_hosts, and a question."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from safelaunch.script import quote
from safelaunch.ssh import errors
from safelaunch.ssh.keys import known_hosts
from safelaunch.ssh.keys.known_hosts import STANDARD_PORT, describe, host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.keys.known_hosts import Line
    from safelaunch.ssh.login import Ask

_ANSWERS = "yes, no or the fingerprint"


class Known:
    """What known_hosts says of a machine: under each of its addresses, since it is one machine."""

    def __init__(self, target: Target, ways: Sequence[Target]) -> None:
        """`target` is the way that is taken now, `ways` are all."""
        self.target = target
        self.names = list(dict.fromkeys(_name(way) for way in (target, *ways)))
        lines = known_hosts.read((*target.known_hosts, *target.system_known_hosts))
        found = known_hosts.about(lines, self.names)
        self.lines = [line for line in found if line.marker is None]
        self._authorities = [line for line in found if line.marker == known_hosts.AUTHORITY]
        self._revoked = [line for line in found if line.marker == known_hosts.REVOKED]
        # as OpenSSH: a key known for the usual port is one of the machine's
        bare = () if target.host_key_alias else {way.address.lower() for way in (target, *ways)}
        other = known_hosts.about(lines, bare) if target.port != STANDARD_PORT else []
        self._elsewhere = [line for line in other if line.marker is None]

    def algorithms(self, supported: Sequence[str]) -> list[str]:
        """Return the host key algorithms to ask for: first those for which a key is known."""
        first = [a for a in known_hosts.algorithms(self.lines + self._elsewhere) if a in supported]
        return list(dict.fromkeys([*first, *supported]))

    def check(self, kind: str, blob: bytes, ask: Ask | None, say: Callable[[str], None]) -> None:
        """Accept the key that was shown, or raise Untrusted."""
        for line in self._revoked:
            if line.blob == blob:
                raise self._error(f"its host key is revoked in {line.where}", None)
        if any(line.blob == blob for line in (*self.lines, *self._elsewhere)):
            return
        same = [line for line in self.lines if line.kind == kind]
        if same:
            raise self._changed(same[0], kind, blob)
        self._unknown(kind, blob, ask, say)

    def _changed(self, line: Line, kind: str, blob: bytes) -> HostError:
        name = next((name for name in self.names if line.names(name)), self.names[0])
        return self._error(
            f"its host key has changed: it shows {describe(kind, blob)}, and {line.where} has "
            f"{known_hosts.fingerprint(line.blob)}",
            "this is another machine, one that was set up anew, or somebody in between. Where you "
            f"know why: ssh-keygen -f {quote(line.file)} -R {quote(name)}",
        )

    def _unknown(self, kind: str, blob: bytes, ask: Ask | None, say: Callable[[str], None]) -> None:
        target = self.target
        other = self.lines[0] if self.lines else None
        if target.strict in ("no", "accept-new") and other is None:
            self._add(kind, blob, say)
            say(f"{target.name}: new host key {describe(kind, blob)}, kept in {self._file()}")
            return
        notes = self._notes(other)
        shown = f"its host key is not known: {describe(kind, blob)}{''.join(notes)}"
        if target.strict != "ask":
            raise self._error(
                shown,
                "StrictHostKeyChecking forbids unknown keys: compare the fingerprint with the "
                "machine's own and add the key to known_hosts",
            )
        if ask is None:
            raise self._error(
                shown,
                "connect once from a terminal, compare the fingerprint and say yes: "
                f"safelaunch hosts test {target.name}",
            )
        if not self._agreed(kind, blob, ask, notes):
            raise self._error("its host key was not accepted", None)
        self._add(kind, blob, say)

    def _notes(self, other: Line | None) -> list[str]:
        notes = []
        if other is not None:
            key = f"{known_hosts.short(other.kind)} key"
            notes.append(f"; {other.where} has its {key}, which it does not show")
        if self._authorities:
            line = self._authorities[0]
            notes.append(f"; {line.where} trusts an authority for it, which safelaunch cannot use")
        return notes

    def _agreed(self, kind: str, blob: bytes, ask: Ask, notes: Sequence[str]) -> bool:
        place = f"{self.target.address} port {self.target.port}"
        print_ = known_hosts.fingerprint(blob)
        prompt = (
            f"The authenticity of host '{self.target.name}' ({place}) can't be established.\n"
            f"{known_hosts.short(kind)} key fingerprint is {print_}.\n"
            + "".join(f"{note.removeprefix('; ')}\n" for note in notes)
            + "Are you sure you want to continue connecting (yes/no/[fingerprint])? "
        )
        while True:
            try:
                answer = ask(prompt, secret=False).strip()
            except EOFError:
                return False
            if answer.lower() == "yes" or answer == print_:
                return True
            if answer.lower() == "no":
                return False
            prompt = f"Please type {_ANSWERS}: "

    def _add(self, kind: str, blob: bytes, say: Callable[[str], None]) -> None:
        file = self._file()
        try:
            if file is not None:
                known_hosts.add(file, self.names, kind, blob)
        except OSError as e:
            say(f"{self.target.name}: its host key could not be kept in {file}: {e.strerror}")

    def _file(self) -> str | None:
        with contextlib.suppress(IndexError):
            return self.target.known_hosts[0]
        return None

    def _error(self, message: str, hint: str | None) -> HostError:
        return errors.Untrusted(message, where=self.target.name, hint=hint)


def _name(way: Target) -> str:
    return way.host_key_alias or host_name(way.address, way.port)
