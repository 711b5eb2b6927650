"""Watches for the notice that a spot machine is taken away: a file, or an answer of a URL.

The URL is asked by a helper (metadata_watch.py), which writes preemption.json: a metadata service
that does not answer must not hold up the supervisor.
"""

from __future__ import annotations

import os
import sys

from safelaunch.runtime.records import PreemptionNotice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import PreemptionSource

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metadata_watch.py")
LOOK_EVERY = 0.5  # seconds between two looks for a file, on this machine


class PreemptionWatch:
    """The notices of one run: each is reported once."""

    def __init__(self, node_dir: str, source: PreemptionSource) -> None:
        self.dir = node_dir
        self.source = source
        self.pid = 0  # of the helper
        self.next_look = 0.0
        self.is_noticed = False  # and the machine is still there
        self.problem = ""  # why the URL cannot be asked
        self.is_problem_new = False

    def start(self) -> None:
        """Start the helper, unless its notice has come. Raises OSError."""
        if self.source.url is None or self.pid or self.is_noticed:
            return
        every = f"{self.source.every:g}"
        words = [PROGRAM, self.dir, self.source.kind, self.source.url, every]
        null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        argv = [sys.executable, "-I", "-S", "-B", *words]
        environ = {name: v for name, v in os.environ.items() if not name.startswith("SAFELAUNCH_")}
        actions = [null, (os.POSIX_SPAWN_DUP2, 2, 1)]
        self.pid = os.posix_spawn(
            sys.executable, argv, environ, file_actions=actions, setsigmask=[]
        )

    def reaped(self, pid: int) -> bool:
        """Whether the child that has ended was the helper."""
        if not pid or pid != self.pid:
            return False
        self.pid = 0
        return True

    def tick(self, now: float) -> str:
        """Return what a notice says that has just come, else ""."""
        if now < self.next_look:
            return ""
        self.next_look = now + min(LOOK_EVERY, self.source.every)
        what = self._notice()
        is_new = bool(what) and not self.is_noticed
        self.is_noticed = bool(what)
        return what if is_new else ""

    def _notice(self) -> str:
        path = self.source.file
        if path is not None and os.path.lexists(path):
            return f"{path} is there"
        answer = PreemptionNotice.read(self.dir) if self.source.url is not None else None
        if answer is None:
            return ""
        self.is_problem_new = bool(answer.problem) and not self.problem
        self.problem = self.problem or answer.problem
        return answer.what
