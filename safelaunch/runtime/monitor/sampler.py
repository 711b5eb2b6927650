"""Samples memory, disk, load and the cards of a run into `<node-dir>/samples.csv`. Never raises.

The file covers the whole run in at most LIMIT rows: when it is full every second row goes and the
interval doubles. trends.py reads it.
"""

from __future__ import annotations

import os
import sys
import time

from safelaunch.runtime.monitor import gpu_load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import RunRecord


LIMIT = 2000  # rows; 16 h at 30 s, and never more than 400 KB with eight cards
MIB = 1 << 20
UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2^63 where there is no limit
ASK = (  # the job's folder is the argument
    "import os, sys\n"
    "d = os.statvfs(sys.argv[1])\n"
    "print(d.f_bavail * d.f_frsize, d.f_blocks * d.f_frsize)\n"
)
HOST = (
    "time",
    "elapsed_s",
    "host_mem_used_mib",
    "host_mem_total_mib",
    "cwd_free_mib",
    "cwd_total_mib",
    "run_free_mib",
    "run_total_mib",
    "load1",
)


class Samples(object):
    """The bounded file of one run. `tick` is called often and does nothing when nothing is due."""

    def __init__(self, node_dir: str, run: RunRecord, interval: float = 30.0) -> None:
        self.path = os.path.join(node_dir, "samples.csv")
        self.folder = node_dir
        self.disk = Disk(run.cwd or node_dir, node_dir)
        self.interval = interval
        names = None if run.gpus is None else list(run.gpus)
        self.gpus = (
            gpu_load.Gpus(names, dict(os.environ)) if names != [] else gpu_load.Gpus(names, {})
        )
        self._began: float | None = None
        self._next = 0.0
        self._rows = 0
        self._cards: list[str] | None = None  # the columns, once a first answer has named them
        self._waiting = False
        self._cards_next = False  # whether nvidia-smi is to be asked once the disk has answered
        self._memory = Memory()

    @property
    def pid(self) -> int | None:
        """The pid of the helper that runs, if one does: never two at once."""
        return self.disk.pid or self.gpus.pid

    def tick(self, now: float) -> None:
        """Take a sample if one is due; `now` is monotonic seconds."""
        if self._waiting:
            self._wait(now)
            return
        if now < self._next:
            return
        self._began = now if self._began is None else self._began
        self._next = now + self.interval
        self._waiting = self.pid is not None
        if not self._waiting:
            self._cards_next = self._waiting = self.disk.start(now)
        self._waiting = self._waiting or self.gpus.start(now)
        if not self._waiting:
            self._write(now)

    def _wait(self, now: float) -> None:
        self.disk.tick(now)
        self.gpus.tick(now)
        if now < self._next:
            if self.pid is not None:
                return
            if self._cards_next:
                self._cards_next = False
                if self.gpus.start(now):
                    return
        # with the answers; without one the row is written when the next is due
        self._write(now)

    def reaped(self, pid: int, status: int) -> bool:
        """Whether the child that has ended was ours."""
        now = time.monotonic()
        return self.disk.answered(pid, status, now) or self.gpus.answered(pid, status, now)

    def take_events(self) -> list[dict[str, object]]:
        """Return what happened since the last call: `nvidia-smi-late`, `disk-late`."""
        events = self.gpus.events + self.disk.events
        self.gpus.events, self.disk.events = [], []
        return events

    def close(self) -> None:
        """Forget what has not been answered."""
        self.disk.close()
        self.gpus.close()

    def _write(self, now: float) -> None:
        self._waiting = self._cards_next = False
        rows = self.gpus.rows
        self.gpus.rows = None
        if self._cards is None and rows is not None:
            self._cards = sorted(rows, key=int)
            self._rows = 0 if self._rows == 0 else self._widen()
        line = ",".join(self._host(now) + self._load(rows)) + "\n"
        try:
            if self._rows == 0:
                line = ",".join(self._header()) + "\n" + line
            _append(self.path, line.encode())
            self._rows += 1
            if self._rows >= LIMIT:
                self._thin()
        except OSError:
            pass  # a full disk must not end the job

    def _host(self, now: float) -> list[str]:
        used, total = self._memory.read()
        cells = [
            "%.0f" % time.time(),
            "%.0f" % (now - (now if self._began is None else self._began)),
        ]
        cells += [_mib(used), _mib(total)]
        own = space(self.folder)
        jobs = own if self.disk.is_same else self.disk.take()
        cells += [_mib(value) for value in jobs + own]
        try:
            cells.append("%.2f" % os.getloadavg()[0])
        except OSError:
            cells.append("")
        return cells

    def _header(self) -> list[str]:
        cards = [
            "gpu%s_%s" % (card, name) for card in self._cards or () for name in gpu_load.COLUMNS
        ]
        return list(HOST) + cards

    def _load(self, rows: dict[str, list[float | None]] | None) -> list[str]:
        cells = []
        for card in self._cards or ():
            values = (rows or {}).get(card) or [None] * len(gpu_load.COLUMNS)
            cells += ["" if value is None else "%g" % value for value in values]
        return cells

    # -- the bound -----------------------------------------------------------------------------

    def _thin(self) -> None:
        """Drop every second row and double the interval."""
        lines = _lines(self.path)
        kept = lines[:1] + lines[1::2]
        self._replace(kept)
        self._rows = len(kept) - 1
        self.interval *= 2

    def _widen(self) -> int:
        """Write the header anew: the first answer about cards came after some rows."""
        try:
            lines = _lines(self.path)
            self._replace([(",".join(self._header()) + "\n").encode(), *lines[1:]])
        except OSError:
            pass
        return self._rows

    def _replace(self, lines: list[bytes]) -> None:
        temporary = "%s.%d" % (self.path, os.getpid())
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(b"".join(lines))
            os.replace(temporary, self.path)
        except OSError:
            try:
                os.unlink(temporary)
            except OSError:
                pass
            raise


class Disk(gpu_load.Question):
    """The space of the job's folder, asked by a process of its own: a dead NFS answers nobody.

    Where the run's own folder lies on the same file system there is nothing to ask.
    """

    def __init__(self, folder: str, own: str) -> None:
        note = "the file system of the job's folder does not answer"
        super(Disk, self).__init__("disk-late", note)
        self.folder = folder
        self.is_same = _are_same(folder, own)
        self._found: tuple[int | None, int | None] = (None, None)

    def start(self, now: float) -> bool:
        """Ask, unless there is nothing to ask or the last question is not answered."""
        argv = [sys.executable, "-I", "-S", "-c", ASK, self.folder]
        return not self.is_same and bool(sys.executable) and self.ask(argv, now)

    def answered(self, pid: int, status: int, now: float) -> bool:
        """Take the end of a child; whether it was ours."""
        answer = self.reaped(pid, status, now)
        words = (answer or "").split()
        if len(words) == 2 and all(word.isdigit() for word in words):  # noqa: PLR2004
            self._found = (int(words[0]), int(words[1]))
        return answer is not None

    def take(self) -> tuple[int | None, int | None]:
        """Return the last answer once: (free, total) in bytes, None where there is none."""
        found, self._found = self._found, (None, None)
        return found


def space(folder: str) -> tuple[int | None, int | None]:
    """Return (free, total) in bytes of a folder's file system; None where it cannot be told."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None, None
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


def _are_same(one: str, other: str) -> bool:
    try:
        # the total too: a folder may have a quota of its own
        return os.stat(one).st_dev == os.stat(other).st_dev and space(one)[1] == space(other)[1]
    except OSError:
        return False


class Memory(object):
    """How much of the memory that this process may use is in use, in bytes.

    The page cache is not counted: it gives way. In a container the smallest limit above counts.
    """

    def __init__(self) -> None:
        self.group = _limited_group()

    def read(self) -> tuple[int | None, int | None]:
        """Return (used, total); None where it cannot be told."""
        host = _fields("/proc/meminfo", 1024)
        total = host.get("MemTotal:")
        free = host.get("MemAvailable:", host.get("MemFree:", 0))
        used = total - free if total is not None else None
        if self.group is not None:
            folder, limit, usage, cache = self.group
            own = _number(os.path.join(folder, usage))
            if own is not None and (total is None or limit <= total):
                stat = _fields(os.path.join(folder, "memory.stat"), 1)
                return max(0, own - stat.get(cache, 0)), limit
        return used, total


def _limited_group() -> tuple[str, int, str, str] | None:
    """Return (folder, limit, usage file, cache key) of the tightest memory cgroup above us."""
    best = None
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base, names = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = "/sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        folder = os.path.normpath(base + path)
        while folder.startswith(base):
            limit = _number(os.path.join(folder, names[0]))
            if limit is not None and limit < UNLIMITED and (best is None or limit < best[1]):
                best = (folder, limit, names[1], names[2])
            folder = os.path.dirname(folder)
    return best


def _fields(path: str, unit: int) -> dict[str, int]:
    """Read lines `name number ...`."""
    found = {}
    try:
        with open(path) as file:
            for line in file:
                words = line.split()
                if len(words) > 1 and words[1].isdigit():
                    found[words[0]] = int(words[1]) * unit
    except (OSError, ValueError):
        pass
    return found


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _mib(value: int | None) -> str:
    return "" if value is None else str(value // MIB)


def _append(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _lines(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().splitlines(True)
