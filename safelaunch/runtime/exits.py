"""Sees each rank end: when, with which code or signal, though the ranks are not its children.

A rank notes its pid in `ranks/rank-<r>.<attempt>.<restart>`. A pidfd of it becomes readable at its
death; the code then stands in /proc/PID/stat while it is a zombie, and where the launcher was
faster in PIDFD_GET_INFO (Linux 6.15). Where there are no pidfds nothing is seen: the code stays
None, and torchrun's own block tells it.
"""

from __future__ import annotations

import os
import signal
import struct
import time

from safelaunch.runtime import procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# struct pidfd_info and its ioctl, include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, 64 bytes)
PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
PIDFD_INFO_EXIT = 1 << 3
EXIT_CODE_AT = 60  # after mask, cgroup id, three pids and eight ids
STAT_EXIT_CODE = 49  # proc(5): field 52, counted behind the command's name


class Exits(object):
    """The ends of the ranks of one attempt."""

    def __init__(self, node_dir: str, attempt: int) -> None:
        self.folder = os.path.join(node_dir, "ranks")
        self.attempt = attempt
        self.found: dict[int, dict[str, Any]] = {}
        self.starts: dict[int, int] = {}
        self.fds: dict[int, tuple[int, int]] = {}
        self.known: set[str] = set()
        self.made: dict[str, int] = {}  # marker -> when it was made, ns
        self.newest: dict[int, int] = {}  # rank -> the same of its last start
        self.blank: dict[str, int] = {}

    def look(self) -> bool:
        """Take note of ranks that have started; True if there were any."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return False
        fresh = [name for name in names if name not in self.known]
        for name in fresh:
            parts = name[len("rank-") :].split(".") if name.startswith("rank-") else []
            if len(parts) != 3 or not all(part.isdigit() for part in parts):  # noqa: PLR2004
                self.known.add(name)
                continue
            rank, attempt, restart = (int(part) for part in parts)
            if attempt != self.attempt:
                self.known.add(name)
                continue
            pid = self._pid(name)
            if pid:
                self.known.add(name)
                self._add(rank, restart, pid, self.made[name])
        return bool(fresh)

    def _pid(self, name: str) -> int:
        """Return the pid in a marker; 0 while it is not written yet."""
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                text = file.read().strip()
                self.made[name] = os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return 0
        if not text:  # a full disk leaves it empty for ever
            self.blank[name] = self.blank.get(name, 0) + 1
            if self.blank[name] > 100:  # noqa: PLR2004 - some seconds
                self.known.add(name)
        return int(text) if text.isdigit() else 0

    def _add(self, rank: int, restart: int, pid: int, made: int) -> None:
        if made < self.newest.get(rank, 0):
            return
        self.newest[rank] = made
        self.found[rank] = {
            "pid": pid,
            "restart": restart,
            "code": None,
            "signal": "",
            "time_ns": 0,
        }
        seen = procs.stat_of(pid)
        self.starts[rank] = seen[2] if seen else 0
        try:
            fd = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
        except (AttributeError, OSError):
            return
        self.fds[fd] = (rank, pid)

    def ended(self, fd: int) -> None:
        """Note the end of the rank behind a pidfd that has become readable."""
        rank, pid = self.fds.pop(fd)
        now = time.time_ns()
        status = _zombie(pid)
        if status is None:
            status = _reaped(fd)
        os.close(fd)
        self._note(rank, pid, status, now)

    def reaped(self, pid: int, status: int) -> None:
        """Note the end of a rank that had become our own child."""
        for rank, seen in self.found.items():
            if seen["pid"] == pid and seen["code"] is None:
                self._note(rank, pid, status, time.time_ns())

    def _note(self, rank: int, pid: int, status: int | None, now: int) -> None:
        seen = self.found.get(rank)
        if seen is None or seen["pid"] != pid:
            return  # the launcher has restarted it meanwhile
        seen["time_ns"] = seen["time_ns"] or now
        if status is not None:
            seen["code"], seen["signal"] = decode(status)

    def alive(self) -> dict[int, tuple[int, int]]:
        """Return {rank: (pid, start time)} of the ranks that live."""
        found = {}
        for rank, seen in self.found.items():
            start = self.starts.get(rank, 0)
            if start and procs.start_time(seen["pid"]) == start:
                found[rank] = (seen["pid"], start)
        return found

    def close(self) -> None:
        """Look at each rank a last time and forget the descriptors."""
        for fd in list(self.fds):
            rank, pid = self.fds[fd]
            status = _zombie(pid)
            if status is None:
                status = _reaped(fd)
            del self.fds[fd]
            os.close(fd)
            self._note(rank, pid, status, 0)


def decode(status: int) -> tuple[int, str]:
    """Return exit code and signal name; a signal n is the exit code 128 + n, as shells say it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return 128 + number, signal.Signals(number).name
        except ValueError:
            return 128 + number, "signal %d" % number
    return os.WEXITSTATUS(status), ""


def _zombie(pid: int) -> int | None:
    """Return the wait status of a zombie as the kernel shows it to its owner."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) <= STAT_EXIT_CODE or fields[0] not in (b"Z", b"X"):
        return None
    return int(fields[STAT_EXIT_CODE])


def _reaped(fd: int) -> int | None:
    """Return the wait status of a process that its parent has reaped already."""
    import fcntl  # noqa: PLC0415 - rarely needed

    info = bytearray(64)
    struct.pack_into("=Q", info, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(fd, PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("=Q", info)[0] & PIDFD_INFO_EXIT:
        return None
    return int(struct.unpack_from("=i", info, EXIT_CODE_AT)[0])
