"""Evidence that the kernel killed a process for lack of memory: cgroup counters and kernel log.

SIGKILL alone proves nothing: anybody may send it. Counters: `oom_kill` of a process's own group,
since Linux 4.13. In cgroup v1 memory.oom_control counts the group's own processes; in v2 that is
memory.events.local (Linux 5.2), and memory.events adds those of all groups below
(Documentation/admin-guide/cgroup-v2.rst). The kernel log is read where that is allowed (/dev/kmsg:
root, or kernel.dmesg_restrict=0).
"""

from __future__ import annotations

import os
import re

from safelaunch.runtime.records import Record
from safelaunch.runtime.units import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = "/sys/fs/cgroup"
LOCAL_EVENTS = "memory.events.local"
EVENTS = "memory.events"
OOM_CONTROL = "memory.oom_control"
LIMITS = ("memory.max", "memory.limit_in_bytes")  # of cgroup v2 and v1
IN_GROUP = "Memory cgroup out of memory"  # how the kernel log begins where a group's limit was it
KMSG = "/dev/kmsg"
LIMITED = ", a memory limit of"
KMSG_RECORD = 8192  # bytes: the kernel's own limit of one record (CONSOLE_EXT_LOG_MAX)
KMSG_LIMIT = 20000  # records that are read: a full 1 MiB ring holds fewer
PIDS = 20000  # processes that are recorded: the ranks come first, and memory is bounded


class OomKill(Record):
    """A process that the kernel killed for lack of memory.

    text: the evidence
    pid: process id; None: some process of the group
    pids: processes of the group
    """

    text: str = ""
    pid: int | None = None
    pids: Sequence[int] = ()


class Kills:
    """The kills for lack of memory, and which sources would have shown more of them.

    `log`: whether the kernel log could be read; `counted`: processes whose group has a counter;
    `run`: all processes of the run that were seen.
    """

    def __init__(
        self,
        kills: Iterable[OomKill] = (),
        log: bool = False,
        counted: Iterable[int] = (),
        run: Iterable[int] = (),
    ) -> None:
        self.kills = list(kills)
        self.log = log
        self.counted = frozenset(counted)
        self.run = frozenset(run)

    def source(self, pid: int | None) -> str:
        """Return what would show that a process was killed for memory; "" if nothing."""
        if self.log:
            return "the kernel log"
        return "its memory group's counter" if pid in self.counted else ""


class Snapshot:
    """The kill counters of memory cgroups, as they were when each group was first read."""

    def __init__(self, root: str = ROOT, kmsg: str = KMSG) -> None:
        self.root = root
        self.counts: dict[str, int] = {}
        self.limits: dict[str, str] = {}  # of the groups of these counters, in words
        self.members: dict[str, set[int]] = {}
        self.pids: set[int] = set()
        self.log = _open(kmsg)

    def add_processes(self, pids: Iterable[int]) -> None:
        """Record the groups of processes, and the counter of each new group."""
        for pid in pids:
            if pid in self.pids:
                continue
            if len(self.pids) < PIDS:
                self.pids.add(pid)
            for path in self._counters(pid):
                members = self.members.setdefault(path, set())
                if pid in self.pids:
                    members.add(pid)
                if path not in self.counts:
                    self.counts[path] = _oom_kills(path)
                    self.limits[path] = _limit(os.path.dirname(path))

    def kills(self) -> Kills:
        """Return the kills since the last call: the kernel log first, it names the process."""
        kills = list(_log_kills(self.log))
        for kill in kills:
            if IN_GROUP in kill.text:
                groups = [path for path, members in self.members.items() if kill.pid in members]
                kill.text += next((self.limits[path] for path in groups), "")
        counted: set[int] = set()
        for path, before in self.counts.items():
            now = _oom_kills(path)
            if now < 0:
                continue
            self.counts[path] = now
            if before >= 0:
                counted |= self.members[path]
            if now > before >= 0:
                text = f"oom_kill rose from {before} to {now} in {path}{self.limits[path]}"
                kills.append(OomKill(text=text, pids=sorted(self.members[path])))
        return Kills(kills, self.log is not None, counted, self.pids)

    def close(self) -> None:
        """Close the kernel log."""
        if self.log is not None:
            os.close(self.log)
            self.log = None

    def _counters(self, pid: int) -> list[str]:
        """Return the counter files of a process's own memory group, of cgroup v1 and v2."""
        try:
            with open(f"/proc/{pid}/cgroup", "rb") as file:
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return []
        paths = []
        for line in lines:
            number, _, fields = line.partition(":")
            controllers, _, group = fields.partition(":")
            if number == "0" and not controllers:
                files = (LOCAL_EVENTS, EVENTS)
                paths.append(_nearest(self.root, group, files))
                paths.append(_nearest(os.path.join(self.root, "unified"), group, files))
            elif "memory" in controllers.split(","):
                paths.append(_nearest(os.path.join(self.root, "memory"), group, (OOM_CONTROL,)))
        return [path for path in paths if path]


def proof(kills: Kills, pids: Iterable[int], parent: int | None = None) -> str | None:
    """Return the evidence that one of some processes was killed for memory.

    A line of the kernel log has to name one of them. A counter proves it of a group that held one
    of them, or their `parent`, whose group they share.
    """
    named = set(pids)
    for kill in kills.kills:
        is_proof = bool({*named, parent} & {*kill.pids}) if kill.pid is None else kill.pid in named
        if is_proof:
            return kill.text
    return None


def is_of_group(text: str) -> bool:
    """Whether a proof says that a group had reached its own limit, not the machine."""
    return IN_GROUP in text or LIMITED in text


def _nearest(base: str, group: str, names: Sequence[str]) -> str | None:
    """Return the first of some files in a group, else in the nearest group above that has one.

    A group without a memory controller counts as its parent; and inside a container the path in
    /proc may be the host's: then only the top of the mount exists.
    """
    parts = [part for part in group.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        for name in names:
            path = os.path.join(base, *parts[:count], name)
            if os.path.exists(path):
                return path
    return None


def machine_memory() -> int:
    """Return the bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _limit(group: str) -> str:
    """Return `, a memory limit of 64.0 MiB` of a group; "" where it has none of its own."""
    for name in LIMITS:
        try:
            with open(os.path.join(group, name), "rb") as file:
                text = file.read(64).strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < machine_memory():
            return f"{LIMITED} {size(int(text))}"
    return ""


def _oom_kills(path: str) -> int:
    """Return the counter `oom_kill` in a file; -1 where there is none (Linux before 4.13)."""
    try:
        with open(path, "rb") as file:
            lines = file.read(4096).split(b"\n")
    except OSError:
        return -1
    for line in lines:
        words = line.split()
        if len(words) == 2 and words[0] == b"oom_kill" and words[1].isdigit():  # noqa: PLR2004
            return int(words[1])
    return -1


# -- the kernel log --------------------------------------------------------------------------------


def _open(path: str) -> int | None:
    """Open the kernel log after its newest record; None where that is not allowed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.lseek(fd, 0, os.SEEK_END)
    except OSError:
        os.close(fd)
        return None
    return fd


def _log_kills(fd: int | None) -> Iterator[OomKill]:
    """Yield the kills that the kernel log has recorded since it was opened or last read."""
    killed = re.compile(rb"[Kk]ill(?:ed)? process (\d+) \(([^)]*)\)")
    if fd is None:
        return
    for _ in range(KMSG_LIMIT):
        try:
            record = os.read(fd, KMSG_RECORD)
        except BrokenPipeError:
            continue  # records were overwritten meanwhile: go on with the oldest that is left
        except OSError:
            return  # EAGAIN: no more
        hit = killed.search(record)
        if hit is not None:
            text = record.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")
            yield OomKill(text=f"kernel log: {text.strip()[:200]}", pid=int(hit.group(1)))
        elif not record:
            return
