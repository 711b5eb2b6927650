"""Read OpenSSH's known_hosts files, and append a host key.

Never rewrites a line. verify_host_key.py decides about an unknown or a changed key.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.ssh.config.address import STANDARD_PORT, matches_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

AUTHORITY, REVOKED = "@cert-authority", "@revoked"
_SHA2 = ("rsa-sha2-512", "rsa-sha2-256")  # how a key of type ssh-rsa signs


@dataclass(frozen=True, slots=True)
class KnownHost:
    """A line with a host key. `hosts` is its first field: patterns, or a hash of one name."""

    file: str
    number: int
    marker: str | None
    hosts: str
    kind: str
    blob: bytes

    @property
    def where(self) -> str:
        """The location as file:line."""
        return f"{self.file}:{self.number}"

    def matches_name(self, name: str) -> bool:
        """Whether the line is for a host, whose name has the form of `known_hosts_name`."""
        if not self.hosts.startswith("|"):
            return matches_patterns(self.hosts.lower().split(","), name)
        try:
            _, scheme, salt, digest = self.hosts.split("|")
            actual, expected = _digest(base64.b64decode(salt), name), base64.b64decode(digest)
        except (binascii.Error, ValueError):
            return False
        return scheme == "1" and hmac.compare_digest(actual, expected)


class HostKey(NamedTuple):
    """A server's host key that was verified."""

    description: str  # as of `describe_key`
    where: str | None  # file and line of known_hosts; None: in no file


def known_hosts_name(address: str, port: int) -> str:
    """Return the name of an address in known_hosts."""
    address = address.lower()
    return address if port == STANDARD_PORT else f"[{address}]:{port}"


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a key in OpenSSH's format."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def without_fingerprint(credential: str) -> str:
    """Return a credential without the key's fingerprint: the name of its file is enough."""
    return re.sub(r" SHA256:[^\s)]+", "", credential)


def describe_key(kind: str, blob: bytes) -> str:
    """Return the type and fingerprint of a key: `ED25519 SHA256:...`."""
    return f"{key_type_name(kind)} {fingerprint(blob)}"


def key_type_name(kind: str) -> str:
    """Return the short name of a key type: ED25519, RSA, ECDSA-SK."""
    name = next((name for name in ("ed25519", "ecdsa", "rsa", "dss") if name in kind), kind)
    return (name + "-sk" * kind.startswith("sk-") + "-cert" * ("-cert-" in kind)).upper()


def read_entries(files: Iterable[str]) -> list[KnownHost]:
    """Return the keys of the files; skip missing files, and lines without a key."""
    entries = []
    for file in files:
        with contextlib.suppress(OSError), open(file, "rb") as opened:
            text = opened.read().decode("utf-8", "replace")
            lines = enumerate(text.splitlines(), 1)
            entries += [_parse(file, number, line) for number, line in lines]
    return [entry for entry in entries if entry is not None]


def has_authorities(file: str) -> bool:
    """Whether a file trusts a certificate authority, for whichever host."""
    with contextlib.suppress(OSError), open(file, "rb") as opened:
        return AUTHORITY.encode() in opened.read()
    return False


def entries_for(lines: Iterable[KnownHost], names: Iterable[str]) -> list[KnownHost]:
    """Return the lines for a host with these names."""
    host_names = list(names)
    return [line for line in lines if any(line.matches_name(name) for name in host_names)]


def host_key_algorithms(lines: Iterable[KnownHost]) -> list[str]:
    """Return the host key algorithms of the keys in lines, in order, each once."""
    kinds = [line.kind for line in lines if line.marker is None]
    algorithms = (a for kind in kinds for a in (_SHA2 if kind == "ssh-rsa" else (kind,)))
    return list(dict.fromkeys(algorithms))


def add_entry(file: str, names: Sequence[str], kind: str, blob: bytes) -> None:
    """Append a key to a file; hash the names if the file has only hashed ones. Raises OSError."""
    folder = os.path.dirname(file)
    if folder:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    entries = read_entries([file])
    hashed = bool(entries) and all(line.hosts.startswith("|") for line in entries)
    fields = [_hash(name) for name in names] if hashed else [",".join(names)]
    key = base64.b64encode(blob).decode()
    text = "".join(f"{field} {kind} {key}\n" for field in fields)
    opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(opened, "r+b", buffering=0) as appended:
        if appended.seek(0, os.SEEK_END):
            appended.seek(-1, os.SEEK_END)
            if appended.read(1) != b"\n":
                text = "\n" + text
        appended.write(text.encode())


def _parse(file: str, number: int, line: str) -> KnownHost | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else None
    if not words[2:]:  # hosts, type, key; a comment may follow
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return KnownHost(file, number, marker, words[0], words[1], blob)


def _digest(salt: bytes, name: str) -> bytes:
    return hmac.new(salt, name.encode(), "sha1").digest()


def _hash(name: str) -> str:
    salt = os.urandom(20)
    encoded = (base64.b64encode(data).decode() for data in (salt, _digest(salt, name)))
    return "|".join(("", "1", *encoded))
