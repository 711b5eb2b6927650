"""The pipes that a job prints into, and the process that copies them to the logs (logs/copier.py).

The supervisor has all pipes open for reading, but never reads: where the copier is killed, the job
goes on, and the next copier finds what was printed meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from safelaunch import runtime
from safelaunch.runtime import json_files, processes, rank_exits
from safelaunch.runtime.logs import copier
from safelaunch.runtime.records import AttemptDropped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.supervise.journal import Journal

PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two starts of a copier that does not live
PROGRAM = os.path.join(runtime.FOLDER, "logs", "copier.py")


class LogPipes:
    """The launcher's pipe and the control pipe of one attempt, and their copier."""

    def __init__(self, journal: Journal, attempt: int) -> None:
        self.journal = journal
        self.attempt = attempt
        self.reader = self.control = self.count = -1
        self.fifos: dict[str, int] = {}  # path of each rank's -> descriptor
        self.folder = os.path.join(journal.dir, "pipes")
        self.count_path = os.path.join(journal.logs, AttemptDropped.FILE)
        self.pid = 0  # of the copier that runs
        self.is_over = True  # whether all output has been copied
        self.next_start, self.pause = 0.0, PAUSE
        self.dropped = AttemptDropped()

    def open(self) -> int:
        """Make the pipes; return the descriptor that the job writes to. Raises OSError."""
        self.reader, writer = os.pipe()
        try:
            self._open_control()
            json_files.write(self.count_path, b" " * copier.RESERVED)
            self.count = os.open(self.count_path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(writer)
            self.close()
            raise
        self.is_over = False
        return writer

    def _open_control(self) -> None:
        if not self.journal.run.rank_logs:
            return
        try:
            path = os.path.join(self.folder, f"control-{self.attempt}")
            os.mkfifo(path, 0o600)
            # for writing too: it never ends, and a rank never finds it without a reader
            self.control = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            self.journal.warn(
                f"all ranks share one log: no FIFO in {self.journal.dir}: {e.strerror}"
            )

    def start(self) -> None:
        """Start a copier; where that fails, `tick` tries again."""
        descriptors = (self.reader, self.control, self.count)
        words = [self.journal.dir, str(self.attempt), *map(str, descriptors)]
        self.next_start = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)
        start = _fork if self.journal.is_forked else _spawn
        try:
            self.pid = start(words, (*descriptors, self.journal.lock))
        except OSError as e:
            self.journal.broken("start of the log copier", e)
            return
        self.journal.status.log_copier = processes.identity(self.pid)

    @property
    def is_open(self) -> bool:
        """Whether output may have yet to be copied, or a copier to end."""
        return self.pid > 0 or not self.is_over

    @property
    def is_waiting(self) -> bool:
        """Whether a copier has yet to be started, in place of one that was killed."""
        return not self.pid and not self.is_over

    def tick(self) -> None:
        """Start another copier where one was killed; pass on what it could not write."""
        if self.is_waiting and time.monotonic() >= self.next_start:
            self.start()
            self.journal.save()
        if self.control >= 0:
            self._open_fifos()
        if self.count >= 0 and os.pread(self.count, 1, 0) != b" ":
            self._read_dropped()

    def _read_dropped(self) -> None:
        dropped = AttemptDropped.read(self.journal.logs) or AttemptDropped()
        if dropped.logs and dropped != self.dropped:
            self.dropped = dropped
            for log in dropped.logs:
                self.journal.set_dropped(log.file, log.bytes, log.why)
            self.journal.save()

    def _open_fifos(self) -> None:
        """Open the FIFOs that are new, close those that the copier has removed.

        Those that the copier has opened: a rank that waits must not take us for it. And only with
        the lower half of the descriptors: the logs and the ends of ranks need some too.
        """
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        paths = {
            os.path.join(self.folder, name)
            for name in names
            if name.startswith("rank-") and not name.endswith(".new")
        }
        for path in self.fifos.keys() - paths:
            os.close(self.fifos.pop(path))
        for path in paths - self.fifos.keys():
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue
            if fd > os.sysconf("SC_OPEN_MAX") // 2:
                os.close(fd)
                break
            self.fifos[path] = fd

    def reaped(self, pid: int, status: int) -> bool:
        """Whether the child that has ended was the copier."""
        if pid != self.pid:
            return False
        self.pid, self.is_over = 0, self.is_over or status == 0
        if not self.is_over:
            code, name = rank_exits.decode(status)
            how = name or f"exit code {code}"
            self.journal.event("log-copier-ended", how=how)
            self.journal.warn(
                f"the process that writes the logs was ended ({how}) and started again: "
                f"up to {copier.BLOCK >> 10} KiB of output may be missing"
            )
        return True

    def kill(self) -> None:
        """End the copier, though a process that is none of the job's holds a pipe open."""
        self.is_over = True
        if self.pid:
            os.kill(self.pid, 9)  # our own child, not reaped yet: the pid is no other's

    def close(self) -> None:
        """Close the descriptors; remove the counts where there are none."""
        for fd in (self.reader, self.control, self.count, *self.fifos.values()):
            if fd >= 0:
                os.close(fd)
        self.reader = self.control = self.count = -1
        self.fifos.clear()
        if not self.dropped.logs:
            json_files.remove(self.count_path)


def _spawn(words: list[str], shared: tuple[int, ...]) -> int:
    """Start a copier that inherits some descriptors; return its pid. Raises OSError."""
    argv = [sys.executable, *map(os.fsdecode, processes.SUPERVISOR), PROGRAM, *words]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    _set_inheritable(shared, is_inheritable=True)
    try:
        return os.posix_spawn(sys.executable, argv, os.environ, file_actions=null)
    finally:
        _set_inheritable(shared, is_inheritable=False)


def _fork(words: list[str], shared: tuple[int, ...]) -> int:
    """Start a copier as a fork of this process, which costs less than another Python.

    It keeps no descriptor but those that it shares, as after an exec: it would wait for ever for
    the end of a pipe to which it can write itself. Raises OSError.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        shared_fds = {0, 1, 2, *shared}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in shared_fds:
                _close(int(name))
        copier.main(words)
        os._exit(0)
    except BaseException as e:  # noqa: BLE001 - nothing of the supervisor may run on in the child
        os.write(2, f"safelaunch: the log copier has failed: {type(e).__name__}: {e}\n".encode())
    finally:
        os._exit(1)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass  # that of the listing


def _set_inheritable(descriptors: tuple[int, ...], *, is_inheritable: bool) -> None:
    for fd in descriptors:
        if fd >= 0:
            os.set_inheritable(fd, is_inheritable)
