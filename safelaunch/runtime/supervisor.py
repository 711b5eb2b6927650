"""Owns one node of a run: starts launch.sh, follows its logs, ends it, and records how it ended.

    python -I -S -B supervisor.py NODE_DIR

A child subreaper: whatever the run starts, also detached, becomes its child, and wait() -> ECHILD
proves that none is left. TERM or INT stops the job, HUP is ignored. It reads run.json; journal.py
does all writing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

try:
    import ctypes
except ImportError:  # a Python that was built without libffi
    ctypes = None  # type: ignore[assignment]

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import follow
import journal
import procs
import state

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
TICK = 0.05  # seconds between two looks at the logs where inotify does not tell
IDLE = 0.25  # and where it does: a file system that tells nothing is still followed
COALESCE = 0.01  # seconds in which many small writes become one look
LEFTOVER_PATIENCE = 10.0  # seconds that processes may outlive the launcher before they are ended
LEFTOVER_GRACE = 5.0
DEFAULT_GRACE = 15.0
SAVE_PATIENCE = 3600  # seconds in which the end is written again and again to a disk that is full

# What tmux sets for its panes; the job gets the caller's values, from run.json, or none.
TERMINAL = ("TMUX", "TMUX_PANE", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "SHELL", "PWD")


class Supervisor(object):
    """One node's run from start to end."""

    def __init__(self, node_dir: str, run: dict[str, object], umask: int) -> None:
        self.dir = node_dir
        self.run = run
        self.umask = umask  # the caller's: the job's own files are none of our business
        self.attempt = 1
        self.signals: list[str] = []  # those that ask for a stop, as they came
        self.heard = 0
        self.kill_at = float("inf")
        self.stopping = False
        self.subreaper = True
        self.launcher = 0
        self.launcher_start = 0
        self.wait_status: int | None = None
        self.children_left = True
        self.seen: dict[int, int] = {}
        self.next_scan = 0.0
        self.scan_every = 0.5
        self.last_look = 0.0
        self.journal = journal.Journal(node_dir, run)
        self.merger = follow.Merger(self.journal.logs, bool(run.get("rank_logs")))
        self.watch = follow.Watch(_libc())

    # -- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start launch.sh in a session of its own. Raises OSError, with nothing started."""
        self.journal.open()
        path = os.path.join(self.journal.logs, "launcher.log")
        out = os.open(path, journal.LOG_FLAGS, 0o600)
        self.watch.add(self.journal.logs)
        environment = self._environment()
        script = os.path.join(self.dir, "launch.sh")
        pid = os.fork()
        if pid == 0:
            _become_launcher(script, out, environment, self.umask)
        os.close(out)
        self.launcher = pid
        found = procs.stat_of(pid)
        self.launcher_start = found[2] if found else 0
        now = time.time()
        self.journal.status.update(
            state="running",
            started_at=now,
            launcher={"pid": pid, "start": self.launcher_start},
            attempts=[{"attempt": 1, "started_at": now}],
        )
        self.journal.save()
        self.journal.event("started", launcher=pid)
        said = "[safelaunch] %s: Ctrl-B D leaves it running, Ctrl-C stops it\r\n" % self.run["id"]
        self.journal.show(said.encode())

    def _environment(self) -> dict[str, str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
        for name in TERMINAL:
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

    # -- loop ----------------------------------------------------------------------------------

    def loop(self, wakeup: int) -> None:
        """Follow the job until nothing of it is left."""
        ended_at = None
        while self.children_left:
            self._sleep(wakeup)
            self._turn()
            self._scan()
            if self.signals:
                self._stop()
                break
            if self.wait_status is not None and self.children_left:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > LEFTOVER_PATIENCE:
                    self._end_leftovers()
                    break
        if not self.subreaper:
            self._end_rest(lambda: procs.marked(str(self.run["id"])), LEFTOVER_GRACE)

    def _sleep(self, wakeup: int) -> None:
        """Wait until something happens: a signal, a child's end, more in a log."""
        if self.merger.is_behind():
            return
        watched = [wakeup] if self.watch.fd < 0 else [wakeup, self.watch.fd]
        ready, _, _ = select.select(watched, [], [], TICK if self.watch.fd < 0 else IDLE)
        if wakeup in ready:
            try:
                os.read(wakeup, 4096)
            except OSError:
                pass
        if self.watch.fd in ready:
            time.sleep(max(0.0, min(COALESCE, self.last_look + COALESCE - time.monotonic())))
            self.watch.clear()

    def _turn(self) -> None:
        self.last_look = time.monotonic()
        self._reap()
        self.journal.log(self.merger.read())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.children_left = False
                return
            if pid == 0:
                return
            if pid == self.launcher and self.wait_status is None:
                self.wait_status = status

    def _is_late(self) -> bool:
        """Whether it is time to KILL; each signal may bring a `stop` with less grace."""
        if self.heard != len(self.signals):
            self.heard = len(self.signals)
            asked = state.read_json(os.path.join(self.dir, "stop.json")) or {}
            grace = asked.get("grace")
            grace = float(grace) if isinstance(grace, (int, float)) else DEFAULT_GRACE
            self.kill_at = min(self.kill_at, time.monotonic() + grace)
        return time.monotonic() >= self.kill_at

    def _stop(self) -> None:
        """TERM the launcher, then what outlives it; KILL after the grace."""
        # a job that had ended by itself keeps its own end; only its leftovers are stopped
        self.stopping = self.wait_status is None
        self.journal.status["stopped_by"] = self.signals[0]
        self.journal.event("stopping", signal=self.signals[0])
        procs.ask(self.launcher, self.launcher_start)
        while self.wait_status is None and not self._is_late():
            time.sleep(0.02)
            self._turn()
        self._end_rest(self._descendants, None)

    def _end_leftovers(self) -> None:
        left = self._descendants()
        if left:
            self.journal.event("leftovers", processes=len(left), names=_names(left))
            self.journal.status["leftovers"] = len(left)
            self._end_rest(self._descendants, LEFTOVER_GRACE)

    def _descendants(self) -> dict[int, int]:
        below: dict[int, int] = procs.descendants(os.getpid()) if self.children_left else {}
        return below

    def _end_rest(self, find: procs.Find, grace: float | None) -> None:
        if grace is not None:
            self.kill_at = min(self.kill_at, time.monotonic() + grace)

        def find_now() -> dict[int, int]:
            self._turn()
            found: dict[int, int] = find()
            return found

        left = procs.end_all(find_now, self._is_late)
        self._reap()
        if left:
            self.journal.status["unkillable"] = sorted(left)
            self.journal.event("unkillable", processes=sorted(left))

    def _scan(self) -> None:
        """Record each descendant that was ever seen: after our death it is known by identity."""
        now = time.monotonic()
        if now < self.next_scan:
            return
        self.next_scan = now + self.scan_every
        self.scan_every = min(self.scan_every * 1.5, 5.0)
        living = self._descendants()
        fresh = {p: s for p, s in living.items() if self.seen.get(p) != s}
        self.seen = living
        if fresh:
            self.scan_every = 0.5
            self.journal.processes(fresh)
        if self.journal.restore(self.seen):
            self.watch.add(self.journal.logs)

    # -- end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the last lines and the end."""
        self.journal.log(self.merger.drain())
        if self.children_left and "unkillable" not in self.journal.status:
            # another user's, under hidepid: wait() says that there is one, /proc does not show it
            self.journal.warn("a process is left that this user cannot see")
        code, signum = _decode(self.wait_status)
        final = "succeeded" if code == 0 else "failed"
        if self.stopping:
            final = "stopped"
        if final == "succeeded":  # any other end has a cause of its own
            self.journal.count_ranks()
        now = time.time()
        attempts = self.journal.status.get("attempts")
        if isinstance(attempts, list) and attempts:
            attempts[-1].update(ended_at=now, exit_code=code)
        self.journal.status.update(state=final, exit_code=code, ended_at=now)
        if signum:
            self.journal.status["signal"] = signum
        self.journal.restore(self.seen)
        self.journal.event("ended", state=final, exit_code=code)
        said = "\r\n[safelaunch] %s: %s\r\n" % (self.run["id"], final)
        self.journal.show(said.encode())
        self._save_end()
        state.drop_socket(self.run.get("socket"))

    def _save_end(self) -> None:
        told = len(self.signals)
        for _ in range(SAVE_PATIENCE):
            # a signal now asks again to stop, and there is nothing else left to do
            if self.journal.save_end() or len(self.signals) > told:
                return
            time.sleep(1.0)


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
            with open("/proc/%d/comm" % pid, errors="replace") as file:
                names.append("%d %s" % (pid, file.read().strip()))
        except OSError:
            pass
    return names


def _become_launcher(script: str, out: int, environment: dict[str, str], umask: int) -> None:
    """In the child: default signals, own session, no stdin, output to launcher.log; then bash."""
    try:
        os.setsid()
        os.umask(umask)
        for signum in range(1, signal.NSIG):
            try:
                # also what Python or the caller ignores: that would be handed down by exec
                signal.signal(signum, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
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


def _libc() -> object:
    """Return the C library; an empty object where it cannot be called."""
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (AttributeError, OSError):
        return object()


def _prctl(option: int, value: int) -> bool:
    call = getattr(_libc(), "prctl", None)
    return call is not None and call(option, value, 0, 0, 0) == 0


def _signals(supervisor: Supervisor) -> int:
    """Install the handlers; return a descriptor that becomes readable with each signal."""
    reader, writer = os.pipe()
    for fd in (reader, writer):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def stop(signum: int, frame: object) -> None:
        del frame
        supervisor.signals.append(signal.Signals(signum).name)

    def ignore(signum: int, frame: object) -> None:
        """Do nothing."""

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # TSTP: Ctrl-Z in the pane would stop the supervisor, and nobody could wake it
    for name in ("SIGHUP", "SIGPIPE", "SIGQUIT", "SIGCHLD", "SIGTSTP"):
        signal.signal(getattr(signal, name), ignore)
    return reader


def main(node_dir: str, umask: int) -> int:
    """Run one node to its end. Exit 0: the end was recorded, whatever it was."""
    log = os.open(os.path.join(node_dir, "supervisor.log"), journal.LOG_FLAGS, 0o600)
    os.dup2(log, 2)
    os.close(log)
    run = state.read_json(os.path.join(node_dir, "run.json"))
    if run is None:
        sys.stderr.write("run.json cannot be read\n")
        return 1
    parent = run.get("foreground")
    if parent and _prctl(PR_SET_PDEATHSIG, signal.SIGTERM) and os.getppid() != parent:
        return 1  # the client died before we could ask to be told
    if not state.claim(node_dir):
        sys.stderr.write("the start was called off\n")
        state.drop_socket(run.get("socket"))
        return 1
    supervisor = Supervisor(node_dir, run, umask)
    wakeup = _signals(supervisor)
    supervisor.subreaper = _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if not supervisor.subreaper:
        supervisor.journal.event(
            "no-subreaper", note="detached processes are found by their mark only"
        )
    try:
        supervisor.start()
    except OSError as e:
        sys.stderr.write("the job cannot be started: %s\n" % e)
        state.drop_socket(run.get("socket"))
        return 1
    supervisor.loop(wakeup)
    supervisor.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), os.umask(0o077)))
