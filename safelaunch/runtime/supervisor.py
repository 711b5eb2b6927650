"""Owns one node of a run: starts launch.sh, follows its logs, ends it, and records how it ended.

    python -I -S supervisor.py NODE_DIR

A child subreaper: whatever the run starts, also detached, becomes its child, and wait() -> ECHILD
proves that none is left. TERM or INT stops the job, HUP is ignored. It reads run.json, writes
status.json, events.jsonl, processes.jsonl and logs/; a full disk or a removed directory does not
end the job.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import follow
import procs
import state

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
TICK = 0.05  # seconds between two looks at the logs
LEFTOVER_PATIENCE = 10.0  # seconds that processes may outlive the launcher before they are ended
LEFTOVER_GRACE = 5.0
DEFAULT_GRACE = 15.0


class Supervisor(object):
    """One node's run from start to end."""

    def __init__(self, node_dir: str, run: dict[str, object], umask: int) -> None:
        self.dir = node_dir
        self.run = run
        self.umask = umask  # the caller's: the job's own files are none of our business
        self.attempt = 1
        self.logs = os.path.join(node_dir, "logs", "attempt-1")
        self.stop_signal: str | None = None
        self.stopping = False
        self.launcher = 0
        self.launcher_start = 0
        self.wait_status: int | None = None
        self.children_left = True
        self.seen: dict[int, int] = {}
        self.next_scan = 0.0
        self.scan_every = 0.5
        self.pane = _pane()
        self.combined = -1
        self.copy = -1
        self.lost_log = False
        self.status = {
            "version": 1,
            "id": run["id"],
            "name": run["name"],
            "state": "pending",
            "exit_code": None,
            "hostname": socket.gethostname(),
            "supervisor": procs.identity(os.getpid()),
            "created_at": run.get("created_at"),
            "backend": run.get("backend"),
            "socket": run.get("socket"),
        }  # type: dict[str, object]

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start launch.sh in a session of its own."""
        for name in ("ranks", self.logs):
            _make_dirs(os.path.join(self.dir, name))
        self._open_logs()
        out = os.open(
            os.path.join(self.logs, "launcher.log"),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        environment = self._environment()
        script = os.path.join(self.dir, "launch.sh")
        self.merger = follow.Merger(self.logs, bool(self.run.get("rank_logs")))
        pid = os.fork()
        if pid == 0:
            _become_launcher(script, out, environment, self.umask)
        os.close(out)
        self.launcher = pid
        found = procs.stat_of(pid)
        self.launcher_start = found[2] if found else 0
        now = time.time()
        self.status.update(
            state="running",
            started_at=now,
            launcher={"pid": pid, "start": self.launcher_start},
            attempts=[{"attempt": 1, "started_at": now}],
        )
        self.save()
        self.event("started", launcher=pid)

    def _environment(self) -> dict[str, str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
        # tmux describes its own terminal; the job gets what the caller had
        for name in ("TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION"):
            environment.pop(name, None)
        terminal = self.run.get("terminal")
        environment.update(terminal if isinstance(terminal, dict) else {})
        environment.update(
            {
                procs.MARK: str(self.run["id"]),
                "SAFELAUNCH_NODE_DIR": self.dir,
                "SAFELAUNCH_ATTEMPT": str(self.attempt),
                "SPT_NOENV": "1",  # setproctitle would overwrite the environment, and the mark
            }
        )
        if self.run.get("rank_logs"):
            environment["SAFELAUNCH_SITE"] = os.path.join(self.dir, "runtime", "site")
        return environment

    def _open_logs(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self.combined = os.open(os.path.join(self.logs, "combined.log"), flags, 0o600)
            copy = self.run.get("log")
            if copy:
                self.copy = os.open(str(copy), flags, 0o644)
        except OSError as e:
            self.event("log-failed", error=str(e))

    # -- loop ----------------------------------------------------------------------------------

    def loop(self, wakeup: int) -> None:
        """Follow the job until nothing of it is left."""
        ended_at = None
        while self.children_left:
            self._sleep(wakeup)
            self._reap()
            self._write(self.merger.read())
            self._scan()
            if self.stop_signal is not None:
                self._stop()
                break
            if self.wait_status is not None and self.children_left:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > LEFTOVER_PATIENCE:
                    left = procs.descendants(os.getpid())
                    self.event("leftovers", processes=len(left), names=_names(left))
                    self.status["leftovers"] = len(left)
                    self._end_rest(LEFTOVER_GRACE)
                    break

    def _sleep(self, wakeup: int) -> None:
        ready, _, _ = select.select([wakeup], [], [], TICK)
        if ready:
            try:
                os.read(wakeup, 4096)
            except OSError:
                pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.children_left = False
                return
            if pid == 0:
                return
            if pid == self.launcher:
                self.wait_status = status

    def _stop(self) -> None:
        """TERM the launcher, then what outlives it; KILL after the grace."""
        asked = state.read_json(os.path.join(self.dir, "stop.json")) or {}
        grace = asked.get("grace", DEFAULT_GRACE)
        grace = float(grace) if isinstance(grace, (int, float)) else DEFAULT_GRACE
        self.stopping = True
        self.status["stopped_by"] = self.stop_signal
        self.event("stopping", signal=self.stop_signal, grace=grace)
        deadline = time.monotonic() + grace
        procs.send(self.launcher, self.launcher_start, signal.SIGTERM)
        while self.wait_status is None and time.monotonic() < deadline:
            time.sleep(0.02)
            self._reap()
            self._write(self.merger.read())
        self._end_rest(max(0.0, deadline - time.monotonic()))

    def _end_rest(self, grace: float) -> None:
        def find() -> dict[int, int]:
            self._reap()
            self._write(self.merger.read())
            return procs.descendants(os.getpid()) if self.children_left else {}

        left = procs.end_all(find, grace)
        self._reap()
        if left:
            self.status["unkillable"] = sorted(left)
            self.event("unkillable", processes=sorted(left))

    def _scan(self) -> None:
        """Record each descendant that was ever seen: after our death it is known by identity."""
        now = time.monotonic()
        if now < self.next_scan:
            return
        self.next_scan = now + self.scan_every
        self.scan_every = min(self.scan_every * 1.5, 5.0)
        fresh = []
        for pid, start in procs.descendants(os.getpid()).items():
            if self.seen.get(pid) != start:
                self.seen[pid] = start
                fresh.append(dict(procs.machine(), pid=pid, start=start))
        if fresh:
            self.scan_every = 0.5
            self._append("processes.jsonl", fresh)
        self._restore()

    def _restore(self) -> None:
        """Make the directory again if somebody removed it: a run must stay visible, stoppable."""
        if os.path.isdir(self.dir):
            return
        _make_dirs(self.logs)
        self._open_logs()
        self.event(
            "directory-restored", note="the run directory was removed; earlier logs are lost"
        )
        self.status["warning"] = (
            "the run directory was removed while the job ran; earlier logs are lost"
        )
        write = dict(procs.machine())
        self._append("processes.jsonl", [dict(write, pid=p, start=s) for p, s in self.seen.items()])
        try:
            state.write_json(os.path.join(self.dir, "run.json"), self.run)
        except OSError:
            pass
        self.save()

    # -- end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the last lines and the end."""
        self._write(self.merger.drain())
        code, signum = _decode(self.wait_status)
        final = "succeeded" if code == 0 else "failed"
        if self.stopping:
            final = "stopped"
        now = time.time()
        attempts = self.status.get("attempts")
        if isinstance(attempts, list) and attempts:
            attempts[-1].update(ended_at=now, exit_code=code)
        self.status.update(state=final, exit_code=code, ended_at=now)
        if signum:
            self.status["signal"] = signum
        if not os.path.isdir(self.dir):
            self._restore()
        self.event("ended", state=final, exit_code=code)
        self._pane_write(("\r\n[safelaunch] %s: %s\r\n" % (self.run["id"], final)).encode())
        self.save(patient=True)

    def save(self, patient: bool = False) -> None:
        """Write status.json; when it is the end, try for a while (the disk may be full)."""
        for _ in range(60 if patient else 1):
            try:
                state.write_json(os.path.join(self.dir, "status.json"), self.status)
            except OSError:
                if patient:
                    time.sleep(1.0)
                continue
            return

    def event(self, kind: str, **details: object) -> None:
        """Append to events.jsonl."""
        self._append("events.jsonl", [dict(details, time=time.time(), event=kind)])

    def _append(self, name: str, records: list[dict[str, object]]) -> None:
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
        try:
            fd = os.open(
                os.path.join(self.dir, name),
                os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                0o600,
            )
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
        except OSError:
            pass  # a full disk must not end the job

    def _write(self, data: bytes) -> None:
        if not data:
            return
        for fd in (self.combined, self.copy):
            if fd >= 0:
                self._write_all(fd, data)
        self._pane_write(data)

    def _write_all(self, fd: int, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        except OSError as e:
            if not self.lost_log:
                self.lost_log = True
                self.status["warning"] = "the combined log has gaps: %s" % e.strerror
                self.event("log-failed", error=str(e))

    def _pane_write(self, data: bytes) -> None:
        """Show it in the pane; a pane that is slow or gone loses lines, never the job time."""
        if self.pane < 0:
            return
        try:
            os.write(self.pane, data)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EINTR):
                self.pane = -1


def _decode(status: int | None) -> tuple[int | None, str]:
    """Return exit code and signal name; a signal n is the exit code 128 + n, as shells say it."""
    if status is None:
        return None, ""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return 128 + number, signal.Signals(number).name
        except ValueError:
            return 128 + number, "signal %d" % number
    return os.WEXITSTATUS(status), ""


def _names(processes: dict[int, int]) -> list[str]:
    names = []
    for pid in sorted(processes)[:20]:
        try:
            with open("/proc/%d/comm" % pid) as file:
                names.append("%d %s" % (pid, file.read().strip()))
        except OSError:
            pass
    return names


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


def _become_launcher(script: str, out: int, environment: dict[str, str], umask: int) -> None:
    """In the child: default signals, own session, no stdin, output to launcher.log; then bash."""
    try:
        os.setsid()
        os.umask(umask)
        for signum in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGPIPE,
        ):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execvpe(  # noqa: S606 - no shell but the script's own
            "bash", ["bash", script], environment
        )
    except BaseException as e:  # noqa: BLE001 - nothing of the supervisor may run on in the child
        os.write(2, ("safelaunch: cannot start bash: %s\n" % e).encode())
    finally:
        os._exit(127)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _signals(supervisor: Supervisor) -> int:
    """Install the handlers; return a descriptor that becomes readable with each signal."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def stop(signum: int, frame: object) -> None:
        del frame
        supervisor.stop_signal = supervisor.stop_signal or signal.Signals(signum).name

    def ignore(signum: int, frame: object) -> None:
        """Do nothing; unlike SIG_IGN this is not handed down to the job by exec."""

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    for signum in (signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(signum, ignore)
    return reader


def main(node_dir: str, umask: int) -> int:
    """Run one node to its end. Exit 0: the end was recorded, whatever it was."""
    log = os.open(
        os.path.join(node_dir, "supervisor.log"),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        0o600,
    )
    os.dup2(log, 2)
    os.close(log)
    run = state.read_json(os.path.join(node_dir, "run.json"))
    if run is None:
        sys.stderr.write("run.json cannot be read\n")
        return 1
    parent = run.get("foreground")
    if parent and _prctl(PR_SET_PDEATHSIG, signal.SIGTERM) and os.getppid() != parent:
        return 1  # the client died before we could ask to be told
    supervisor = Supervisor(node_dir, run, umask)
    wakeup = _signals(supervisor)
    if not _prctl(PR_SET_CHILD_SUBREAPER, 1):
        supervisor.event("no-subreaper", note="detached processes are found by their mark only")
    supervisor.start()
    supervisor.loop(wakeup)
    supervisor.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), os.umask(0o077)))
