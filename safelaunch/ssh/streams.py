"""What an SSH transport reads from and writes to: a TCP connection, a jump's channel, a command.

`Stream` reads ahead and notices silence; `Command` makes a process look like a socket, the same way
on every system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

AHEAD = 1 << 18  # bytes read at once: Paramiko asks for 16, then for a packet's rest
GREETING = 4096  # of what came first, to say what answers where it is no SSH server
_TAIL = 4096
_QUICK_ACK = getattr(socket, "TCP_QUICKACK", None)  # Linux has it


class Under(Protocol):
    """The part of a socket that is used. `recv` and `send` raise TimeoutError when time is up."""

    def recv(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""
        ...

    def send(self, data: bytes, /) -> int:
        """Send some bytes, and return how many."""
        ...

    def settimeout(self, seconds: float | None, /) -> None:
        """Set how long recv and send wait."""
        ...

    def close(self) -> None:
        """Close it; recv and send elsewhere end."""
        ...


class Stream:
    """Bytes both ways, with reading ahead. Dead after `limit` seconds in which nothing came."""

    def __init__(self, under: Under) -> None:
        self.limit: float | None = None
        self.heard = time.monotonic()
        self.first = b""
        self.ended = False  # by the other side
        self._under = under
        self._acknowledges = _QUICK_ACK is not None and isinstance(under, socket.socket)
        self._ahead = memoryview(b"")
        self._closed = False  # Paramiko looks at it, as sockets have it

    def settimeout(self, seconds: float | None) -> None:
        """Set how long recv and send wait."""
        self._under.settimeout(seconds)

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end. Raises OSError."""
        if not self._ahead:
            self._ahead = memoryview(self._receive())
        data = bytes(self._ahead[:size])
        self._ahead = self._ahead[size:]
        return data

    def _receive(self) -> bytes:
        try:
            data = self._under.recv(AHEAD)
        except TimeoutError:
            silence = time.monotonic() - self.heard
            if self.limit is not None and silence > self.limit:
                # no TimeoutError: Paramiko would go on waiting
                raise ConnectionError(errno.ETIMEDOUT, f"no answer for {silence:.0f} s") from None
            raise
        except OSError:
            self.ended = True
            raise
        if self._acknowledges:
            self._acknowledge()
        self.ended = not data
        self.heard = time.monotonic()
        if len(self.first) < GREETING:
            self.first += data[: GREETING - len(self.first)]
        return data

    def _acknowledge(self) -> None:
        """Acknowledge what came at once; the system forgets the wish, so it is told each time.

        OpenSSH's sshd holds back a small packet behind another until that one is acknowledged,
        which takes 40 ms otherwise: after each login, for one.
        """
        with contextlib.suppress(OSError):
            self._under.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)  # type: ignore[attr-defined]

    def send(self, data: bytes) -> int:
        """Send some bytes, and return how many. Raises OSError."""
        return self._under.send(data)

    def close(self) -> None:
        """Close it; a thread that reads or writes ends at once."""
        self._closed = True
        with contextlib.suppress(Exception):
            if isinstance(self._under, socket.socket):
                self._under.shutdown(socket.SHUT_RDWR)  # closing alone wakes nobody
        with contextlib.suppress(Exception):
            self._under.close()


class Command:
    """A process whose stdin and stdout are the connection, such as a ProxyCommand."""

    def __init__(self, command: str, say: Callable[[str], None]) -> None:
        """Start it. `say` gets each line of its stderr. Raises OSError."""
        # as OpenSSH does: the words are the user's own, with his shell's quoting
        words: Any = ["/bin/sh", "-c", f"exec {command}"] if os.name == "posix" else command
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self._timeout: float | None = None
        self._data = bytearray()
        self._ended = False
        self._closed = False
        self._came = threading.Condition()
        self._say = say
        self.told = ""  # the end of its stderr
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._pump, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def settimeout(self, seconds: float | None) -> None:
        """Set how long recv waits; send waits for the process."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end. Raises TimeoutError."""
        with self._came:
            if not self._came.wait_for(lambda: self._data or self._ended, self._timeout):
                raise TimeoutError
            data = bytes(self._data[:size])
            del self._data[:size]
            self._came.notify_all()
            return data

    def send(self, data: bytes) -> int:
        """Send some bytes, and return how many. Raises OSError."""
        stdin = self._process.stdin
        try:
            return (stdin.write(data) or 0) if stdin else 0
        except ValueError as e:  # closed meanwhile
            raise BrokenPipeError(errno.EPIPE, "the command's stdin is closed") from e

    def code(self) -> int | None:
        """Return the exit code once it has ended; waits a moment for one whose stdout is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        return self._process.poll()

    def close(self) -> None:
        """End the process and what is read from it."""
        with self._came:
            if self._closed:
                return
            self._closed = self._ended = True
            self._came.notify_all()
        with contextlib.suppress(OSError):
            self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(2)
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError):
                if file:
                    file.close()

    def _pump(self) -> None:
        stdout = self._process.stdout
        while stdout is not None:
            try:
                data = stdout.read(AHEAD)
            except (OSError, ValueError):
                data = b""
            with self._came:
                self._data += data or b""
                self._ended = self._ended or not data
                self._came.notify_all()
                # a command that is faster than we read must not fill the memory
                self._came.wait_for(lambda: len(self._data) < 8 * AHEAD or self._ended)
                if self._ended:
                    return

    def _listen(self) -> None:
        for line in self._process.stderr or ():
            text = line.decode("utf-8", "replace").rstrip()
            self.told = (self.told + text + "\n")[-_TAIL:]
            self._say(text)
