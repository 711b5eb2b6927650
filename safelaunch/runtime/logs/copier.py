"""Appends what a job prints to its log files, from pipes: one process for each attempt of a node.

    python -I -S -B copier.py NODE_DIR ATTEMPT LAUNCHER_PIPE CONTROL_PIPE DROPPED_JSON

A job that opens /dev/stderr for writing truncates a regular file, but no pipe. This reads the pipes
and does nothing else: it outlives the supervisor, so that a job never writes into a pipe without a
reader, and ends with the last process that can write. attempts/log_pipes.py starts it; the last
three words are descriptors that it inherits.

The launcher's output comes through an anonymous pipe. A rank makes a FIFO
`pipes/rank-<r>.<a>.<n>.new`, writes a byte into the control pipe, and waits until this has opened
the FIFO and renamed it to `rank-<r>.<a>.<n>` (site/sitecustomize.py). Who writes there has had the
launcher's pipe before: once that has no writer, no FIFO gets a new one.
"""

# ruff: noqa: PLC0415 - json: only a full disk needs it

from __future__ import annotations

# `signal` itself doubles the CPU time of the start: it imports enum
import _signal  # type: ignore[import-not-found,unused-ignore]
import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RESERVED = 1 << 14  # bytes of dropped.json: entries of some 100 logs, set aside by the supervisor
BLOCK = 1 << 18  # bytes of one read: the others' turn comes soon
# Linux's default is 64 KiB; unprivileged users may have 64 MiB in all their pipes (pipe(7)),
# and a node has some pipes for each of its ranks.
PIPE_SIZE = 1 << 18
F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032  # fcntl(2); no names for them before Python 3.10
DEFAULT_SIZE = 1 << 16  # of a pipe, where it cannot be asked (pipe(7))
# A reader that waits for each byte is woken by each line, and the job pays for it: its write(2) of
# a line takes half the CPU time where the reader comes later. What is printed waits in the pipe,
# which outlives us; a pipe that fills up gets no pause.
PAUSE = 0.005  # seconds between two turns
FULL = 4  # part of a pipe that is much for one turn: in full pages there may be half of it
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
IGNORED = ("HUP", "INT", "QUIT", "TERM", "PIPE", "TSTP", "TTOU", "USR1", "USR2", "ALRM", "XFSZ")


class Log:
    """A log file that only grows; bytes that could not be written are counted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.dropped = 0
        self.why = ""

    def close(self) -> None:
        """Close the file; the next bytes open it again."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Copier:
    """The pipes of one attempt, each with its log file."""

    def __init__(
        self, node_dir: str, attempt: str, launcher: int, control: int, count: int
    ) -> None:
        self.folder = os.path.join(node_dir, "pipes")
        self.log_folder = os.path.join(node_dir, "logs", f"attempt-{attempt}")
        self.attempt = attempt
        self.launcher, self.control, self.count = launcher, control, count
        self.logs: dict[str, Log] = {}  # by file name: steps that run side by side share one
        # descriptor -> path of a FIFO, log, bytes that are much for one turn
        self.sources: dict[int, tuple[str, Log, int]] = {}
        self.fifos: set[str] = set()  # names of those that were ever opened
        self.buffer = memoryview(bytearray(BLOCK))
        self.poll = select.poll()
        self._add(launcher, "", "launcher.log")
        if control >= 0:
            self.poll.register(control, select.POLLIN)
            self._open_fifos()  # of the ranks that another copier has left behind
        self._read_dropped()

    def run(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Copy until no pipe has a writer."""
        is_last = False
        while self.sources:
            # pipes are opened after all of a turn were read: a number may be used again
            ready = [fd for fd, _ in self.poll.poll()]
            is_full = False
            for fd in ready:
                if fd != self.control:
                    is_full |= self._copy(fd)
            if self.control in ready:
                os.read(self.control, BLOCK)
                self._open_fifos()
            if self.launcher < 0 and not is_last:
                is_last = True
                self._open_fifos()
                for fd in list(self.sources):
                    self._copy(fd)  # poll(2) is silent about a FIFO that never had a writer
            if self.sources and not is_full:
                sleep(PAUSE)
        if self.control >= 0:
            _remove(os.path.join(self.folder, f"control-{self.attempt}"))

    def _add(self, fd: int, path: str, log: str) -> None:
        log = os.path.join(self.log_folder, log)
        entry = self.logs.setdefault(log, Log(log))
        self._append(entry, self.buffer[:0])  # the log exists from now on
        self.sources[fd] = (path, entry, _enlarge(fd) // FULL)
        self.poll.register(fd, select.POLLIN)

    def _open_fifos(self) -> None:
        """Open the FIFOs that are new; the ranks wait for that."""
        try:
            names = self._with_room(os.listdir, self.folder)
        except OSError:
            return  # the run directory was removed
        for name in names:
            fifo = name.partition(".new")[0]
            rank, _, number = fifo.partition(".")
            if fifo in self.fifos or not number.startswith(self.attempt + "."):
                continue
            path = os.path.join(self.folder, fifo)
            try:
                fd = self._with_room(
                    os.open,
                    os.path.join(self.folder, name),
                    os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC,
                )
            except OSError:
                continue  # the rank has given up, or will
            self.fifos.add(fifo)
            self._add(fd, path, f"{rank}.log")
            if fifo != name:
                try:
                    os.rename(os.path.join(self.folder, name), path)
                except OSError:
                    continue  # the rank has given up

    def _copy(self, fd: int) -> bool:
        """Copy a block; at the end of the pipe close it. Return whether there was much in it."""
        try:
            count = os.readv(fd, [self.buffer])
        except BlockingIOError:
            return False
        path, log, much = self.sources[fd]
        self._append(log, self.buffer[:count])
        if count:
            return count >= much
        self.poll.unregister(fd)
        del self.sources[fd]
        os.close(fd)
        if path:
            _remove(path)
        else:
            self.launcher = -1
        return False

    def _append(self, log: Log, data: memoryview) -> None:
        """Write all of the data, or count what could not be written."""
        try:
            if log.fd < 0:
                log.fd = self._with_room(os.open, log.path, LOG_FLAGS, 0o600)
            while data:
                data = data[os.write(log.fd, data) :]
        except OSError as e:  # no space, a quota, a file size limit: the next bytes may have room
            if data:
                log.dropped += len(data)
                log.why = e.strerror or str(e)
                self._write_dropped()

    def _with_room(self, call: Callable[..., Any], *arguments: object) -> Any:
        """Return what a call returns that opens a file; it may need the descriptors of logs."""
        try:
            return call(*arguments)
        except OSError as e:
            if e.errno != errno.EMFILE:
                raise
        for log in self.logs.values():
            log.close()
        return call(*arguments)

    def _read_dropped(self) -> None:
        """Go on with the counts of an earlier copier of this attempt."""
        text = os.pread(self.count, RESERVED, 0)
        if text.strip():
            import json

            for entry in json.loads(text.decode())["logs"]:
                log = self.logs.setdefault(entry["file"], Log(entry["file"]))
                log.dropped, log.why = entry["bytes"], entry["why"]

    def _write_dropped(self) -> None:
        """Write the counts in place: the space was set aside."""
        logs = [
            {"file": log.path, "bytes": log.dropped, "why": log.why}
            for log in self.logs.values()
            if log.dropped
        ]
        try:
            import json

            os.pwrite(self.count, json.dumps({"logs": logs}).encode().ljust(RESERVED), 0)
        except (ImportError, OSError):
            pass  # more entries than there is space for, or no descriptor for the import


def _enlarge(fd: int) -> int:
    """Return the size of a pipe, after asking for PIPE_SIZE."""
    try:
        import fcntl
    except ImportError:
        return DEFAULT_SIZE
    try:
        return fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        pass  # this user has many pipes already
    try:
        return fcntl.fcntl(fd, F_GETPIPE_SZ)
    except OSError:
        return DEFAULT_SIZE


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # with the run directory


def main(words: list[str]) -> None:
    """Copy the output of an attempt to its end."""
    for name in IGNORED:
        _signal.signal(getattr(_signal, f"SIG{name}"), _signal.SIG_IGN)
    try:
        os.setsid()  # tmux hangs up its pane's session
    except OSError:
        pass
    node_dir, attempt, *descriptors = words
    Copier(node_dir, attempt, *map(int, descriptors)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
