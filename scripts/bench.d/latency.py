"""A TCP proxy that makes a line longer and narrower: what is sent arrives later, and in order."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from kills import tests
from rows import Row, home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.ssh.sshd import Sshd
    from typing_extensions import Self

_PIECE = 1 << 16
_NARROW = 1 << 13  # bytes that a narrow line carries at once
_BUFFER = 1 << 18  # bytes that a router holds before a narrow line, beside what is under way


class Latency:
    """Forwards `port` of loopback to a server, `delay` seconds later each way.

    With a `rate`, each way carries no more bytes a second than that, all connections together.
    """

    def __init__(self, address: str, port: int) -> None:
        self.delay = 0.0
        self.rate: float | None = None
        self._lock = threading.Lock()
        self._server = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._free = ([0.0], [0.0])  # times from which on the line to the server, and back, is free
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                # the connection itself takes a round trip too
                start = time.monotonic() + 2 * self.delay
                server = socket.create_connection(self._server)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += (client, server)
                self._forward(client, server, start, self._free[0])
                self._forward(server, client, start, self._free[1])

    def _sent(self, size: int, start: float, free: list[float]) -> float:
        """Return when the last of some bytes is on the line, which is `free` from a time on."""
        with self._lock:
            free[0] = max(free[0], time.monotonic(), start)
            if self.rate is not None:
                free[0] += size / self.rate
            return free[0]

    def _forward(
        self, source: socket.socket, sink: socket.socket, start: float, free: list[float]
    ) -> None:
        under_way: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def read() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(_PIECE if self.rate is None else _NARROW)
                    # a late acknowledgement of ours would hold back the sender's next packet
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                except OSError:
                    data = b""
                on_line = self._sent(len(data), start, free)
                under_way.put((on_line + self.delay, data))
                if self.rate is not None:  # a router's buffer is full: the sender has to wait
                    time.sleep(max(on_line - time.monotonic() - _BUFFER / self.rate, 0.0))

        def write() -> None:
            with contextlib.suppress(OSError):
                while True:
                    due, data = under_way.get()
                    time.sleep(max(due - time.monotonic(), 0.0))
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()


class FarServer(NamedTuple):
    """A server behind a line, and a home from which it is reached."""

    folder: str
    env: Mapping[str, str]  # with the folder as home
    server: Sshd
    line: Latency


@contextlib.contextmanager
def far_server(
    what: str, bound: str, settings: Mapping[str, str] | None = None
) -> Iterator[FarServer | Row]:
    """Yield a server with `settings` of sshd_config; where there can be none, the row saying why.

    `what` is measured, against a `bound`.
    """
    sshd = tests("support.ssh.sshd")
    why = sshd.missing()
    if why:
        yield Row(what, f"not measured: {why}", bound, False)
        return
    with (
        home() as (folder, env),
        sshd.Sshd(dict(settings or {})) as server,
        Latency(server.address, server.port) as line,
    ):
        yield FarServer(folder, {**env, "HOME": folder}, server, line)
