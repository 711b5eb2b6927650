"""What `hosts add` needs once: a key of our own, and its public half on the host."""

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

PATIENCE = 60.0  # seconds for the few commands there

# One line, for a login shell of any kind: csh ends a quoted word at a line's end. The key comes on
# stdin. What is in the file stays as it is; a last line without its end gets one.
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
class Installed:
    """What became of a key on a host."""

    added: bool  # False: it was there
    warning: str | None  # why sshd may not take it all the same


def install_key(connection: Connection, public_key: str) -> Installed:
    """Add a public key to the user's authorized_keys; once. Raises HostError, ConnectionLost."""
    known = identities.public_line(public_key)
    if known is None:
        raise ConfigError("this is no public key", hint="it is one line, as in id_ed25519.pub")
    command = "sh -c " + quote(" ".join(_INSTALL.split("\n")).strip())
    with connection.exec(command) as channel:
        channel.write(" ".join(public_key.split()).encode() + b"\n")
        channel.close_stdin()
        out = b""
        while part := channel.read(4096):
            out += part
        code = channel.exit_code(PATIENCE)
        # what a startup file prints comes before
        found = out.rpartition(b"safelaunch-key ")
        if code != 0 or not found[1]:
            raise errors.no_answer(connection.name, out, channel.stderr_tail(), code)
    words = found[2].decode("utf-8", "replace").split()
    warning = None
    if "loose" in words:
        warning = (
            f"{connection.name}: others may write to the home directory there, so sshd may not "
            "take keys from it: chmod go-w ~"
        )
    return Installed("added" in words, warning)


def make_key(path: str, *, comment: str, passphrase: str | None = None) -> str:
    """Make an ed25519 key at `path` and return its public line. Raises ConfigError, OSError.

    The private half is 0600 and without a passphrase unless one is given; nothing is overwritten.
    """
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - 20 ms
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - 20 ms

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
            raise ConfigError("there is a file already", where=name) from e
        with os.fdopen(opened, "wb") as file:
            file.write(content + (b"\n" if name != path else b""))
    return line
