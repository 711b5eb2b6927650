"""What a supervisor writes down: status, events, processes, the merged log. It never raises.

A full disk or a removed directory must not end the job, nor hide how it ended.
"""

from __future__ import annotations

import errno
import json
import os
import time

import procs
import state

LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Journal(object):
    """The files of one node's run, as far as its supervisor writes them."""

    def __init__(self, node_dir: str, run: dict[str, object]) -> None:
        self.dir = node_dir
        self.run = run
        self.logs = os.path.join(node_dir, "logs", "attempt-1")
        self.pane = _pane()
        self.combined = -1
        self.copy = -1
        self.has_gaps = False
        self.status_file = os.path.join(node_dir, "status.json")
        self.status = {
            "version": 1,
            "id": run["id"],
            "name": run["name"],
            "state": "pending",
            "exit_code": None,
            "hostname": os.uname().nodename,
            "supervisor": procs.identity(os.getpid()),
            "created_at": run.get("created_at"),
            "backend": run.get("backend"),
            "socket": run.get("socket"),
        }  # type: dict[str, object]

    def open(self) -> None:
        """Make the folders and write the first status. The one that raises: OSError."""
        for folder in (os.path.join(self.dir, "ranks"), self.logs):
            os.makedirs(folder, 0o700, exist_ok=True)
        state.reserve(self.status_file)
        state.write_json(self.status_file, self.status)
        self._open_combined()
        copy = self.run.get("log")
        if copy:
            try:
                self.copy = os.open(str(copy), LOG_FLAGS, 0o644)
            except OSError as e:
                self._log_failed(e)

    def save(self) -> None:
        """Write status.json; on a full disk the old one stays."""
        try:
            state.write_json(self.status_file, self.status)
        except OSError:
            pass

    def save_end(self) -> bool:
        """Write the last status, on a full disk into the space that was reserved for it."""
        _make_dirs(self.dir)
        for write in (state.write_json, state.write_reserved):
            try:
                write(self.status_file, self.status)
            except OSError:
                continue
            state.release(self.status_file)
            return True
        return False

    def event(self, kind: str, **details: object) -> None:
        """Append to events.jsonl."""
        self._append("events.jsonl", [dict(details, time=time.time(), event=kind)])

    def processes(self, found: dict[int, int]) -> None:
        """Record processes of the run: after the supervisor's death they are known by identity."""
        here = procs.machine()
        self._append("processes.jsonl", [dict(here, pid=p, start=s) for p, s in found.items()])

    def restore(self, seen: dict[int, int]) -> bool:
        """Make the directory again if somebody removed it: a run must stay visible, stoppable."""
        if os.path.isdir(self.dir):
            return False
        _make_dirs(self.logs)
        self._open_combined()
        warning = "the run directory was removed while the job ran; earlier logs are lost"
        self.warn(warning)
        self.event("directory-restored", note=warning)
        self.processes(seen)
        try:
            state.write_json(os.path.join(self.dir, "run.json"), self.run)
        except OSError:
            pass
        self.save()
        return True

    def count_ranks(self) -> None:
        """Warn where fewer ranks started than planned: each may have trained alone, silently."""
        planned = self.run.get("ranks")
        try:
            names = os.listdir(os.path.join(self.dir, "ranks"))
        except OSError:
            return
        started = len({name.split(".")[0] for name in names})
        if isinstance(planned, int) and started < planned and self.run.get("rank_logs"):
            said = "%d of %d planned ranks were seen: did a process train alone?"
            self.warn(said % (started, planned))

    def warn(self, message: str) -> None:
        """Add a warning to the status, beside those that are there."""
        earlier = self.status.get("warning")
        self.status["warning"] = "%s; %s" % (earlier, message) if earlier else message

    def log(self, data: bytes) -> None:
        """Write merged lines to combined.log, the project's log and the pane."""
        if not data:
            return
        for fd in (self.combined, self.copy):
            if fd >= 0:
                self._write_all(fd, data)
        self.show(data)

    def show(self, data: bytes) -> None:
        """Show it in the pane; a pane that is slow or gone loses lines, never the job time."""
        if self.pane < 0:
            return
        try:
            os.write(self.pane, data)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EINTR):
                os.close(self.pane)
                self.pane = -1

    def _open_combined(self) -> None:
        if self.combined >= 0:
            os.close(self.combined)
            self.combined = -1
        try:
            self.combined = os.open(os.path.join(self.logs, "combined.log"), LOG_FLAGS, 0o600)
        except OSError as e:
            self._log_failed(e)

    def _append(self, name: str, records: list[dict[str, object]]) -> None:
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
        try:
            fd = os.open(os.path.join(self.dir, name), LOG_FLAGS, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
        except OSError:
            pass  # a full disk must not end the job

    def _write_all(self, fd: int, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except OSError as e:
            self._log_failed(e)

    def _log_failed(self, error: OSError) -> None:
        if not self.has_gaps:
            self.has_gaps = True
            self.warn("the combined log has gaps: %s" % error.strerror)
            self.event("log-failed", error=str(error))


def _make_dirs(path: str) -> None:
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError:
        pass


def _pane() -> int:
    """Return the pane's descriptor, made non-blocking, or -1 where stdout is no terminal."""
    if not os.isatty(1):
        return -1
    try:
        # a descriptor of our own: O_NONBLOCK belongs to the open file, not to the number
        fd = os.open(os.ttyname(1), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1
    return fd
