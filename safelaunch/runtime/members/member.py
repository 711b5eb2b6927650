"""One member of a run: its supervisor is started, followed and ended by the run's own."""

from __future__ import annotations

import os
import signal
import sys
import time

from safelaunch.runtime import PLACE, members, processes, run_state
from safelaunch.runtime.records import Failure, RunRecord, Status, StopRequest
from safelaunch.runtime.start import placeholders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runtime.records import ServiceSpec

GRACE = 15.0  # seconds between TERM and KILL
PATIENCE = 30.0  # seconds, after the grace, for its supervisor to write the end
PAUSE = 0.02
# files and folders of one start
OF_A_START = (
    *("claim", Status.FILE, Failure.FILE, StopRequest.FILE, "events.jsonl", "logs", "ranks"),
    *("records", "pipes", "samples.csv"),
)


class Member:
    """A program beside the job of a run."""

    def __init__(self, node_dir: str, name: str, umask: int) -> None:
        self.name = name
        self.umask = umask  # of its program: that of the caller of the run
        self.dir = os.path.join(members.folder(node_dir, name), "node-0")
        self.run_dir = node_dir
        self.pid = 0  # of its supervisor; 0: it does not run
        self.start_time = 0

    def start(self, values: Mapping[str, str], service: ServiceSpec | None = None) -> None:
        """Start its supervisor, with the values of the placeholders and the cards of a service.

        Raises OSError, ValueError.
        """
        run = RunRecord.read(self.dir)
        if run is None:
            raise OSError(f"no run.json in {self.dir}")
        self._clear()
        placeholders.fill(self.dir, run.placeholders, values)
        top = PLACE.split("/", 1)[0]  # its scripts look for the runtime beside them
        link = os.path.join(self.dir, top)
        if not os.path.lexists(link):
            os.symlink(os.path.join(self.run_dir, top), link)
        if service is not None:
            run.cards = service.cards
            run.gpus = list(service.gpus) if service.queued else run.gpus
        run.hostname, run.created_at = os.uname().nodename, time.time()
        run.starter = processes.identity(os.getpid())
        run.foreground = os.getpid()  # it ends with this process, however that ends
        run.write(self.dir)
        self.pid = self._fork()
        self.start_time = processes.start_time(self.pid) or 0

    def _clear(self) -> None:
        """Put aside what an earlier start has left: a member may start again with an attempt."""
        if not os.path.lexists(os.path.join(self.dir, Status.FILE)):
            return
        count = sum(name.startswith("earlier-") for name in os.listdir(self.dir))
        earlier = os.path.join(self.dir, f"earlier-{count + 1}")
        os.mkdir(earlier, 0o700)
        for name in OF_A_START:
            try:
                os.rename(os.path.join(self.dir, name), os.path.join(earlier, name))
            except FileNotFoundError:
                pass

    def _fork(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.umask(self.umask)
            os.setsid()
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            self._supervise()
        finally:
            os._exit(127)

    def _supervise(self) -> None:
        """Become its supervisor, in a new process: does not return. Raises OSError."""
        program = os.path.join(self.run_dir, PLACE, "supervise", "supervisor.py")
        argv = [sys.executable, "-I", "-S", "-B", program, self.dir]
        os.execv(sys.executable, argv)  # noqa: S606 - no shell

    # -- while it runs -------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether its supervisor runs; one that has ended is reaped."""
        if self.pid:
            try:
                ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            except ChildProcessError:
                ended = True
            if ended:
                self.pid = 0
        return bool(self.pid)

    def reaped(self, pid: int) -> bool:
        """Whether the child that has ended was its supervisor."""
        if pid != self.pid:
            return False
        self.pid = 0
        return True

    def status(self) -> Status:
        """Return its status, with the state as it is now."""
        return run_state.current_status(self.dir)

    def failure(self) -> Failure | None:
        """Return why it failed, where that is recorded."""
        return Failure.read(self.dir)

    # -- end -----------------------------------------------------------------------------------

    def ask_to_stop(self, grace: float = GRACE) -> None:
        """Ask its supervisor to end it."""
        if not self.is_running:
            return
        try:
            StopRequest(grace=grace, reason="the end of the job").write(self.dir)
        except OSError:
            pass  # a full disk: it stops with the default grace
        processes.terminate(self.pid, self.start_time)

    def await_end(self, grace: float = GRACE) -> None:
        """Wait until its supervisor has ended; one that does not end is killed, with all it has."""
        deadline = time.monotonic() + grace + PATIENCE
        while self.is_running and time.monotonic() < deadline:
            time.sleep(PAUSE)
        if self.is_running:
            left = {self.pid: self.start_time, **processes.descendants(self.pid)}
            processes.end_all(
                lambda: {p: s for p, s in left.items() if processes.start_time(p) == s},
                lambda: True,
            )
            self.is_running  # noqa: B018 - reaps it
