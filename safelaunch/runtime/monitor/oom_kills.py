"""Proof that the kernel ended a process for want of memory: cgroup counters and the kernel log.

SIGKILL alone proves nothing: anybody may send it. Counters: `oom_kill` in memory.events (cgroup v2)
and memory.oom_control (v1), since Linux 4.13, of a process's group and of those above it. The
kernel log is read where it may be (/dev/kmsg: root, or kernel.dmesg_restrict=0).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Listed = list[dict[str, Any]]
else:
    Listed = list

ROOT = "/sys/fs/cgroup"
FILES = ("memory.events", "memory.oom_control")
KMSG = "/dev/kmsg"
KMSG_RECORD = 8192  # bytes: the kernel's own limit of one record (CONSOLE_EXT_LOG_MAX)
KMSG_LIMIT = 20000  # records that are looked at: a full 1 MiB ring holds fewer
PIDS = 20000  # processes that are remembered: the ranks come first, and memory is bounded


class Kills(Listed):
    """What was killed for memory, and who would have told of more."""

    def __init__(
        self,
        found: Iterable[dict[str, Any]] = (),
        log: bool = False,
        counted: Iterable[int] = (),
    ) -> None:
        Listed.__init__(self, found)
        self.log = log
        self.counted = frozenset(counted)

    def witness(self, pid: int | None) -> str:
        """Return who would have told that a process was killed for memory; "" if nobody."""
        if self.log:
            return "the kernel log"
        return "its memory group's counter" if pid in self.counted else ""


class Snapshot(object):
    """The counters of the groups that were seen, as they were when each was first seen."""

    def __init__(self, root: str = ROOT, kmsg: str = KMSG) -> None:
        self.root = root
        self.counts = {}  # type: dict[str, int]
        self.members = {}  # type: dict[str, set[int]]
        self.known = set()  # type: set[int]
        self.log = _open(kmsg)

    def take(self, pids: Iterable[int]) -> None:
        """Remember the groups of processes; a group's counter is that of its first look."""
        for pid in pids:
            if pid in self.known:
                continue
            if len(self.known) < PIDS:
                self.known.add(pid)
            for path in self._counters(pid):
                members = self.members.setdefault(path, set())
                if pid in self.known:
                    members.add(pid)
                if path not in self.counts:
                    self.counts[path] = _oom_kills(path)

    def kills(self) -> Kills:
        """Return what was killed since the last call: {text, pid (None: not told), pids (of it)}.

        The kernel log comes first, it names the process; then the counters, narrowest group first.
        A group that is gone tells nothing, but those above it do (v2 counts upwards).
        """
        found = Kills(_told(self.log), self.log is not None)
        counted = set()  # type: set[int]
        for path, before in sorted(self.counts.items(), key=lambda item: -len(item[0])):
            now = _oom_kills(path)
            if now < 0:
                continue
            self.counts[path] = now
            if before >= 0:
                counted |= self.members[path]
            if now > before >= 0:
                said = "oom_kill rose from %d to %d in %s" % (before, now, path)
                found.append({"text": said, "pid": None, "pids": sorted(self.members[path])})
        found.counted = frozenset(counted)
        return found

    def close(self) -> None:
        """Close the kernel log."""
        if self.log is not None:
            os.close(self.log)
            self.log = None

    def _counters(self, pid: int) -> list[str]:
        """Return the counter files of a process's memory group and of those above it."""
        try:
            with open("/proc/%d/cgroup" % pid, "rb") as file:
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return []
        found = []
        for line in lines:
            number, _, rest = line.partition(":")
            controllers, _, group = rest.partition(":")
            if number == "0" and not controllers:
                for base in (self.root, os.path.join(self.root, "unified")):
                    found += _upwards(base, group, FILES[0])
            elif "memory" in controllers.split(","):
                found += _upwards(os.path.join(self.root, "memory"), group, FILES[1])
        return found


def proof(kills: list[dict[str, Any]], pid: int | None) -> str | None:
    """Return what proves that a process (None: some child of a rank) was killed for memory.

    A line of the kernel log that names another process proves nothing about this one.
    """
    told = [kill for kill in kills if kill.get("pid") is not None]
    for kill in told:
        if pid is None or kill["pid"] == pid:
            return str(kill["text"])
    for kill in kills:
        if kill.get("pid") is None and (pid is None or pid in kill.get("pids", ())):
            return str(kill["text"])
    return None


def _upwards(base: str, group: str, name: str) -> list[str]:
    """Return the files of a group and those above it that exist below a mount point.

    Inside a container the path in /proc may be the host's: then the mount's own top counts.
    """
    found = []
    parts = [part for part in group.split("/") if part and part != ".."]
    while True:
        path = os.path.join(base, *parts, name)
        if os.path.exists(path):
            found.append(path)
        if not parts:
            return found
        parts.pop()


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
    """Open the kernel log behind its newest record; None where that is not allowed."""
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


def _told(fd: int | None) -> Iterator[dict[str, Any]]:
    """Yield the kills that the kernel log has named since it was opened or last read."""
    import re  # noqa: PLC0415 - the supervisor's start does without

    killed = re.compile(rb"[Kk]ill(?:ed)? process (\d+) \(([^)]*)\)")
    if fd is None:
        return
    for _ in range(KMSG_LIMIT):
        try:
            record = os.read(fd, KMSG_RECORD)
        except BrokenPipeError:
            continue  # records were overwritten meanwhile: it goes on with the oldest left
        except OSError:
            return  # EAGAIN: no more
        hit = killed.search(record)
        if hit is not None:
            text = record.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")
            said = "kernel log: %s" % text.strip()[:200]
            yield {"text": said, "pid": int(hit.group(1)), "pids": []}
        elif not record:
            return
