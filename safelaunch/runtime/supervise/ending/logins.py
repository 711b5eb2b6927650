"""Who is logged in on this machine: by the login records, and by the sessions of its SSH server."""

from __future__ import annotations

import os
import re
import struct

from safelaunch.runtime import processes

UTMP = "/run/utmp"
# utmp(5) on 64-bit Linux: type, pid, line, id, user, host, and what is not read
_RECORD = struct.Struct("<hxxi32s4s32s256s52x")
_USER_PROCESS = 7
# how an SSH server names the process of a session with a terminal; without one: user@notty
_SESSION = re.compile(rb"sshd(?:-session)?: ([^@\s]+)@(pts/\d+|tty\d+)")


def logins(path: str = UTMP) -> list[str]:
    """Return `NAME on pts/0` for each login with a terminal."""
    return sorted({*_recorded(path), *_sessions()})


def _recorded(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return []  # a container has none
    names = []
    for at in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        kind, pid, line, _, user, _ = _RECORD.unpack_from(data, at)
        # a record may be left of a login whose end nobody wrote
        if kind == _USER_PROCESS and os.path.exists(f"/proc/{pid}"):
            names.append(_words(user, line))
    return names


def _sessions() -> list[str]:
    names = []
    for pid in processes.pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                match = _SESSION.match(file.read(256))
        except OSError:
            continue  # it has just ended
        if match:
            names.append(_words(match[1], match[2]))
    return names


def _words(user: bytes, line: bytes) -> str:
    name, terminal = (text.split(b"\0")[0].decode("utf-8", "replace") for text in (user, line))
    return f"{name} on {terminal}"
