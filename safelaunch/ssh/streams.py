"""Byte streams for an SSH transport: a TCP connection, a channel of a jump host, a proxy command.

`Stream` reads ahead and detects silence; `ProxyProcess` makes a process look like a socket, in the
same way on every system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

READ_SIZE = 1 << 18  # bytes per read: Paramiko asks for 16, then for the remainder of a packet
GREETING_BYTES = 4096  # first bytes to keep, for the error about a server that does not speak SSH
_STDERR_TAIL = 4096  # characters of a proxy command's stderr to keep
_QUICK_ACK = getattr(socket, "TCP_QUICKACK", None)  # Linux only


class Tail:
    """Keeps the last bytes of a stream of text."""

    SIZE = 1 << 16  # bytes

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_cut = False

    def add(self, data: bytes) -> None:
        """Append data, and drop the oldest beyond SIZE."""
        self._data += data
        if len(self._data) > 2 * self.SIZE:
            self._is_cut = True
            del self._data[: -self.SIZE]

    def text(self) -> str:
        """Return the last lines."""
        text = bytes(self._data).decode("utf-8", "replace")
        return text.partition("\n")[2] if self._is_cut else text


class Stream:
    """A duplex byte stream with a read buffer; fails after `silence_limit` seconds of silence."""

    def __init__(self, raw: socket.socket | ProxyProcess) -> None:
        """Read and write `raw`, whose recv and send raise TimeoutError after its timeout."""
        self.silence_limit: float | None = None
        self.last_received = time.monotonic()
        self.greeting = b""
        self.closed_by_peer = False
        self.raw = raw
        self._buffer = memoryview(b"")
        self._closed = False  # Paramiko reads this attribute of a socket

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of recv and send."""
        self.raw.settimeout(seconds)

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end of the stream. Raises OSError."""
        if not self._buffer:
            self._buffer = memoryview(self._receive())
        data = bytes(self._buffer[:size])
        self._buffer = self._buffer[size:]
        return data

    def _receive(self) -> bytes:
        try:
            data = self.raw.recv(READ_SIZE)
        except TimeoutError:
            silence = time.monotonic() - self.last_received
            if self.silence_limit is not None and silence > self.silence_limit:
                # not TimeoutError: Paramiko would continue to wait
                raise ConnectionError(errno.ETIMEDOUT, f"no answer for {silence:.0f} s") from None
            raise
        except OSError:
            self.closed_by_peer = True
            raise
        if _QUICK_ACK is not None and isinstance(self.raw, socket.socket):
            # OpenSSH's sshd holds back a small packet until the packet before it is acknowledged,
            # which takes 40 ms otherwise: after each login, for example; the kernel resets this.
            with contextlib.suppress(OSError):
                self.raw.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        self.closed_by_peer = not data
        self.last_received = time.monotonic()
        if len(self.greeting) < GREETING_BYTES:
            self.greeting += data[: GREETING_BYTES - len(self.greeting)]
        return data

    def send(self, data: bytes) -> int:
        """Send some bytes, and return how many. Raises OSError."""
        return self.raw.send(data)

    def close(self) -> None:
        """Close it; a blocked read or write in another thread ends at once."""
        self._closed = True
        with contextlib.suppress(Exception):
            if isinstance(self.raw, socket.socket):
                self.raw.shutdown(socket.SHUT_RDWR)  # close() alone wakes no blocked thread
        with contextlib.suppress(Exception):
            self.raw.close()


class ProxyProcess:
    """A ProxyCommand: a process whose stdin and stdout are the connection."""

    def __init__(self, command: str, notify: Callable[[str], None]) -> None:
        """Start the process. `notify` gets each line of its stderr. Raises OSError."""
        # OpenSSH also runs the user's text, with its shell quoting, through a shell
        argv: Any = ["/bin/sh", "-c", f"exec {command}"] if os.name == "posix" else command
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self._timeout: float | None = None
        self._data = bytearray()
        self._ended = False
        self._closed = False
        self._changed = threading.Condition()
        self._notify = notify
        self.stderr_tail = ""
        self._threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._read_stdout, self._read_stderr)
        ]
        for thread in self._threads:
            thread.start()

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of recv; send waits for the process."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end of the stream. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._data or self._ended, self._timeout):
                raise TimeoutError
            data = bytes(self._data[:size])
            del self._data[:size]
            self._changed.notify_all()
            return data

    def send(self, data: bytes) -> int:
        """Send some bytes, and return how many. Raises OSError."""
        stdin = self._process.stdin
        try:
            return (stdin.write(data) or 0) if stdin else 0
        except ValueError as e:  # closed by another thread
            raise BrokenPipeError(errno.EPIPE, "the command's stdin is closed") from e

    def code(self) -> int | None:
        """Return the exit code, waiting up to 1 s for the process to exit; None if it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        return self._process.poll()

    def close(self) -> None:
        """Stop the process and the threads that read from it."""
        with self._changed:
            if self._closed:
                return
            self._closed = self._ended = True
            self._changed.notify_all()
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

    def _read_stdout(self) -> None:
        stdout = self._process.stdout
        while stdout is not None:
            try:
                data = stdout.read(READ_SIZE)
            except (OSError, ValueError):
                data = b""
            with self._changed:
                self._data += data or b""
                self._ended = self._ended or not data
                self._changed.notify_all()
                # a command that writes faster than we read must not fill the memory
                self._changed.wait_for(lambda: len(self._data) < 8 * READ_SIZE or self._ended)
                if self._ended:
                    return

    def _read_stderr(self) -> None:
        for line in self._process.stderr or ():
            text = line.decode("utf-8", "replace").rstrip()
            self.stderr_tail = (self.stderr_tail + text + "\n")[-_STDERR_TAIL:]
            self._notify(text)
