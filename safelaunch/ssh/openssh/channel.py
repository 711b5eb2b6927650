"""A command on a host that runs below an `ssh`: its streams are those of that process."""

# ruff: noqa: PLC0415 - Windows has no fcntl and no termios; the module must be importable there

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from safelaunch.ssh.streams import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

POLL = 0.5  # seconds between two looks whether another thread has closed the channel
_GRACE = 2.0  # seconds for an `ssh` to end
FAILED = 255  # exit code of `ssh` for an error of its own; a command may have it too


class OpenSSHChannel:
    """A running command: its stdin and stdout, and the end of its stderr."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        failure: Callable[[], Exception | None],
        size: tuple[int, int] | None,
    ) -> None:
        """Start an `ssh` to the host `name`; with a `size` on a terminal. Raises OSError.

        `failure` returns why an `ssh` that exits with FAILED has not run its command; None: it has.
        """
        self._name = name
        self._failure = failure
        self._closed = False
        self._reading = threading.Lock()
        self._terminal: int | None = None
        if size is None:
            self._process = _start(argv, subprocess.PIPE)
        else:
            self._terminal, inner = _open_terminal()
            try:
                _set_size(self._terminal, size)
                self._process = _start(argv, inner)
            except BaseException:
                os.close(self._terminal)
                raise
            finally:
                os.close(inner)
        stdin, stdout = self._process.stdin, self._process.stdout
        self._stdin = stdin.fileno() if stdin is not None else self._terminal or -1
        self._stdout = stdout.fileno() if stdout is not None else self._terminal or -1
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._errors = Tail()
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of stdout, none at its end.

        Raises ConnectionLost, HostError.
        """
        with self._reading:
            while not self._closed and not self._selector.select(POLL):
                pass
            data = b""
            if not self._closed:
                with contextlib.suppress(OSError):  # a terminal whose other side is closed
                    data = os.read(self._stdout, size)
        if not data:
            self._raise_failure()
        return data

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all data to stdin. Raises ConnectionLost; BrokenPipeError if the command ended."""
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[os.write(self._stdin, view) :]
        except OSError as e:
            self._raise_failure()
            raise BrokenPipeError(e.errno, f"the command on {self._name} has ended") from e

    def close_stdin(self) -> None:
        """Send the end of stdin to the command."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal size of a command on a pty."""
        if self._terminal is not None and sys.platform != "win32":
            with contextlib.suppress(OSError):
                _set_size(self._terminal, (columns, rows))
                self._process.send_signal(signal.SIGWINCH)

    def stderr_tail(self) -> str:
        """Return the last lines of stderr so far; complete once the command has ended."""
        if self._process.poll() is not None:
            self._drain.join(_GRACE)
        return self._errors.text()

    def exit_code(self, timeout: float | None = None) -> int | None:
        """Return the exit code; None after the timeout, 255 if a signal ended the command.

        Raises ConnectionLost.
        """
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while self._process.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(min(left, POLL))
        self._raise_failure()
        return self._process.returncode if self._process.returncode >= 0 else FAILED

    def close(self) -> None:
        """End the command; a read or write in another thread gets an error."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._reading:  # a thread that reads must not get the next file of this number
            self._selector.close()
            for file in (self._process.stdin, self._process.stdout):
                if file is not None:
                    with contextlib.suppress(OSError):
                        file.close()
            if self._terminal is not None:
                os.close(self._terminal)
                self._terminal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raise_failure(self) -> None:
        """Raise the error of an `ssh` that has failed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)  # its streams close a moment before it ends
        code = self._process.poll()
        if self._closed or code is None or 0 <= code < FAILED:
            return
        failure = self._failure()
        if failure is not None:
            raise failure

    def _read_errors(self) -> None:
        # it may end a round trip behind the process: the `ssh` of a shared login holds it, too
        stderr = self._process.stderr
        if stderr is not None:
            with stderr, contextlib.suppress(OSError, ValueError):
                while data := stderr.read(1 << 16):
                    self._errors.add(data)


def _start(argv: Sequence[str], streams: int) -> subprocess.Popen[bytes]:
    """Start a process with stdin and stdout; in a session of its own, where Ctrl-C leaves it."""
    return subprocess.Popen(
        argv,
        stdin=streams,
        stdout=streams,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


def _open_terminal() -> tuple[int, int]:
    """Return both sides of a new terminal, ours and that of a process."""
    if sys.platform == "win32":
        raise OSError("no terminals of this kind on Windows")
    return os.openpty()


def _set_size(terminal: int, size: tuple[int, int]) -> None:
    """Set columns and rows of a terminal."""
    if sys.platform != "win32":
        import fcntl
        import termios

        columns, rows = size
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
