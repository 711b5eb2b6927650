"""What a supervisor writes: status, events, processes, the merged log. Only a start may raise.

A full disk or a removed directory must not end the job, nor hide how it ended.
"""

# ruff: noqa: PLC0415 - what few jobs need

from __future__ import annotations

import json
import os
import sys
import time

from safelaunch.runtime import claim, json_files
from safelaunch.runtime import processes as runtime_processes
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.records import DroppedOutput, Failure, PeersAddress, RunRecord, Status
from safelaunch.runtime.supervise import pane

FOLDERS = ("ranks", "records", "pipes", "logs")
PROCESSES = "processes.jsonl"
PROCESSES_LIMIT = 1 << 20  # bytes, some 7000 processes: beyond that only the living ones stay
MEMORY_LIMIT = 1 << 20  # bytes of a file of the start that are held in memory
OWN = (
    *(".reserve", ".jsonl", ".csv", ".log", "status.json", "failure.json", "claim", claim.LOCK),
    PeersAddress.FILE,  # read once: it has the token of the run
)
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Journal:
    """The files of one node's run, as far as its supervisor writes them."""

    def __init__(self, node_dir: str, run: RunRecord, *, is_forked: bool = False) -> None:
        self.dir = node_dir
        self.run = run
        self.is_forked = is_forked  # whether the supervisor is a fork of one process with many
        self.logs = ""
        self.lock = -1  # descriptor of the supervisor's lock, which the copier of the logs inherits
        self.pane = pane.Pane(pane.own_terminal())
        self.combined = -1
        self.copy = -1
        self.dropped: dict[str, DroppedOutput] = {}  # by path of the log
        self.last = b"\n"  # byte of the merged log
        self.start_files: dict[str, tuple[bytes, int]] = {}  # name -> bytes and mode
        self.processes_limit = PROCESSES_LIMIT
        self.wait_event = ""  # what the last event named that the run waits for
        self.status_file = os.path.join(node_dir, Status.FILE)
        self.failure_file = os.path.join(node_dir, Failure.FILE)
        self.status = Status(
            version=1,
            id=run.id,
            name=run.name,
            state="pending",
            exit_code=None,
            hostname=os.uname().nodename,
            supervisor=runtime_processes.identity(os.getpid()),
            created_at=run.created_at,
            backend=run.backend,
            socket=run.socket,
            start=run.start,
        )

    def open(self) -> None:
        """Write the first status and make the folders. Raises OSError."""
        self._reserve()
        self.lock = claim.hold_lock(self.dir)
        # before logs/: with that folder and no status, a run counts as one whose status was lost
        self.status.write(self.dir)
        for name in FOLDERS:
            os.makedirs(os.path.join(self.dir, name), 0o700, exist_ok=True)
        if self.run.log:
            self.copy = self._open_log(self.run.log, 0o644)

    def remember(self, files: dict[str, bytes]) -> None:
        """Read the files of the start into memory, beside the given ones. Raises OSError.

        A later attempt needs them: its script, the job's configuration, what its ranks import.
        """
        self.start_files = {name: (data, 0o600) for name, data in files.items()}
        for name in os.listdir(self.dir):
            path = os.path.join(self.dir, name)
            if name.endswith(OWN) or not os.path.isfile(path):
                continue
            info = os.stat(path)
            if info.st_size <= MEMORY_LIMIT:
                with open(path, "rb") as file:
                    self.start_files[name] = file.read(), info.st_mode & 0o777

    def start_attempt(self, attempt: int) -> None:
        """Open the logs of an attempt. Raises OSError."""
        self.logs = os.path.join(self.dir, "logs", f"attempt-{attempt}")
        os.makedirs(self.logs, 0o700, exist_ok=True)
        self.last = b"\n"
        self._open_combined()

    def save(self) -> None:
        """Write status.json; on a full disk the old one stays."""
        try:
            self.status.write(self.dir)
        except OSError:
            pass

    def save_end(self) -> bool:
        """Write the last status, on a full disk into the space that was reserved for it."""
        _make_dirs(self.dir)
        if not _write_or_use_reserve(self.status_file, self.status.to_json()):
            return False
        json_files.release(self.failure_file)
        return True

    def fail(self, failure: Failure) -> None:
        """Write failure.json, on a full disk into the space that was reserved for it."""
        _make_dirs(self.dir)
        _write_or_use_reserve(self.failure_file, failure.to_json())
        try:
            # there may be another attempt
            json_files.reserve(self.failure_file, json_files.RESERVED_FAILURE)
        except OSError:
            pass

    def event(self, name: str, /, **details: object) -> None:
        """Append to events.jsonl."""
        self._append("events.jsonl", [dict(details, time=time.time(), event=name)])

    def processes(self, processes: dict[int, int]) -> None:
        """Record the identity of processes: it is known after the supervisor's death."""
        size = self._append(PROCESSES, _identities(processes))
        if size <= self.processes_limit:
            return
        # only those whose process is alive: a job may start millions of short ones
        from safelaunch.runtime import run_state

        data = _lines(_identities(run_state.recorded(self.dir)))
        # where all of them are alive, the next time is when there are twice as many
        self.processes_limit = max(PROCESSES_LIMIT, 2 * len(data))
        try:
            json_files.replace(os.path.join(self.dir, PROCESSES), data)
        except OSError:
            pass  # a full disk: the long one stays

    def restore(self, living: dict[int, int]) -> bool:
        """Make the directory again if it was removed: a run must stay visible and stoppable."""
        # what writes at that moment may make the folder again, but not these two
        if os.path.exists(self.status_file) and os.path.isdir(self.logs):
            return False
        for folder in (*(os.path.join(self.dir, name) for name in FOLDERS), self.logs):
            _make_dirs(folder)
        self._write_start_files()
        self._open_combined()
        warning = "the run directory was removed while the job ran; earlier logs are lost"
        self.warn(warning)
        self.event("directory-restored", note=warning)
        self.processes(living)
        self.save()
        return True

    def _write_start_files(self) -> None:
        """Write what the start had written, and set space aside again."""
        for name, (data, mode) in self.start_files.items():
            path = os.path.join(self.dir, name)
            if os.path.lexists(path):
                continue
            _make_dirs(os.path.dirname(path))
            try:
                json_files.write(path, data, mode)
            except OSError:
                continue
        try:
            self.run.write(self.dir)
            self._reserve()
        except OSError:
            pass

    def _reserve(self) -> None:
        """Set space aside for the end. Raises OSError."""
        json_files.reserve(self.status_file, json_files.RESERVED)
        json_files.reserve(self.failure_file, json_files.RESERVED_FAILURE)

    def missing_ranks(self, attempt: int) -> str:
        """Return that fewer ranks started than planned, "" otherwise."""
        planned = self.run.ranks
        try:
            names = os.listdir(os.path.join(self.dir, "ranks"))
        except OSError:
            return ""
        parts = [name.split(".") for name in names]
        started = len({part[0] for part in parts if part[1:2] == [str(attempt)]})
        if planned is not None and started < planned and self.run.rank_logs:
            return f"{started} of {planned} planned ranks were seen"
        return ""

    def warn(self, message: str) -> None:
        """Add a warning to those of the status."""
        earlier = self.status.warning
        if message in (earlier or ""):
            return
        self.status.warning = f"{earlier}; {message}" if earlier else message

    def show_wait(self, what: str) -> None:
        """Record what the run waits for before its first attempt."""
        if self.wait_event == self.status.waits_for == what:
            return
        self.status.waits_for = self.wait_event = what
        self.save()
        self.event("waits", what=what)
        self.notify(f"waits for {what}")

    def broken(self, part: str, error: Exception) -> None:
        """Record a fault of our own, with its traceback in supervisor.log."""
        import traceback

        sys.stderr.write(traceback.format_exc())
        self.warn(f"safelaunch's own {part} failed ({error}); the job goes on")
        self.event("fault", part=part, error=repr(error))

    def log(self, data: bytes) -> None:
        """Write merged lines to combined.log, the project's log and the pane."""
        if not data:
            return
        self.last = data[-1:]
        self._write_all(self.combined, os.path.join(self.logs, "combined.log"), data)
        if self.run.log:
            self._write_all(self.copy, self.run.log, data)
        self.pane.show(data)

    def notify(self, message: str) -> None:
        """Write a message of safelaunch's own into the log and the pane, on a line of its own."""
        line_break = (
            "" if self.last == b"\n" else "\n"
        )  # a line of the job, or its bar, stays whole
        self.log(f"{line_break}[safelaunch] {printable(message)}\n".encode())

    def _open_combined(self) -> None:
        if self.combined >= 0:
            os.close(self.combined)
            self.combined = -1
        self.combined = self._open_log(os.path.join(self.logs, "combined.log"), 0o600)

    def _open_log(self, path: str, mode: int) -> int:
        """Return a descriptor of a log; -1 where it cannot be opened."""
        try:
            return os.open(path, LOG_FLAGS, mode)
        except OSError as e:
            self.drop(path, 0, e.strerror or str(e))
            return -1

    def _append(self, name: str, records: list[dict[str, object]]) -> int:
        """Append to a file of lines; return its size then, 0 where it is not known."""
        try:
            fd = os.open(os.path.join(self.dir, name), LOG_FLAGS, 0o600)
            try:
                os.write(fd, _lines(records))
                return os.fstat(fd).st_size
            finally:
                os.close(fd)
        except OSError:
            return 0  # a full disk must not end the job

    def _write_all(self, fd: int, path: str, data: bytes) -> None:
        view = memoryview(data)
        if fd < 0:
            self.drop(path, len(view), "")
            return
        try:
            while view:
                view = view[os.write(fd, view) :]
        except OSError as e:
            self.drop(path, len(view), e.strerror or str(e))

    def drop(self, path: str, count: int, why: str) -> None:
        """Count bytes that a log lacks."""
        entry = self.dropped.get(path) or DroppedOutput(file=path)
        self.set_dropped(path, entry.bytes + count, why or entry.why)

    def set_dropped(self, path: str, total: int, why: str) -> None:
        """Record how many bytes a log lacks, and why."""
        if path not in self.dropped:
            self.event("output-dropped", file=path, why=why)
        self.dropped[path] = DroppedOutput(file=path, bytes=total, why=why)
        self.status.dropped = [entry for entry in self.dropped.values() if entry.bytes]


def _identities(processes: dict[int, int]) -> list[dict[str, object]]:
    machine = runtime_processes.machine()
    return [dict(machine, pid=pid, start=start) for pid, start in processes.items()]


def _lines(records: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _write_or_use_reserve(path: str, data: dict[str, object]) -> bool:
    for write in (json_files.write_json, json_files.write_reserved):
        try:
            write(path, data)
        except OSError:
            continue
        json_files.release(path)
        return True
    return False


def _make_dirs(path: str) -> None:
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError:
        pass
