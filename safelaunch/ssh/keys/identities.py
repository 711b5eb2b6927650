"""Load key files and certificates, and decide the order in which a login tries the keys.

Paramiko's own classes decrypt before they know the type of a key, take the agent's socket from the
environment only, and change their arguments between versions; the formats are few and stable.
"""
# ruff: noqa: PLC0415, N818 - cryptography is imported late: 20 ms; exceptions name what happened

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
    from collections.abc import Callable, Container, Iterable, Iterator

    from safelaunch.ssh.config.target import Target

CERTIFICATE = "-cert-v01@openssh.com"
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_PUTTY = b"PuTTY-User-Key-File"
_MAX_FILE = 1 << 22


class UnusableKey(Exception):
    """A key file cannot be used; the message is the reason, for the user."""


class PassphraseRequired(Exception):
    """A key needs a passphrase: it is missing, or wrong."""


class Signer(Protocol):
    """Signs with a private key. `algorithm` selects the hash of an RSA signature."""

    def __call__(self, data: bytes, algorithm: str) -> bytes:
        """Return the signature in its wire format."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """A key to offer. `kind` and `blob` are those of its public key or of its certificate."""

    label: str  # its location, for messages
    kind: str
    blob: bytes
    sign: Signer | None = None  # None: `path` must be decrypted first
    path: str | None = None
    in_agent: bool = False  # signed by an agent, which may ask its user at each signature

    @property
    def description(self) -> str:
        """The label and fingerprint, for messages."""
        return f"{self.label} ({known_hosts.describe_key(self.kind, self.blob)})"


# -- wire format


def pack_string(data: bytes) -> bytes:
    """Return data with its length as a prefix."""
    return struct.pack(">I", len(data)) + data


def unpack_strings(data: bytes, count: int) -> list[bytes]:
    """Return the first `count` fields of a message. Raises ValueError."""
    fields = []
    for _ in range(count):
        if len(data) < 4:  # noqa: PLR2004 - the length
            raise ValueError("too short")
        (length,) = struct.unpack_from(">I", data)
        if length > len(data) - 4:
            raise ValueError("too short")
        fields.append(data[4 : 4 + length])
        data = data[4 + length :]
    return fields


# -- files


def parse_public_key(text: str) -> tuple[str, bytes] | None:
    """Return type and key of a line such as in id_ed25519.pub; None if it is not valid."""
    words = text.split()
    if not words[1:]:  # type and key
        return None
    with contextlib.suppress(binascii.Error, ValueError):
        blob = base64.b64decode(words[1], validate=True)
        if unpack_strings(blob, 1)[0].decode() == words[0]:
            return words[0], blob
    return None


def read_public_key(path: str) -> tuple[str, bytes] | None:
    """Return type and key of a .pub or certificate file; None if missing or not valid."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse_public_key(file.readline(1 << 16))
    except OSError:
        return None


def key_type(path: str) -> str | None:
    """Return the type of a key file, also of one whose private half is elsewhere."""
    public = None
    with contextlib.suppress(UnusableKey, FileNotFoundError):
        public = _public_half(path)
    public = public or read_public_key(path) or read_public_key(f"{path}.pub")
    return None if public is None else public[0]


def read_identities(path: str, label: str) -> list[Identity]:
    """Return the identities of a key file: its certificate, if there is one, and the key.

    Raises UnusableKey, FileNotFoundError; PassphraseRequired if even the public key needs it.
    """
    public = _public_half(path)
    sign: Signer | None = None
    if public is None or not _is_encrypted(path):
        public, sign = load_private_key(path, None)
    identities = [Identity(label, *public, sign, path)]
    certificate = read_public_key(f"{path.removesuffix('.pub')}-cert.pub")
    if certificate is not None:
        identities.insert(0, Identity(f"{label}-cert.pub", *certificate, sign, path))
    return identities


def certificate_identity(certificate: str, identities: Iterable[Identity]) -> Identity | None:
    """Return the identity of a certificate file, with the signer of the key it certifies."""
    public = read_public_key(certificate)
    if public is None:
        return None
    with contextlib.suppress(ValueError, ImportError):
        certified = _certified_key(public[1])
        for identity in identities:
            if identity.blob == certified:
                label = os.path.basename(certificate)
                return Identity(label, *public, identity.sign, identity.path, identity.in_agent)
    return None


def _certified_key(blob: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    kind = unpack_strings(blob, 1)[0]
    line = kind + b" " + base64.b64encode(blob)
    loaded = serialization.load_ssh_public_identity(line)
    key = loaded.public_key() if isinstance(loaded, serialization.SSHCertificate) else loaded
    form, encoding = serialization.PublicFormat.OpenSSH, serialization.Encoding.OpenSSH
    return base64.b64decode(key.public_bytes(encoding, form).split()[1])


def _read_key_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            if sys.platform != "win32":
                info = os.fstat(file.fileno())
                # OpenSSH also refuses a key that others could have read, unless others own it
                if info.st_mode & 0o077 and info.st_uid == os.geteuid():
                    raise UnusableKey("other users can read it: protect it with chmod 600")
            return file.read(_MAX_FILE)
    except FileNotFoundError:
        raise
    except OSError as e:
        raise UnusableKey(e.strerror or str(e)) from e


def _decode_armor(content: bytes) -> bytes:
    with contextlib.suppress(binascii.Error):
        raw = base64.b64decode(b"".join(content.strip().splitlines()[1:-1]))
        if raw.startswith(_MAGIC):
            return raw[len(_MAGIC) :]
    raise UnusableKey("it is damaged")


def _public_half(path: str) -> tuple[str, bytes] | None:
    content = _read_key_file(path)
    if content.startswith(_PUTTY):
        raise UnusableKey("it is in PuTTY's format: export it as an OpenSSH key with puttygen")
    if content.startswith(_OPENSSH):
        raw = _decode_armor(content)
        try:
            header = unpack_strings(raw, 3)
            remainder = raw[sum(len(field) + 4 for field in header) + 4 :]
            blob = unpack_strings(remainder, 1)[0]
            return unpack_strings(blob, 1)[0].decode(), blob
        except (ValueError, UnicodeDecodeError) as e:
            raise UnusableKey("it is damaged") from e
    return read_public_key(f"{path}.pub")


def _is_encrypted(path: str) -> bool:
    content = _read_key_file(path)
    if content.startswith(_OPENSSH):
        return unpack_strings(_decode_armor(content), 1)[0] != b"none"
    return b"ENCRYPTED" in content[:400]


def load_private_key(path: str, passphrase: str | None) -> tuple[tuple[str, bytes], Signer]:
    """Return type, public key and signer. Raises UnusableKey, PassphraseRequired."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    content = _read_key_file(path)
    openssh = content.startswith(_OPENSSH)
    load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    try:
        private = load(content, passphrase.encode() if passphrase else None)
    except TypeError as e:  # a passphrase is missing
        raise PassphraseRequired from e
    except UnsupportedAlgorithm as e:
        raise UnusableKey(f"its type or cipher is not supported ({e})") from e
    except ValueError as e:
        if passphrase or _is_encrypted(path):
            raise PassphraseRequired from e
        raise UnusableKey("it is not a private key") from e
    form, encoding = serialization.PublicFormat.OpenSSH, serialization.Encoding.OpenSSH
    line = private.public_key().public_bytes(encoding, form).decode()
    public = parse_public_key(line)
    if public is None or public[0] == "ssh-dss":
        raise UnusableKey("DSA keys are not supported")
    return public, _signer(private)


def _signer(private: Any) -> Signer:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

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
            pair = utils.decode_dss_signature(der)
            raw = b"".join(pack_string(n.to_bytes(n.bit_length() // 8 + 1, "big")) for n in pair)
        else:
            raise UnusableKey(f"{type(private).__name__} is not supported")
        return pack_string(name.encode()) + pack_string(raw)

    return sign


# -- order of the keys


def identities_to_try(
    target: Target, agent_keys: list[Identity], complain: Callable[[str, str], None]
) -> Iterator[Identity]:
    """Yield the keys to offer, in OpenSSH's order: certificates, configured keys, other keys.

    `complain(label, reason)` is called for key files that cannot be offered.
    """
    signers = {key.blob: key.sign for key in reversed(agent_keys)}
    files: list[Identity] = []
    for path in target.identities:
        identities = _configured_identities(path, target, signers, complain)
        # an agent that has one of a file's identities signs for all of them
        blob = next((file.blob for file in identities if file.blob in signers), None)
        if blob is not None:
            identities = [replace(id_, sign=signers[blob], in_agent=True) for id_ in identities]
        files += identities
    with_file = [key for file in files for key in agent_keys if key.blob == file.blob]
    others = [] if target.identities_only else [key for key in agent_keys if key not in with_file]
    file_only = [file for file in files if file.blob not in signers]
    certificates = (
        certificate_identity(path, [*agent_keys, *file_only]) for path in target.certificates
    )
    order = [*(key for key in certificates if key is not None), *with_file, *others, *file_only]
    order.sort(key=lambda key: not key.kind.endswith(CERTIFICATE))
    offered = set()
    for key in order:
        if not key.blob or key.blob not in offered:  # no blob: the passphrase is needed first
            offered.add(key.blob)
            yield key


def _configured_identities(
    path: str, target: Target, agent: Container[bytes], complain: Callable[[str, str], None]
) -> list[Identity]:
    """Return the identities of a key file; `agent` has the public keys of the agent."""
    home = os.path.expanduser("~")
    label = path
    if path.startswith(home + os.sep):
        label = f"~/{os.path.relpath(path, home)}".replace(os.sep, "/")
    try:
        return read_identities(path, label)
    except FileNotFoundError:
        # the public key is enough to select a key of the agent
        public = read_public_key(path) or read_public_key(f"{path}.pub")
        if public is not None and public[1] in agent:
            return [Identity(label, *public)]
        if target.identities_configured:
            complain(label, "no such file")
    except PassphraseRequired:
        return [Identity(label, "", b"", None, path)]
    except UnusableKey as e:
        public = read_public_key(path)  # IdentityFile may be the .pub of a key of the agent
        if public is not None:
            return [Identity(label, *public)] if public[1] in agent else []
        complain(label, str(e))
    return []
