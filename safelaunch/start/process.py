"""This machine, by the standard library alone.

Not plumbum: its import is a quarter of a start's time (60 ms), it lays what a command is given over
its own copy of os.environ, so that no name can be left out, and its handle of a process that is
detached waits 0.2 s when it is dropped. Nor for other machines: it logs in by itself, keeps a shell
there that it asks word by word (paths are a round trip each, where runtime/agent.py answers all in
one), and reads two streams in turn, so that one blocks behind the other above 2 MiB.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, NamedTuple, Protocol

from safelaunch.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Result(NamedTuple):
    """How a command ended: its exit code, stdout and stderr as text."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line that it said, for messages."""
        lines = (self.err or self.out).strip().splitlines()
        return lines[-1] if lines else ""


class Transport(Protocol):
    """Commands and files of one machine."""

    def run(self, argv: Sequence[str], *, timeout: float | None = None) -> Result:
        """Run a command to its end. Raises StartError if it cannot be started."""

    def detach(self, argv: Sequence[str], *, cwd: str) -> int:
        """Start a command in its own session; return its pid. Raises StartError."""


class Local:
    """This machine, with exactly the given environment for what is run on it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._detached: list[subprocess.Popen[bytes]] = []  # held, or Python warns that they run

    def run(self, argv: Sequence[str], *, timeout: float | None = None) -> Result:
        """Run a command to its end, without stdin. Raises StartError if it cannot be started.

        In a session of its own: Ctrl-C is for us, who then clean up, not for half of a start.
        """
        process = self._popen(argv, subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise StartError(f"`{argv[0]}` did not answer within {timeout:g} s") from None
        except BaseException:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)  # half of a tmux server would be harder to clean up than a whole
            process.kill()
            raise
        return Result(process.returncode, _text(out), _text(err))

    def detach(self, argv: Sequence[str], *, cwd: str) -> int:
        """Start a command in its own session, without terminal and pipes; return its pid."""
        process = self._popen(argv, subprocess.DEVNULL, cwd)
        self._detached.append(process)
        return process.pid

    def _popen(
        self, argv: Sequence[str], output: int, cwd: str | None = None
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environ,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as e:
            if isinstance(e, FileNotFoundError) and "/" not in argv[0]:
                raise StartError(f"`{argv[0]}` is not installed") from None
            raise StartError(f"`{argv[0]}` cannot be run: {e.strerror}") from e


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
