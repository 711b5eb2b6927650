"""Which processes hold a TCP port: from the kernel's table of sockets, and their descriptors.

Only what this process may see: sockets of its own network namespace, and descriptors of its
user's processes (of all with root).
"""

# ruff: noqa: PLC0415 - Python may be built without pwd

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"  # TCP_LISTEN of include/net/tcp_states.h
_TABLE_LIMIT = 1 << 24  # bytes of a table
_SHOWN = 4  # processes of one socket: workers that were forked with it
_COMMAND_LIMIT = 200  # characters of a command


def holders_of(port: int) -> dict[str, Any]:
    """Return whether a port `listens` (None: not known), and its `holders`.

    A holder has `user`, and where they are visible `pid` and `command`. Without a listener a port
    may still be taken: by an outgoing connection, or by one that is just closing (TIME_WAIT).
    """
    tables = [text for text in (_read(path, _TABLE_LIMIT) for path in _TABLES) if text]
    rows = [row for text in tables for row in _rows(text) if row[0] == port]
    listening = [row for row in rows if row[1] == _LISTENS]
    users = {row[3]: _user(row[2]) for row in listening or rows if row[3] != "0"}
    holders, visible = [], set()
    for pid, inode in _processes(users):
        words = _read(f"/proc/{pid}/cmdline", 4096).split("\0")
        command = " ".join(word for word in words if word)[:_COMMAND_LIMIT]
        holders.append({"user": users[inode], "pid": pid, "command": command})
        visible.add(inode)
    hidden = dict.fromkeys(user for inode, user in users.items() if inode not in visible)
    holders += [{"user": user} for user in hidden]
    return {"listens": bool(listening) if tables else None, "holders": holders[:_SHOWN]}


def _read(path: str, limit: int) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""  # no IPv6, a sandbox, or a process that has ended


def _rows(text: str) -> Iterator[tuple[int, str, int, str]]:
    """Yield local port, state, user and inode of each socket: proc(5), /proc/net/tcp."""
    for line in text.splitlines()[1:]:
        cells = line.split()
        try:
            yield int(cells[1].rpartition(":")[2], 16), cells[3], int(cells[7]), cells[9]
        except (IndexError, ValueError):
            continue  # a line that was cut


def _processes(inodes: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield the pids that have one of these sockets open, at most _SHOWN, each with its inode."""
    count = 0
    for pid in _names("/proc") if inodes else ():
        if count == _SHOWN or not pid.isdigit():
            continue
        for fd in _names(f"/proc/{pid}/fd"):
            try:
                kind, _, inode = os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")
            except OSError:
                continue
            if kind == "socket" and inode[1:-1] in inodes:
                count += 1
                yield int(pid), inode[1:-1]
                break


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # the process has ended, or is another user's


def _user(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)
