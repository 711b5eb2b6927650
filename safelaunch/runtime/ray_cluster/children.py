"""Starts the programs of one node's Ray, and waits for their ends and for signals to itself."""

from __future__ import annotations

import os
import signal
import time

from safelaunch.runtime.ranks.start_ranks import NOT_RUN, RESTORED, STOPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

TICK = 0.25  # seconds between two looks at what is no child of this process
MAIN = "SAFELAUNCH_MAIN"  # pid of the process that is the program, for the hooks in it


class Children:
    """The programs that this process has started: pids, and how they have ended.

    None is reaped: a zombie shows the supervisor, which is no parent of it, how the program ended.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would reap them
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *STOPS})
        self.pids: list[int] = []

    def start(self, words: Sequence[str], environment: Mapping[str, str], output: str = "") -> int:
        """Start a program and return its pid; `output` is a file for what it prints.

        One that cannot be started says so, and ends with 127.
        """
        pid = os.fork()
        if pid == 0:
            self._become(words, dict(environment), output)
        self.pids.append(pid)
        return pid

    def _become(self, words: Sequence[str], environment: dict[str, str], output: str) -> NoReturn:
        try:
            if output:
                log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(log, 1)
                os.dup2(log, 2)
            for signum in (*STOPS, *RESTORED):
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            if MAIN in environment:
                environment[MAIN] = str(os.getpid())
            os.execvpe(words[0], list(words), environment)  # noqa: S606 - words, no shell
        except BaseException as e:  # noqa: BLE001 - nothing of this may run on in the child
            os.write(2, f"safelaunch: cannot start {words[0]}: {e}\n".encode())
        finally:
            os._exit(NOT_RUN)

    @staticmethod
    def wait(seconds: float = TICK) -> int:
        """Wait for the end of a child or a signal; return a signal that asks for the end, or 0."""
        info = signal.sigtimedwait({signal.SIGCHLD, *STOPS}, seconds)
        return info.si_signo if info is not None and info.si_signo in STOPS else 0

    def await_end(self, pid: int, seconds: float) -> bool:
        """Wait for a child, also where signals come; return whether it has ended in time."""
        deadline = time.monotonic() + seconds
        while self.code_of(pid) is None and time.monotonic() < deadline:
            self.wait()
        return self.code_of(pid) is not None

    @staticmethod
    def code_of(pid: int) -> int | None:
        """Return the exit code of a child, of a signal its negative number; None while it runs."""
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def send(self, pid: int, signum: int) -> None:
        """Send a signal to a child that runs; a zombie takes none."""
        if self.code_of(pid) is None:
            os.kill(pid, signum)

    def end(self, pid: int, grace: float) -> None:
        """End a child by TERM, after the grace by KILL."""
        self.send(pid, signal.SIGTERM)
        if not self.await_end(pid, grace):
            self.send(pid, signal.SIGKILL)
            self.await_end(pid, grace)
