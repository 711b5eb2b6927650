"""The id of a checkout: whose a project's folder on a host is."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets

_FILE = "machine-id"  # in safelaunch's folder: a random number, made once


def checkout_id(home: str, root: str) -> str:
    """Return a number for a project's folder on this machine: a hash that names neither."""
    path = os.path.normcase(os.path.realpath(root))
    text = f"{_machine_id(home)}\0{path}"
    return hashlib.blake2b(os.fsencode(text), digest_size=8).hexdigest()


def _machine_id(home: str) -> str:
    """Return the id of this machine's installation; its host name where none can be written."""
    path = os.path.join(home, _FILE)
    with contextlib.suppress(OSError):
        os.makedirs(home, 0o700, exist_ok=True)
        temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
        if not os.path.exists(path):
            with open(temporary, "x", encoding="ascii") as file:
                file.write(secrets.token_hex(16))
            with contextlib.suppress(OSError):  # of two starts at once the first one wins
                os.link(temporary, path)
            os.unlink(temporary)
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip() or platform.node()
    except OSError:
        return platform.node()
