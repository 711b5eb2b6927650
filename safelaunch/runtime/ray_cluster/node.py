"""The Ray of one node: its start, which of its processes still live, and its end.

`ray start --block` is the parent of Ray's processes, and ends with the first one that fails; but it
takes an end by TERM for wanted, also one that a `ray stop` of another run has sent. So the two that
a node cannot do without are looked at here.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

from safelaunch.runtime import processes
from safelaunch.runtime.ray_cluster import log_words, private_folder
from safelaunch.runtime.ray_cluster import options as cluster_options
from safelaunch.runtime.ray_cluster.private_folder import RayFolder
from safelaunch.runtime.records import RayFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.ray_cluster.children import Children
    from safelaunch.runtime.ray_cluster.options import ClusterOptions

PARTS = ("gcs_server", "raylet")  # processes whose end is that of the node, by their names
SCAN_EVERY = 1.0  # seconds between two looks for these
PATIENCE = 5.0  # seconds for an end in order: `ray start` would drain the node for 30
AFTER_KILL = 5.0
EXIT_PATIENCE = 1.5  # seconds in which `ray start` says how one of its processes has ended
CONNECT_LIMIT = 2.0
PAUSE = 0.05
# failure classes
DEAD, INCOMPLETE, SETTINGS = "ray-node-dead", "rendezvous-timeout", "user-code-exception"


class RayError(Exception):
    """The Ray of this node has failed."""

    def __init__(self, failure: RayFailure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class RayNode:
    """The Ray of one node."""

    def __init__(self, options: ClusterOptions, children: Children) -> None:
        self.options = options
        self.children = children
        self.environment = cluster_options.ray_environment(os.environ)
        self.files: RayFolder | None = None
        self.pid = 0  # of `ray start`
        self.parts: dict[str, tuple[int, int]] = {}  # name -> pid and start time
        self.next_scan = 0.0

    @property
    def folder(self) -> str:
        """The folder of Ray's files; "" before there is one."""
        return "" if self.files is None else self.files.path

    @property
    def log(self) -> str:
        """What `ray start` prints."""
        return os.path.join(self.folder, "ray-start.log")

    @property
    def nodes_log(self) -> str:
        """What the check of the nodes prints."""
        return os.path.join(self.folder, "nodes.log")

    @property
    def logs(self) -> str:
        """The folder of Ray's own logs."""
        return os.path.join(self.folder, "t", "session_latest", "logs")

    def prepare(self) -> None:
        """Make the folder of Ray's files. Raises RayError."""
        try:
            self.files = RayFolder(private_folder.path_of(os.environ))
        except (OSError, ValueError) as e:
            raise self._error(SETTINGS, f"Ray has no folder: {e}") from e

    def start(self) -> None:
        """Start Ray. Raises RayError."""
        gpus = cluster_options.visible_gpus(os.environ)
        folder = os.path.join(self.folder, "t")  # Ray lets all users into its own
        try:
            words = cluster_options.start_words(self.options, sys.executable, folder, gpus)
        except OSError as e:
            raise self._error(INCOMPLETE, f"no way to node 0 at {self.options.place}: {e}") from e
        self.pid = self.children.start(words, self.environment, self.log)

    def finds_head(self) -> bool:
        """Whether the head takes connections."""
        return self._connect() is None

    def misses_head(self) -> bool:
        """Whether there is no head any more; a network that is busy, or cut, is no end of it."""
        return isinstance(self._connect(), ConnectionRefusedError)

    def _connect(self) -> OSError | None:
        place = (self.options.address, self.options.port)
        try:
            socket.create_connection(place, CONNECT_LIMIT).close()
        except OSError as e:
            return e
        return None

    def without_head(self, limit: float) -> RayError:
        """Return that no head was there in time."""
        what = f"Ray's head on node 0 takes no connections at {self.options.place}"
        return self._error(INCOMPLETE, f"{what}, {limit:.0f} s after the start of this node")

    # -- while it runs -------------------------------------------------------------------------

    def check(self) -> None:
        """Look whether Ray runs. Raises RayError."""
        code = self.children.code_of(self.pid)
        if code is not None:
            raise self._ended(code)
        for name, (pid, start) in self.parts.items():
            if processes.start_time(pid) != start:
                self.children.await_end(self.pid, EXIT_PATIENCE)
                raise self._died(name, pid)
        is_complete = len(self.parts) == (2 if self.options.node == 0 else 1)
        if not is_complete and time.monotonic() >= self.next_scan:
            self.find_parts()

    def find_parts(self) -> None:
        """Look for the processes whose end is that of the node."""
        self.next_scan = time.monotonic() + SCAN_EVERY
        for pid, start in processes.descendants(self.pid).items():
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    name = file.read().strip()
            except (OSError, ValueError):
                continue
            if name in PARTS:
                self.parts[name] = (pid, start)

    def _ended(self, code: int) -> RayError:
        """Return why `ray start` has ended by itself."""
        lines = log_words.read(self.log)
        for name in PARTS:
            if log_words.exit_code(lines, name) is not None:
                return self._died(name, self.parts.get(name, (0, 0))[0])
        how = f"exited with code {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        what = "Ray has ended" if self.parts else "Ray does not start"
        words = log_words.last_words(lines)
        error = self._error(DEAD, f"{what}: `ray start` {how}", words, lines, self.pid)
        error.failure.log = os.path.basename(self.log)
        return error

    def _died(self, name: str, pid: int) -> RayError:
        """Return how a process of Ray has ended that the node needs."""
        lines = log_words.read(self.log)
        code, how, signal_name = log_words.exit_code(lines, name), "has ended", ""
        if code is not None and code < 0:
            signal_name = _signal_name(-code)
            how = f"was ended by {signal_name}"
        elif code is not None:
            how = f"exited with code {code}"
        number = f" (pid {pid})" if pid else ""
        log = log_words.log_of(self.logs, name, pid)
        own = log_words.read(os.path.join(self.logs, log))
        what = f"Ray's {name}{number} {how}"
        error = self._error(DEAD, what, log_words.last_error(own), own, pid)
        error.failure.signal, error.failure.log, error.failure.part = signal_name, log, name
        return error

    def incomplete(self) -> RayError:
        """Return that some nodes are not in the cluster, as the check of the nodes has said it."""
        lines = log_words.read(self.nodes_log)
        return self._error(INCOMPLETE, "Ray is not complete", log_words.last_words(lines), lines)

    @staticmethod
    def _error(
        name: str, what: str, words: str = "", lines: Sequence[str] = (), pid: int = 0
    ) -> RayError:
        failure = RayFailure(class_name=name, what=f"{what}: {words}" if words else what, pid=pid)
        failure.time, failure.last_lines = time.time(), log_words.shown(lines)
        return RayError(failure)

    # -- the end -------------------------------------------------------------------------------

    def end(self, patience: float) -> None:
        """End Ray, and all that it has started on this node; at once without patience."""
        if not self.pid:
            return
        left = processes.descendants(self.pid)
        own = processes.start_time(self.pid)
        if own is not None:
            left[self.pid] = own
            self.children.send(self.pid, signal.SIGTERM)
        for seconds, signum in ((patience, signal.SIGKILL), (AFTER_KILL, 0)):
            deadline = time.monotonic() + seconds
            while left and time.monotonic() < deadline:
                left = {p: s for p, s in left.items() if processes.start_time(p) == s}
                self.children.wait(PAUSE)
            for pid, start in left.items() if signum else ():
                processes.send(pid, start, signum)

    def remove_files(self) -> None:
        """Remove the folder of Ray's files."""
        if self.files is not None:
            self.files.remove()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
