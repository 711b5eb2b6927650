"""Generate a key pair, and install its public key on a host, for `hosts add`."""
# ruff: noqa: PLC0415 - cryptography is imported where it is used: 20 ms

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.script import quote
from safelaunch.ssh import errors
from safelaunch.ssh.keys import identities

if TYPE_CHECKING:
    from safelaunch.ssh.connection import Connection

EXIT_TIMEOUT = 60.0  # seconds for the install script

# Joined to one line for any login shell: csh ends a quoted word at the end of a line. The key comes
# on stdin. Existing lines of the file stay unchanged; a missing final newline is added.
_INSTALL = """
umask 077; cd || exit 3; f=.ssh/authorized_keys;
read -r kind blob rest || exit 4;
mkdir -p .ssh || exit 5;
if [ -f "$f" ] && grep -v "^[[:space:]]*#" "$f" | grep -qF -e "$kind $blob"; then what=present;
else
[ -s "$f" ] && [ -n "$(tail -c 1 "$f")" ] && { echo >> "$f" || exit 6; };
echo "$kind $blob $rest" >> "$f" || exit 6; what=added; fi;
chmod go-w .ssh "$f" || exit 7;
command -v restorecon >/dev/null 2>&1 && restorecon .ssh "$f" >/dev/null 2>&1;
loose=; case $(ls -ld . | cut -c 1-10) in d????w*|d???????w*) loose=loose;; esac;
echo "safelaunch-key $what $loose"
"""


@dataclass(frozen=True, slots=True)
class InstallResult:
    """The result of install_key."""

    added: bool  # False: it was installed before
    warning: str | None  # why sshd may still reject the key


def install_key(connection: Connection, public_key: str) -> InstallResult:
    """Add a public key to authorized_keys, unless it is there. Raises HostError, ConnectionLost."""
    parsed = identities.parse_public_key(public_key)
    if parsed is None:
        raise ConfigError("not a public key", hint="it is one line, as in id_ed25519.pub")
    command = "sh -c " + quote(" ".join(_INSTALL.split("\n")).strip())
    with connection.exec(command) as channel:
        channel.write(" ".join(public_key.split()).encode() + b"\n")
        channel.close_stdin()
        out = b""
        while chunk := channel.read(4096):
            out += chunk
        code = channel.exit_code(EXIT_TIMEOUT)
        # startup files may print text before the result
        marker = out.rpartition(b"safelaunch-key ")
        if code != 0 or not marker[1]:
            raise errors.command_failed(connection.name, out, channel.stderr_tail(), code)
    words = marker[2].decode("utf-8", "replace").split()
    warning = None
    if "loose" in words:
        warning = (
            f"{connection.name}: other users may write to the home directory of the account, so "
            "sshd may ignore its keys: run `chmod go-w ~` there"
        )
    return InstallResult("added" in words, warning)


def generate_key(path: str, *, comment: str, passphrase: str | None = None) -> str:
    """Create an ed25519 key pair at `path` and return its public line.

    The private key has mode 0600, and no passphrase by default; no file is overwritten.
    Raises ConfigError, OSError.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    private = ed25519.Ed25519PrivateKey.generate()
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        lock = serialization.BestAvailableEncryption(passphrase.encode())
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, lock
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {' '.join(comment.split())}".strip()
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    for name, content, mode in ((path, secret, 0o600), (f"{path}.pub", line.encode(), 0o644)):
        try:
            opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError as e:
            if name != path:
                os.unlink(path)
            raise ConfigError("the file exists already", where=name) from e
        with os.fdopen(opened, "wb") as file:
            file.write(content + (b"\n" if name != path else b""))
    return line
