"""A TCP proxy that makes a line longer: what is sent arrives later, and in order."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_PIECE = 1 << 16


class Latency:
    """Forwards `port` of loopback to a server, `delay` seconds later each way."""

    def __init__(self, address: str, port: int) -> None:
        self.delay = 0.0
        self._server = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
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
                self._forward(client, server, start)
                self._forward(server, client, start)

    def _forward(self, source: socket.socket, sink: socket.socket, start: float) -> None:
        under_way: queue.Queue[tuple[float, bytes]] = queue.Queue()

        def read() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(_PIECE)
                    # a late acknowledgement of ours would hold back the sender's next packet
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                except OSError:
                    data = b""
                under_way.put((max(time.monotonic(), start) + self.delay, data))

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
