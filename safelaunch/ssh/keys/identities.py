"""The keys that can prove who we are: key files, certificates, and in which order they are tried.

Paramiko's own classes decrypt before they know what a key is, take the agent's socket from the
environment only, and change their arguments between versions; the formats are few and stable.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import struct
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from safelaunch.ssh.keys import known_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.ssh.config.target import Target

CERTIFICATE = "-cert-v01@openssh.com"
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_PUTTY = b"PuTTY-User-Key-File"
_LONGEST = 1 << 22


class Unreadable(Exception):  # noqa: N818 - reads as what happened
    """A key file cannot be used; its text is the reason, for people."""


class Locked(Exception):  # noqa: N818 - reads as what happened
    """A key needs a passphrase: none was given, or a wrong one."""


class Signer(Protocol):
    """A private key. `algorithm` says how an RSA key is to sign."""

    def __call__(self, data: bytes, algorithm: str) -> bytes:
        """Return the signature as it goes over the wire."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """A key to be offered. `kind` and `blob` are of its public half or of its certificate."""

    label: str  # for people: where it is
    kind: str
    blob: bytes
    sign: Signer | None = None  # None: `path` is to be opened first
    path: str | None = None
    held: bool = False  # by an agent, which may ask its user at each signature

    @property
    def shown(self) -> str:
        """Return it in short, for messages."""
        return f"{self.label} ({known_hosts.describe(self.kind, self.blob)})"


# -- parts of messages


def string(data: bytes) -> bytes:
    """Return data with its length before it."""
    return struct.pack(">I", len(data)) + data


def strings(data: bytes, count: int) -> list[bytes]:
    """Return the first fields of a message. Raises ValueError."""
    found = []
    for _ in range(count):
        if len(data) < 4:  # noqa: PLR2004 - the length
            raise ValueError("too short")
        (length,) = struct.unpack_from(">I", data)
        if length > len(data) - 4:
            raise ValueError("too short")
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


# -- files


def public_line(text: str) -> tuple[str, bytes] | None:
    """Return type and key of a line as in id_ed25519.pub; None where it is none."""
    words = text.split()
    if len(words) < 2:  # noqa: PLR2004 - type and key
        return None
    with contextlib.suppress(binascii.Error, ValueError):
        blob = base64.b64decode(words[1], validate=True)
        if strings(blob, 1)[0].decode() == words[0]:
            return words[0], blob
    return None


def read_public(path: str) -> tuple[str, bytes] | None:
    """Return type and key of a .pub or certificate file; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return public_line(file.readline(1 << 16))
    except OSError:
        return None


def from_file(path: str, label: str) -> list[Identity]:
    """Return the identities of a key file: its certificate's beside it, and its own.

    None where its public half cannot be known without the passphrase. Raises Unreadable, Locked,
    FileNotFoundError.
    """
    known = _public_half(path)
    sign: Signer | None = None
    if known is None or not _encrypted(path):
        known, sign = open_file(path, None)
    found = [Identity(label, *known, sign, path)]
    certificate = read_public(f"{path.removesuffix('.pub')}-cert.pub")
    if certificate is not None:
        found.insert(0, Identity(f"{label}-cert.pub", *certificate, sign, path))
    return found


def certified(certificate: str, identities: Iterable[Identity]) -> Identity | None:
    """Return the identity of a certificate file, signed for by the one of its key."""
    found = read_public(certificate)
    if found is None:
        return None
    with contextlib.suppress(ValueError, ImportError):
        plain = _certified_key(found[1])
        for identity in identities:
            if identity.blob == plain:
                label = os.path.basename(certificate)
                return Identity(label, *found, identity.sign, identity.path, identity.held)
    return None


def _certified_key(blob: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - 20 ms

    kind = strings(blob, 1)[0]
    line = kind + b" " + base64.b64encode(blob)
    loaded = serialization.load_ssh_public_identity(line)
    key = loaded.public_key() if isinstance(loaded, serialization.SSHCertificate) else loaded
    form, encoding = serialization.PublicFormat.OpenSSH, serialization.Encoding.OpenSSH
    return base64.b64decode(key.public_bytes(encoding, form).split()[1])


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                _check_owner(file.fileno())
            return file.read(_LONGEST)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise Unreadable(e.strerror or str(e)) from e


def _check_owner(descriptor: int) -> None:
    # as OpenSSH: what others could have read is no secret; files of others are their matter
    if sys.platform != "win32" and os.fstat(descriptor).st_uid == os.geteuid():
        raise Unreadable("others can read it, so it is not used (chmod 600)")


def _unarmoured(content: bytes) -> bytes:
    lines = content.strip().splitlines()
    try:
        raw = base64.b64decode(b"".join(lines[1:-1]))
    except binascii.Error as e:
        raise Unreadable("it is damaged") from e
    if not raw.startswith(_MAGIC):
        raise Unreadable("it is damaged")
    return raw[len(_MAGIC) :]


def _public_half(path: str) -> tuple[str, bytes] | None:
    content = _content(path)
    if content.startswith(_PUTTY):
        raise Unreadable("it is in PuTTY's format: export it as OpenSSH key with puttygen")
    if content.startswith(_OPENSSH):
        raw = _unarmoured(content)
        try:
            head = strings(raw, 3)
            rest = raw[sum(len(part) + 4 for part in head) + 4 :]
            blob = strings(rest, 1)[0]
            return strings(blob, 1)[0].decode(), blob
        except (ValueError, UnicodeDecodeError) as e:
            raise Unreadable("it is damaged") from e
    return read_public(f"{path}.pub")


def _encrypted(path: str) -> bool:
    content = _content(path)
    if content.startswith(_OPENSSH):
        return strings(_unarmoured(content), 1)[0] != b"none"
    return b"ENCRYPTED" in content[:400]


def open_file(path: str, passphrase: str | None) -> tuple[tuple[str, bytes], Signer]:
    """Return type, public key and signer of a key file. Raises Unreadable, Locked."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - 20 ms
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - 20 ms

    content = _content(path)
    openssh = content.startswith(_OPENSSH)
    load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    try:
        private = load(content, passphrase.encode() if passphrase else None)
    except TypeError as e:  # a passphrase is missing
        raise Locked from e
    except UnsupportedAlgorithm as e:
        raise Unreadable(f"its type or cipher is not supported ({e})") from e
    except ValueError as e:
        if passphrase or _encrypted(path):
            raise Locked from e
        raise Unreadable("it is no private key") from e
    form, encoding = serialization.PublicFormat.OpenSSH, serialization.Encoding.OpenSSH
    line = private.public_key().public_bytes(encoding, form).decode()
    known = public_line(line)
    if known is None or known[0] == "ssh-dss":
        raise Unreadable("DSA keys are not supported any more")
    return known, _signer(private)


def _signer(private: Any) -> Signer:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - 20 ms
    from cryptography.hazmat.primitives.asymmetric import (  # noqa: PLC0415 - 20 ms
        ec,
        ed25519,
        padding,
        rsa,
        utils,
    )

    def sign(data: bytes, algorithm: str) -> bytes:
        name = algorithm.removesuffix(CERTIFICATE)
        if isinstance(private, ed25519.Ed25519PrivateKey):
            raw = private.sign(data)
        elif isinstance(private, rsa.RSAPrivateKey):
            digest = hashes.SHA512() if name.endswith("512") else hashes.SHA256()
            raw = private.sign(data, padding.PKCS1v15(), digest)
        elif isinstance(private, ec.EllipticCurvePrivateKey):
            sizes = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
            der = private.sign(data, ec.ECDSA(sizes[private.curve.key_size]))
            raw = b"".join(map(_integer, utils.decode_dss_signature(der)))
        else:
            raise Unreadable(f"{type(private).__name__} is not supported")
        return string(name.encode()) + string(raw)

    return sign


def _integer(number: int) -> bytes:
    return string(number.to_bytes(number.bit_length() // 8 + 1, "big"))


# -- which are offered


def candidates(
    target: Target, held: list[Identity], complain: Callable[[str, str], None]
) -> Iterator[Identity]:
    """Yield what is to be offered, in OpenSSH's order: certificates, named keys, the others.

    `complain(label, why)` hears of key files that cannot be offered.
    """
    files: list[Identity] = []
    for path in target.identities:
        files += _signed_by_agent(_of_file(path, target, held, complain), held)
    with_file = [key for file in files for key in held if key.blob == file.blob]
    others = [] if target.identities_only else [key for key in held if key not in with_file]
    own = [file for file in files if all(file.blob != key.blob for key in held)]
    extra = (certified(path, [*held, *own]) for path in target.certificates)
    order = [*(key for key in extra if key is not None), *with_file, *others, *own]
    order.sort(key=lambda key: not key.kind.endswith(CERTIFICATE))
    offered = set()
    for key in order:
        if not key.blob or key.blob not in offered:  # without one, its passphrase comes first
            offered.add(key.blob)
            yield key


def _signed_by_agent(files: list[Identity], held: list[Identity]) -> list[Identity]:
    """Let the agent sign for the certificate of a key that it holds."""
    for file in files:
        for key in held:
            if key.blob == file.blob:
                return [replace(other, sign=key.sign, held=True) for other in files]
    return files


def _of_file(
    path: str, target: Target, held: list[Identity], complain: Callable[[str, str], None]
) -> list[Identity]:
    label = _label(path)
    try:
        return from_file(path, label)
    except FileNotFoundError:
        # the public half is enough to choose a key of the agent
        known = read_public(path) or read_public(f"{path}.pub")
        if known is not None and any(key.blob == known[1] for key in held):
            return [Identity(label, *known)]
        if target.identities_given:
            complain(label, "there is no such file")
    except Locked:
        return [Identity(label, "", b"", None, path)]
    except Unreadable as e:
        known = read_public(path)  # IdentityFile may name the .pub of a key of the agent
        if known is not None:
            return [Identity(label, *known)] if any(k.blob == known[1] for k in held) else []
        complain(label, str(e))
    return []


def _label(path: str) -> str:
    home = os.path.expanduser("~")
    short = os.path.relpath(path, home) if path.startswith(home + os.sep) else ""
    return f"~/{short}".replace(os.sep, "/") if short else path
