"""Runs the container of a node on its machine, waits for its end, and records it.

    python -I -S -B run_container.py NODE_DIR

A backend starts it in place of the supervisor, which is in the container. It owns nothing of the
job: where it is killed, the container goes on, and whoever looks at the run next records its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import backends, json_files, processes
from safelaunch.runtime.containers import container_end
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import ContainerEnd, JobEnvironment, RunRecord, Status
from safelaunch.runtime.supervise import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import ContainerStart

PAUSE = 1.0  # seconds between two looks at the counters of memory kills
START_PAUSE = 0.05  # seconds between two looks for the supervisor
RETRY = 2.0  # seconds between two questions to an engine that does not answer
LOG = "container.log"  # what the engine's client prints on stderr
START_PATIENCE = 5.0  # seconds for a supervisor whose container has started to be recorded


class MemoryWatch:
    """What shows that the supervisor was killed for memory.

    The counter of its group goes with the group, and has to be read before; the kernel's log, where
    it may be read, is followed from before the start.
    """

    def __init__(self, node_dir: str) -> None:
        self._dir = node_dir
        self._snapshot = oom_kills.Snapshot()
        self._supervisor = 0
        self._kills = oom_kills.Kills()

    @property
    def pause(self) -> float:
        """Seconds until the next look: short until there is a supervisor."""
        return PAUSE if self._supervisor else START_PAUSE

    def look(self) -> None:
        """Read what has come since the last look."""
        if not self._supervisor:
            status = Status.read(self._dir)
            if status is None or status.supervisor is None:
                return
            self._supervisor = status.supervisor.pid
            self._snapshot.add_processes([self._supervisor])
        self._kills.kills += self._snapshot.kills().kills

    def proof(self) -> str | None:
        """Return what shows it; None where nothing does."""
        self.look()
        return oom_kills.proof(self._kills, [self._supervisor]) if self._supervisor else None


def main(node_dir: str) -> int:
    """Run the container to its end; return 0 where that was recorded."""
    os.umask(0o077)
    run = RunRecord.read(node_dir)
    if run is None or run.container is None:
        sys.stderr.write("run.json cannot be read\n")
        return 1
    end = ContainerEnd(client=processes.identity(os.getpid()))
    end.write(node_dir)
    is_stopped = _install_handlers(node_dir, run)
    if is_stopped:
        return 1
    memory = MemoryWatch(node_dir)
    code = _client(node_dir, run.container, memory)
    _await_end(node_dir, run.container, memory)
    status = Status.read(node_dir)
    if status is None or status.supervisor is None:
        _say_why(node_dir, run.container, code)
    container_end.settle(node_dir, memory.proof())
    container_end.remove(run.container)  # also where a start was undone, and its folder is gone
    json_files.remove(os.path.join(node_dir, JobEnvironment.FILE))  # where nothing has read it
    backends.clean_up(run)
    return 0


def _install_handlers(node_dir: str, run: RunRecord) -> bool:
    """Let a signal to this process stop the job; return whether the client is gone already."""

    def stop(signum: int, frame: object) -> None:
        del signum, frame
        status = Status.read(node_dir)
        if status is not None and status.supervisor is not None:
            processes.terminate(status.supervisor.pid, status.supervisor.start)
        elif run.container is not None:
            container_end.signal_container(run.container, "TERM")

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    client = run.foreground
    if not client or not launch.prctl(launch.PR_SET_PDEATHSIG, signal.SIGTERM):
        return False
    return os.getppid() != client


def _client(node_dir: str, container: ContainerStart, memory: MemoryWatch) -> int:
    """Run the engine's command to its end; return its exit code."""
    words = list(container.argv)
    if os.isatty(0) and os.isatty(1):
        words[2:2] = ["-i", "-t"]
    with open(os.path.join(node_dir, LOG), "ab") as log:
        try:
            child = subprocess.Popen(words, stderr=log, env={**os.environ, **container.environ})
        except OSError as e:
            log.write(f"{words[0]}: {e.strerror}\n".encode())
            return 127
        while True:
            try:
                return child.wait(memory.pause)
            except subprocess.TimeoutExpired:
                memory.look()


def _await_end(node_dir: str, container: ContainerStart, memory: MemoryWatch) -> None:
    """Wait while the container runs on without its client, which may be detached or killed."""
    while True:
        answer = container_end.state(container)
        if answer is not None and not answer.get("Running"):
            return
        status = Status.read(node_dir)
        supervisor = None if status is None else status.supervisor
        if answer is None and (supervisor is None or not processes.is_alive(supervisor)):
            return  # the engine does not answer, and there is nobody to wait for
        memory.look()
        time.sleep(PAUSE if answer is not None else RETRY)


def _say_why(node_dir: str, container: ContainerStart, code: int) -> None:
    """Write why no supervisor has started to where a start looks for it."""
    try:
        with open(os.path.join(node_dir, LOG), "rb") as file:
            text = file.read().decode("utf-8", "replace").strip()
        with open(os.path.join(node_dir, "supervisor.log"), "ab") as log:
            log.write(f"{container.engine} run ended with {code}: {text}\n".encode())
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
