"""OpenSSH's known_hosts files: which host keys are known for a name, and adding one.

Reads and appends; never rewrites. What to do about an unknown or a changed key is trust.py's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STANDARD_PORT = 22
AUTHORITY, REVOKED = "@cert-authority", "@revoked"
_SHA2 = ("rsa-sha2-512", "rsa-sha2-256")  # how a key of type ssh-rsa signs


@dataclass(frozen=True, slots=True)
class Line:
    """A key in a file. `hosts` is its first field: patterns, or a hash of one name."""

    file: str
    number: int
    marker: str | None
    hosts: str
    kind: str
    blob: bytes

    @property
    def where(self) -> str:
        """Return the place as file:line."""
        return f"{self.file}:{self.number}"

    def names(self, name: str) -> bool:
        """Tell whether the line is about a host, named as `host_name` does."""
        if self.hosts.startswith("|"):
            return _hashed_is(self.hosts, name)
        found = False
        for pattern in self.hosts.lower().split(","):
            if pattern.startswith("!") and _fits(pattern[1:], name):
                return False
            found = found or _fits(pattern, name)
        return found


def host_name(address: str, port: int) -> str:
    """Return the name under which known_hosts has an address."""
    address = address.lower()
    return address if port == STANDARD_PORT else f"[{address}]:{port}"


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as OpenSSH shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def describe(kind: str, blob: bytes) -> str:
    """Return a key in short: `ED25519 SHA256:...`."""
    return f"{short(kind)} {fingerprint(blob)}"


def short(kind: str) -> str:
    """Return a key type as people and OpenSSH call it: ED25519, RSA, ECDSA-SK."""
    name = next((name for name in ("ed25519", "ecdsa", "rsa", "dss") if name in kind), kind)
    return (name + "-sk" * kind.startswith("sk-") + "-cert" * ("-cert-" in kind)).upper()


def read(files: Iterable[str]) -> list[Line]:
    """Return the keys of some files; what is not there, and lines without one, are passed."""
    lines = []
    for file in files:
        try:
            with open(file, "rb") as opened:
                text = opened.read().decode("utf-8", "replace")
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found = _parse(file, number, line)
            if found is not None:
                lines.append(found)
    return lines


def about(lines: Iterable[Line], names: Iterable[str]) -> list[Line]:
    """Return the lines about a host that has these names."""
    wanted = list(names)
    return [line for line in lines if any(line.names(name) for name in wanted)]


def algorithms(lines: Iterable[Line]) -> list[str]:
    """Return the host key algorithms for which lines have a key, in their order, each once."""
    found: dict[str, None] = {}
    for line in lines:
        if line.marker is None:
            found |= dict.fromkeys(_SHA2 if line.kind == "ssh-rsa" else (line.kind,))
    return list(found)


def add(file: str, names: Sequence[str], kind: str, blob: bytes) -> None:
    """Append a key to a file, hashed where all names in it are. Raises OSError."""
    folder = os.path.dirname(file)
    if folder:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    known = read([file])
    hashed = bool(known) and all(line.hosts.startswith("|") for line in known)
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


def _parse(file: str, number: int, line: str) -> Line | None:
    words = line.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else None
    if len(words) < 3:  # noqa: PLR2004 - hosts, type, key; a comment may follow
        return None
    try:
        blob = base64.b64decode(words[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return Line(file, number, marker, words[0], words[1], blob)


def _fits(pattern: str, name: str) -> bool:
    """Tell whether a name fits a pattern: `*` and `?` are wild, brackets are not."""
    parts = ({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in pattern)
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None


def _hashed_is(field: str, name: str) -> bool:
    try:
        _, scheme, salt, digest = field.split("|")
        raw = base64.b64decode(salt)
        return scheme == "1" and hmac.compare_digest(_digest(raw, name), base64.b64decode(digest))
    except (binascii.Error, ValueError):
        return False


def _digest(salt: bytes, name: str) -> bytes:
    return hmac.new(salt, name.encode(), "sha1").digest()


def _hash(name: str) -> str:
    salt = os.urandom(20)
    fields = ("1", base64.b64encode(salt).decode(), base64.b64encode(_digest(salt, name)).decode())
    return "|" + "|".join(fields)
