"""Runs a command to its end, or in a session of its own that outlives this process."""

# ruff: noqa: PLC0415 - a supervisor imports this for its backend, and never needs subprocess

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 60.0  # seconds for a command
NOT_RUN = -1  # the exit code of a command that could not be run, or did not end


class CommandResult:
    """How a command ended: its exit code, stdout and stderr as text."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code  # NOT_RUN: `err` says why
        self.out = out
        self.err = err

    @property
    def last_line(self) -> str:
        """The last line that it printed, for messages."""
        lines = (self.err or self.out).strip().splitlines()
        return lines[-1] if lines else ""

    def to_json(self) -> list[Any]:
        """Return the result as the arguments that make it."""
        return [self.code, self.out, self.err]


class RunningCommand:
    """A command that runs until its result is asked for; `stdin` is a file, None for none.

    It has a session of its own: Ctrl-C is for the caller, who then cleans up.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str] | None = None,
        stdin: int | None = None,
    ) -> None:
        import subprocess

        self._program = argv[0]
        self._child: subprocess.Popen[bytes] | None = None
        self._problem = ""
        try:
            self._child = _popen(argv, subprocess.PIPE, environ, stdin=stdin)
        except OSError as e:
            self._problem = f"`{argv[0]}` cannot be run: {e.strerror}"
            if isinstance(e, FileNotFoundError) and "/" not in argv[0]:
                self._problem = f"`{argv[0]}` is not installed"

    @property
    def pid(self) -> int | None:
        """Its pid; None where it could not be run."""
        return None if self._child is None else self._child.pid

    def result(self, limit: float = LIMIT) -> CommandResult:
        """Return how it ended; NOT_RUN where it could not be run, or did not end in `limit` s."""
        import subprocess

        child = self._child
        if child is None:
            return CommandResult(NOT_RUN, "", self._problem)
        try:
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _kill_session(child)
            why = f"`{self._program}` did not answer within {limit:g} s"
            return CommandResult(NOT_RUN, "", why)
        except BaseException:
            try:
                child.wait(1)  # half of a tmux server would be harder to clean up than a whole one
            except subprocess.TimeoutExpired:
                _kill_session(child)
            raise
        return CommandResult(
            child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        )


def run(
    argv: Sequence[str], *, environ: Mapping[str, str] | None = None, limit: float = LIMIT
) -> CommandResult:
    """Run a command without stdin; return its result, NOT_RUN where it could not be run."""
    return RunningCommand(argv, environ).result(limit)


def detach(argv: Sequence[str], *, cwd: str, environ: Mapping[str, str]) -> int:
    """Start a command in its own session, without terminal and pipes; return its pid."""
    import subprocess

    child = _popen(argv, subprocess.DEVNULL, environ, cwd)
    child.returncode = 0  # it outlives this process, which does not wait for it: no ResourceWarning
    return child.pid


def _kill_session(child: subprocess.Popen[bytes]) -> None:
    """Kill a command with its own children: a wrapper script of a site would leave the rest behind.

    The group has the number of the session's leader; what has made a session of its own stays. A
    command that cannot be killed, in the kernel or as another user's, is not waited for.
    """
    import signal
    import subprocess

    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(1)
    except subprocess.TimeoutExpired:
        child.returncode = NOT_RUN  # nobody waits for it any more: no ResourceWarning


def _popen(
    argv: Sequence[str],
    output: int,
    environ: Mapping[str, str] | None,
    cwd: str | None = None,
    stdin: int | None = None,
) -> subprocess.Popen[bytes]:
    import subprocess

    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=output,
        stderr=output,
        env=environ,
        cwd=cwd,
        start_new_session=True,
    )
