"""Records the end of each rank: when, with which code or signal, though it is no child of ours.

A rank writes its pid, and below a shell its program, into `ranks/rank-<r>.<attempt>.<number>`:
torchrun's restarts are counted from 0, and each further step of the job from the next 1000. A pidfd
of it becomes readable at its death; the code is then in /proc/PID/stat while it is a zombie, and
where the launcher was faster in PIDFD_GET_INFO (Linux 6.15). Without pidfds (Python 3.8) zombies
are looked for: those of start_ranks.py stay. Where nobody saw one the code is None; torchrun's
error block has it.
"""

# ruff: noqa: PLC0415 - fcntl: the supervisor imports it beside the job

from __future__ import annotations

import os
import signal
import struct
import time

from safelaunch.runtime import processes

# struct pidfd_info and its ioctl, include/uapi/linux/pidfd.h: _IOWR(0xFF, 11, 64 bytes)
PIDFD_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11
PIDFD_INFO_EXIT = 1 << 3
EXIT_CODE_AT = 60  # after mask, cgroup id, three pids and eight ids
STAT_EXIT_CODE = 49  # proc(5): field 52, counted behind the command's name
STEP = 1000  # numbers of one step of the job: site/sitecustomize.py
EMPTY_LOOKS = 100  # of a marker, some seconds: a full disk leaves it empty for ever
SKEW = 2 * 10**9  # ns: a file server's clock that differs by more is not ours


class RankExit:
    """A start of a rank, and how it ended; `code` is None and `signal` "" where nobody saw it."""

    def __init__(self, pid: int, number: int, started_ns: int) -> None:
        self.pid = pid
        self.number = number  # in the marker's name
        self.started_ns = started_ns
        self.ticks = 0  # start time of the process; 0 where it cannot be observed from here
        self.code: int | None = None
        self.signal = ""
        self.died_ns = 0


class Exits:
    """The ends of the ranks of one attempt; `by_rank` has all starts of a rank, the newest last."""

    def __init__(self, node_dir: str, attempt: int) -> None:
        self.folder = os.path.join(node_dir, "ranks")
        self.attempt = attempt
        self.by_rank: dict[int, list[RankExit]] = {}
        self.fds: dict[int, RankExit] = {}
        self.unwatched: list[RankExit] = []  # that live, and have no pidfd
        self.done: set[str] = set()  # markers that need no further look
        self.empty: dict[str, int] = {}  # markers -> looks

    def update(self) -> bool:
        """Read the markers of ranks that have started since; return whether there were any."""
        if self.unwatched:
            self._find_zombies()
        try:
            fresh = [name for name in os.listdir(self.folder) if name not in self.done]
        except OSError:
            return False
        for name in fresh:
            parts = name[len("rank-") :].split(".") if name.startswith("rank-") else []
            is_marker = len(parts) == 3 and all(part.isdigit() for part in parts)  # noqa: PLR2004
            if not is_marker or int(parts[1]) != self.attempt:
                self.done.add(name)
                continue
            process = self._read(name)
            if process is not None:
                self.done.add(name)
                self._add(int(parts[0]), RankExit(process[0], int(parts[2]), process[1]))
        return bool(fresh)

    def _read(self, name: str) -> tuple[int, int] | None:
        """Return the pid in a marker, as of our namespace, and its time; None if unwritten."""
        now = time.time_ns()
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                words = file.readline().decode("ascii", "replace").split()
                written = os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return None
        if not words:
            self.empty[name] = self.empty.get(name, 0) + 1
            if self.empty[name] > EMPTY_LOOKS:
                self.done.add(name)
        if not words or not words[0].isdigit():
            return None
        pid = int(words[0])
        if len(words) > 1 and words[1] != processes.machine()["pidns"]:
            pid = _pid_outside(pid, words[1])
        return pid, written if -SKEW < now - written < SKEW else now

    def _add(self, rank: int, start: RankExit) -> None:
        starts = self.by_rank.setdefault(rank, [])
        is_newest = not starts or _is_newer(start, starts[-1])
        starts.insert(len(starts) if is_newest else -1, start)
        if not start.pid:
            return  # it cannot be observed from here
        start.ticks = (processes.stat_of(start.pid) or ("", 0, 0))[2]
        try:
            self.fds[os.pidfd_open(start.pid)] = start  # type: ignore[attr-defined,unused-ignore]
        except (AttributeError, OSError):
            self.unwatched.append(start)

    def _find_zombies(self) -> None:
        """Record the ends of ranks without a pidfd, of those that nobody has reaped yet."""
        now = time.time_ns()
        for start in list(self.unwatched):
            stat = processes.stat_of(start.pid)
            if stat is not None and stat[2] == start.ticks and stat[0] not in "ZX":
                continue
            self.unwatched.remove(start)
            status = _zombie(start.pid) if stat is not None and stat[2] == start.ticks else None
            if status is not None:
                _record(start, status, now)

    def on_readable(self, fd: int, now: int) -> None:
        """Record the end of the rank of a pidfd, which became readable at `now`, in ns."""
        start = self.fds.pop(fd)
        status = _zombie(start.pid)
        if status is None:
            status = _reaped(fd)
        os.close(fd)
        _record(start, status, now)

    def on_reaped(self, pid: int, status: int) -> None:
        """Record the end of a rank that had become our own child."""
        for starts in self.by_rank.values():
            for start in starts:
                if start.pid == pid and start.code is None:
                    _record(start, status, time.time_ns())

    def alive(self) -> dict[int, tuple[int, int]]:
        """Return {rank: (pid, start time)} of the ranks that are alive, of their newest start."""
        alive = {}
        for rank, starts in self.by_rank.items():
            for start in reversed(starts):
                if start.ticks and processes.start_time(start.pid) == start.ticks:
                    alive[rank] = (start.pid, start.ticks)
                    break
        return alive

    def running(self) -> set[int]:
        """Return the pids of all starts whose end nobody has seen."""
        starts = [start for starts in self.by_rank.values() for start in starts]
        return {start.pid for start in starts if not start.died_ns}

    def has_failed(self) -> bool:
        """Whether a rank has ended, and not with 0."""
        starts = [start for starts in self.by_rank.values() for start in starts]
        return any(start.died_ns and start.code != 0 for start in starts)

    def close(self) -> None:
        """Look at each rank a last time and close the descriptors."""
        for fd in list(self.fds):
            self.on_readable(fd, 0)


def _record(start: RankExit, status: int | None, now: int) -> None:
    start.died_ns = start.died_ns or now
    if status is not None:
        start.code, start.signal = decode(status)


def _is_newer(start: RankExit, other: RankExit) -> bool:
    """Whether a start of a rank came after another: the clock may be set between restarts."""
    if start.number // STEP == other.number // STEP:
        return start.number > other.number
    return start.started_ns >= other.started_ns


def _pid_outside(pid: int, namespace: str) -> int:
    """Return our pid of a descendant that has `pid` in its own namespace; 0 for none."""
    for candidate in processes.descendants(os.getpid()):
        try:
            if os.readlink(f"/proc/{candidate}/ns/pid") != namespace:
                continue
            with open(f"/proc/{candidate}/status", "rb") as file:
                _, _, numbers = file.read().partition(b"\nNSpid:")
        except OSError:
            continue
        if numbers.partition(b"\n")[0].split()[-1:] == [b"%d" % pid]:
            return candidate
    return 0


def decode(status: int) -> tuple[int, str]:
    """Return exit code and signal name; a signal n is the exit code 128 + n, as in a shell."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return 128 + number, signal.Signals(number).name
        except ValueError:
            return 128 + number, f"signal {number}"
    return os.WEXITSTATUS(status), ""


def _zombie(pid: int) -> int | None:
    """Return the wait status of a zombie as the kernel shows it to its owner."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) <= STAT_EXIT_CODE or fields[0] not in (b"Z", b"X"):
        return None
    return int(fields[STAT_EXIT_CODE])


def _reaped(fd: int) -> int | None:
    """Return the wait status of a process that its parent has reaped already."""
    import fcntl

    info = bytearray(64)
    struct.pack_into("=Q", info, 0, PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(fd, PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("=Q", info)[0] & PIDFD_INFO_EXIT:
        return None
    return int(struct.unpack_from("=i", info, EXIT_CODE_AT)[0])
