"""Sees each rank end: when, with which code or signal, though the ranks are not its children.

A rank notes its pid in `ranks/rank-<r>.<attempt>.<number>`: torchrun's restarts are counted from 0,
and each further step of the job from the next 1000. A pidfd of it becomes readable at its death;
the code then stands in /proc/PID/stat while it is a zombie, and where the launcher was faster in
PIDFD_GET_INFO (Linux 6.15). Where there are no pidfds nothing is seen: the code stays None, and
torchrun's own block tells it.
"""

from __future__ import annotations

import os
import signal
import struct
import time

from safelaunch.runtime import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# struct pidfd_info and its ioctl, include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, 64 bytes)
PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
PIDFD_INFO_EXIT = 1 << 3
EXIT_CODE_AT = 60  # after mask, cgroup id, three pids and eight ids
STAT_EXIT_CODE = 49  # proc(5): field 52, counted behind the command's name
STEP = 1000  # site/sitecustomize.py
SKEW = 2 * 10**9  # ns: by more than that a file server's clock is another one


class Exits(object):
    """The ends of the ranks of one attempt.

    `found` has the newest start of each rank: {rank: {pid, restart, code, signal, time_ns, made_ns,
    earlier}}; `restart` is the number in the marker's name, `earlier` are other starts of the rank.
    """

    def __init__(self, node_dir: str, attempt: int) -> None:
        self.folder = os.path.join(node_dir, "ranks")
        self.attempt = attempt
        self.found: dict[int, dict[str, Any]] = {}
        self.all: dict[tuple[int, int], dict[str, Any]] = {}
        self.starts: dict[tuple[int, int], int] = {}
        self.fds: dict[int, tuple[int, int]] = {}
        self.known: set[str] = set()
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
            rank, attempt, number = (int(part) for part in parts)
            if attempt != self.attempt:
                self.known.add(name)
                continue
            told = self._read(name)
            if told is not None:
                self.known.add(name)
                self._add((rank, number), *told)
        return bool(fresh)

    def _read(self, name: str) -> tuple[int, int] | None:
        """Return the pid in a marker, as it is here, and when it was made; None if unwritten."""
        now = time.time_ns()
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                words = file.read().decode("ascii", "replace").split()
                made = os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return None
        if not words:  # a full disk leaves it empty for ever
            self.blank[name] = self.blank.get(name, 0) + 1
            if self.blank[name] > 100:  # noqa: PLR2004 - some seconds
                self.known.add(name)
        if not words or not words[0].isdigit():
            return None
        pid = int(words[0])
        if len(words) > 1 and words[1] != processes.machine()["pidns"]:
            pid = _from_inside(pid, words[1])
        return pid, made if -SKEW < now - made < SKEW else now

    def _add(self, key: tuple[int, int], pid: int, made: int) -> None:
        rank, number = key
        one: dict[str, Any] = {
            "pid": pid,
            "restart": number,
            "code": None,
            "signal": "",
            "time_ns": 0,
            "made_ns": made,
            "earlier": [],
        }
        self.all[key] = one
        last = self.found.get(rank)
        if last is None or _is_newer(one, last):
            one["earlier"] = [] if last is None else [*last.pop("earlier"), last]
            self.found[rank] = one
        else:
            last["earlier"].append(one)
        seen = processes.stat_of(pid) if pid else None
        self.starts[key] = seen[2] if seen else 0
        if not pid:
            return  # nothing can be seen of it from here
        try:
            fd = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
        except (AttributeError, OSError):
            return
        self.fds[fd] = key

    def ended(self, fd: int, now: int) -> None:
        """Note the end of the rank behind a pidfd that was seen to be readable at `now`, in ns."""
        self._close(fd, now)

    def _close(self, fd: int, now: int) -> None:
        one = self.all[self.fds.pop(fd)]
        status = _zombie(one["pid"])
        if status is None:
            status = _reaped(fd)
        os.close(fd)
        self._note(one, status, now)

    def reaped(self, pid: int, status: int) -> None:
        """Note the end of a rank that had become our own child."""
        for one in self.all.values():
            if one["pid"] == pid and one["code"] is None:
                self._note(one, status, time.time_ns())

    def _note(self, one: dict[str, Any], status: int | None, now: int) -> None:
        one["time_ns"] = one["time_ns"] or now
        if status is not None:
            one["code"], one["signal"] = decode(status)

    def alive(self) -> dict[int, tuple[int, int]]:
        """Return {rank: (pid, start time)} of the ranks that live, in their newest start."""
        found = {}
        for rank, newest in self.found.items():
            for one in (newest, *reversed(newest["earlier"])):
                start = self.starts.get((rank, one["restart"]), 0)
                if start and processes.start_time(one["pid"]) == start:
                    found[rank] = (one["pid"], start)
                    break
        return found

    def close(self) -> None:
        """Look at each rank a last time and forget the descriptors."""
        for fd in list(self.fds):
            self._close(fd, 0)


def _is_newer(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a start of a rank came after another: the clock may be set between restarts."""
    if one["restart"] // STEP == other["restart"] // STEP:
        return bool(one["restart"] > other["restart"])
    return bool(one["made_ns"] >= other["made_ns"])


def _from_inside(pid: int, namespace: str) -> int:
    """Return our number of a process that is `pid` in a namespace below ours; 0: not found."""
    for here in processes.descendants(os.getpid()):
        try:
            if os.readlink("/proc/%d/ns/pid" % here) != namespace:
                continue
            with open("/proc/%d/status" % here, "rb") as file:
                _, _, numbers = file.read().partition(b"\nNSpid:")
        except OSError:
            continue
        if numbers.partition(b"\n")[0].split()[-1:] == [b"%d" % pid]:
            return here
    return 0


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
