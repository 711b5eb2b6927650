"""Samples memory, disk, load and the GPUs of a run into `<node-dir>/samples.csv`. Never raises.

The file covers the whole run in at most LIMIT rows: when it is full every second row goes and the
interval doubles. trends.py reads it.
"""

from __future__ import annotations

import os
import sys
import time

from safelaunch.runtime.monitor import gpu_load, gpu_sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import RunRecord


LIMIT = 2000  # rows; 16 h at 30 s, and never more than 400 KB with eight GPUs
MIB = 1 << 20
UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2^63 where there is no limit
DISK_SPACE = (  # a Python program; the job's folder is its argument
    "import os, sys\n"
    "d = os.statvfs(sys.argv[1])\n"
    "print(d.f_bavail * d.f_frsize, d.f_blocks * d.f_frsize)\n"
)
HOST_COLUMNS = (
    "time,elapsed_s,host_mem_used_mib,host_mem_total_mib,"
    "cwd_free_mib,cwd_total_mib,run_free_mib,run_total_mib,load1"
)


class Samples:
    """The bounded file of one run. `tick` is called often and does nothing until a row is due."""

    def __init__(self, node_dir: str, run: RunRecord, interval: float = 30.0) -> None:
        self.path = os.path.join(node_dir, "samples.csv")
        self.folder = node_dir
        self.disk = Disk(run.cwd or node_dir, node_dir)
        self.interval = interval
        names = None if run.gpus is None else list(run.gpus)
        self.gpus = gpu_load.GpuLoad(names, {} if names == [] else dict(os.environ))
        self._started_at: float | None = None
        self._next = 0.0
        self._rows = 0
        self._gpus: list[str] | None = None  # the columns, once nvidia-smi has named the GPUs
        self._waiting = False
        self._gpus_next = False  # whether nvidia-smi starts once the disk has answered
        self._memory = Memory()

    @property
    def pid(self) -> int | None:
        """The pid of the helper program that runs, if any: never two at once."""
        return self.disk.pid or self.gpus.pid

    def tick(self, now: float) -> None:
        """Write a sample if one is due; `now` is monotonic seconds."""
        if self._waiting:
            self._wait(now)
            return
        if now < self._next:
            return
        self._started_at = now if self._started_at is None else self._started_at
        self._next = now + self.interval
        self._waiting = self.pid is not None
        if not self._waiting:
            self._gpus_next = self._waiting = self.disk.start(now)
        self._waiting = self._waiting or self.gpus.start(now)
        if not self._waiting:
            self._write(now)

    def _wait(self, now: float) -> None:
        self.disk.tick(now)
        self.gpus.tick(now)
        if now < self._next:
            if self.pid is not None:
                return
            if self._gpus_next:
                self._gpus_next = False
                if self.gpus.start(now):
                    return
        # with the answers that came; without any the row is written when the next one is due
        self._write(now)

    def reaped(self, pid: int, status: int) -> bool:
        """Return whether the child that has ended was ours."""
        now = time.monotonic()
        return self.disk.child_exited(pid, status, now) or self.gpus.child_exited(pid, status, now)

    def take_events(self) -> list[dict[str, object]]:
        """Return the events since the last call: `nvidia-smi-late` and its like, `disk-late`."""
        events = self.gpus.events + self.disk.events
        self.gpus.events, self.disk.events = [], []
        return events

    def close(self) -> None:
        """Close the pipes of the helper programs."""
        self.disk.close()
        self.gpus.close()

    def _write(self, now: float) -> None:
        self._waiting = self._gpus_next = False
        rows = self.gpus.rows
        self.gpus.rows = None
        if self._gpus is None and rows is not None:
            self._gpus = sorted(rows, key=int)
            self._rows = 0 if self._rows == 0 else self._widen()
        line = ",".join(self._host(now) + self._load(rows)) + "\n"
        try:
            if self._rows == 0:
                line = self._header() + line
            _append(self.path, line.encode())
            self._rows += 1
            if self._rows >= LIMIT:
                self._thin()
        except OSError:
            pass  # a full disk must not end the job

    def _host(self, now: float) -> list[str]:
        used, total = self._memory.read()
        elapsed = 0.0 if self._started_at is None else now - self._started_at
        run_space = space(self.folder)
        job_space = run_space if self.disk.is_same else self.disk.pop()
        try:
            load = f"{os.getloadavg()[0]:.2f}"
        except OSError:
            load = ""
        values = (used, total, *job_space, *run_space)
        sizes = ["" if value is None else str(value // MIB) for value in values]
        return [f"{time.time():.0f}", f"{elapsed:.0f}", *sizes, load]

    def _header(self) -> str:
        columns = [f"gpu{gpu}_{name}" for gpu in self._gpus or () for name in gpu_sources.COLUMNS]
        return ",".join([HOST_COLUMNS, *columns]) + "\n"

    def _load(self, rows: dict[str, list[float | None]] | None) -> list[str]:
        cells = []
        for gpu in self._gpus or ():
            values = (rows or {}).get(gpu) or [None] * len(gpu_sources.COLUMNS)
            cells += ["" if value is None else f"{value:g}" for value in values]
        return cells

    # -- the limit -----------------------------------------------------------------------------

    def _thin(self) -> None:
        """Drop every second row and double the interval."""
        lines = _lines(self.path)
        lines = lines[:1] + lines[1::2]
        self._replace(lines)
        self._rows = len(lines) - 1
        self.interval *= 2

    def _widen(self) -> int:
        """Replace the header: the first output of nvidia-smi came after some rows."""
        try:
            lines = _lines(self.path)
            self._replace([self._header().encode(), *lines[1:]])
        except OSError:
            pass
        return self._rows

    def _replace(self, lines: list[bytes]) -> None:
        temporary = f"{self.path}.{os.getpid()}"
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


class Disk(gpu_load.AsyncCommand):
    """The free space of the job's folder, read by a child process: a dead NFS blocks its reader.

    Where the run's own folder lies on the same file system no child is started.
    """

    def __init__(self, folder: str, run_folder: str) -> None:
        note = "the file system of the job's folder does not answer"
        super().__init__("disk-late", note)
        self.folder = folder
        self.is_same = _same_file_system(folder, run_folder)
        self._space: tuple[int | None, int | None] = (None, None)

    def start(self, now: float) -> bool:
        """Start the child, unless it is not needed, still runs or the pause is not over."""
        argv = [sys.executable, "-I", "-S", "-c", DISK_SPACE, self.folder]
        return not self.is_same and bool(sys.executable) and self.spawn(argv, now)

    def child_exited(self, pid: int, status: int, now: float) -> bool:
        """Read the output of the child that has ended; return whether it was ours."""
        answer = self.collect(pid, status, now)
        words = (answer or "").split()
        if len(words) == 2 and all(word.isdigit() for word in words):  # noqa: PLR2004
            self._space = (int(words[0]), int(words[1]))
        return answer is not None

    def pop(self) -> tuple[int | None, int | None]:
        """Return the last answer once: (free, total) in bytes, None where there is none."""
        space_, self._space = self._space, (None, None)
        return space_


def space(folder: str) -> tuple[int | None, int | None]:
    """Return (free, total) in bytes of a folder's file system; None where it cannot be read."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None, None
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


def _same_file_system(first: str, second: str) -> bool:
    try:
        # the total too: a folder may have a quota of its own
        return (
            os.stat(first).st_dev == os.stat(second).st_dev and space(first)[1] == space(second)[1]
        )
    except OSError:
        return False


class Memory:
    """The memory in use and its limit for this process, in bytes.

    The page cache is not counted: the kernel frees it. In a container the smallest limit counts.
    """

    def __init__(self) -> None:
        self.group = _limited_group()

    def read(self) -> tuple[int | None, int | None]:
        """Return (used, total); None where it cannot be read."""
        host = _fields("/proc/meminfo", 1024)
        total = host.get("MemTotal:")
        free = host.get("MemAvailable:", host.get("MemFree:", 0))
        used = total - free if total is not None else None
        if self.group is not None:
            folder, limit, usage, cache = self.group
            group_used = _number(os.path.join(folder, usage))
            if group_used is not None and (total is None or limit <= total):
                stat = _fields(os.path.join(folder, "memory.stat"), 1)
                return max(0, group_used - stat.get(cache, 0)), limit
        return used, total


def _limited_group() -> tuple[str, int, str, str] | None:
    """Return (folder, limit, usage file, cache key) of the smallest memory limit above us."""
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
    """Return {name: number * unit} of lines `name number ...`."""
    values = {}
    try:
        with open(path) as file:
            for line in file:
                words = line.split()
                if len(words) > 1 and words[1].isdigit():
                    values[words[0]] = int(words[1]) * unit
    except (OSError, ValueError):
        pass
    return values


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _append(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _lines(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().splitlines(True)
