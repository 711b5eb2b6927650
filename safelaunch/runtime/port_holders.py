"""Who holds a TCP port: from the kernel's table of sockets, and the descriptors of processes.

Seen is what this process may see: sockets of its own network namespace, and descriptors of its
user's processes (of all with root).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"  # TCP_LISTEN of include/net/tcp_states.h
_MOST = 1 << 24  # bytes of a table
_SHOWN = 4  # processes of one socket: workers that were forked with it
_WORDS = 200  # characters of a command


def holders_of(port: int) -> dict[str, Any]:
    """Return of a port: whether somebody `listens` (None: not known), and the `holders`.

    A holder has `user`, and where they are seen `pid` and `command`. Without a listener a port may
    still be taken: by an outgoing connection, or by one that is just closing (TIME_WAIT).
    """
    tables = [_rows(text) for text in map(_text, _TABLES) if text]
    rows = [row for table in tables for row in table if row[0] == port]
    listening = [row for row in rows if row[1] == _LISTENS]
    inodes = {row[3]: row[2] for row in listening or rows if row[3] != "0"}
    found = _processes(inodes)
    seen = {one["inode"] for one in found}
    hidden = [{"user": _user(uid)} for inode, uid in inodes.items() if inode not in seen]
    known = [{key: one[key] for key in ("user", "pid", "command")} for one in found]
    listens = bool(listening) if tables else None
    return {"listens": listens, "holders": (known + _unique(hidden))[:_SHOWN]}


def _text(table: str) -> str:
    try:
        with open(table, "rb") as file:
            return file.read(_MOST).decode("ascii", "replace")
    except OSError:
        return ""  # no IPv6, or a sandbox


def _rows(text: str) -> Iterator[tuple[int, str, int, str]]:
    """Yield local port, state, user and inode of each socket: proc(5), /proc/net/tcp."""
    for line in text.splitlines()[1:]:
        cells = line.split()
        try:
            yield int(cells[1].rpartition(":")[2], 16), cells[3], int(cells[7]), cells[9]
        except (IndexError, ValueError):
            continue  # a line that was cut


def _processes(inodes: dict[str, int]) -> list[dict[str, Any]]:
    wanted = {"socket:[%s]" % inode: inode for inode in inodes}
    found: list[dict[str, Any]] = []
    for name in _names("/proc"):
        if not wanted or not name.isdigit() or len(found) >= _SHOWN:
            continue
        folder = "/proc/%s/fd" % name
        for fd in _names(folder):
            try:
                inode = wanted.get(os.readlink(os.path.join(folder, fd)))
            except OSError:
                continue
            if inode is not None:
                told = {"pid": int(name), "command": _command(name), "user": _user(inodes[inode])}
                found.append(dict(told, inode=inode))
                break
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it has ended, or is another user's


def _command(pid: str) -> str:
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            words = file.read(4096).decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return " ".join(word for word in words if word)[:_WORDS]


def _user(uid: int) -> str:
    try:
        import pwd  # noqa: PLC0415 - Python may be built without it

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def _unique(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for at, row in enumerate(rows) if row not in rows[:at]]
