"""A TCP proxy with faults: between a client and a server it stalls, resets, hangs up or cuts."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from typing_extensions import Self

Direction = Literal["up", "down"]  # from the client to the server, and back
How = Literal["reset", "drop", "stall"]  # of a cut: by RST, by FIN, or nothing passes any more
UP: Direction = "up"
DOWN: Direction = "down"
_PIECE = 1 << 16


class Faults:
    """Forwards `port` of loopback to a server until told otherwise. Thread-safe."""

    def __init__(self, address: str, port: int) -> None:
        self._server = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self.passed = {UP: 0, DOWN: 0}  # bytes, over all connections
        self._changed = threading.Condition()
        self._stalled: set[str] = set()
        self._budget: dict[str, int] = {}
        self._how: How = "reset"
        self._once = False
        self._was_cut = False
        self._silent = 0  # connections, of the first, through which nothing passes ever again
        self._hang_up = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    # -- faults

    def stall(self, *directions: Direction) -> None:
        """Let nothing pass, in one direction or both; connections stay open."""
        with self._changed:
            self._stalled |= set(directions or (UP, DOWN))

    def cut_after(
        self, count: int, direction: Direction, how: How = "reset", *, once: bool = False
    ) -> None:
        """Cut all connections once `count` more bytes have passed in a direction.

        Each further one too, until `heal`; with `once` those are left alone.
        """
        with self._changed:
            self._budget[direction] = count
            self._how, self._once = how, once

    def cut(self, how: How) -> None:
        """Cut all connections that are there."""
        with self._changed:
            self._was_cut = True
            if how == "stall":
                self._silent = self.accepted
        if how != "stall":
            self._end(linger=how == "reset")

    @property
    def was_cut(self) -> bool:
        """Tell whether anything was cut since the beginning, or since `heal`."""
        with self._changed:
            return self._was_cut

    def hang_up(self, connections: int) -> None:
        """Close the next connections as soon as they are there."""
        with self._changed:
            self._hang_up = connections

    def reset(self) -> None:
        """Reset all connections."""
        self.cut("reset")

    def drop(self) -> None:
        """Close all connections, as a server does that goes down in order."""
        self.cut("drop")

    def heal(self) -> None:
        """Forward again; what was stalled goes on, unless it was cut so."""
        with self._changed:
            self._stalled.clear()
            self._budget.clear()
            self._was_cut = False
            self._hang_up = 0
            self._changed.notify_all()

    def wait(self, count: int, direction: Direction, seconds: float = 30) -> None:
        """Wait until `count` bytes have passed in a direction, since the beginning."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.passed[direction] >= count, seconds)
        assert done, f"only {self.passed[direction]} bytes went {direction}, not {count}"

    def close(self) -> None:
        """End all connections and the proxy."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        # accept() in another thread does not notice a close
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        self._end(linger=True)
        for thread in self._threads:
            thread.join(5)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- forwarding

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with self._changed:
                if self._closed:
                    client.close()
                    return
                self.accepted += 1
                number = self.accepted
                hang_up = self._hang_up > 0
                self._hang_up -= hang_up
            if hang_up:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server, 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._pairs.append((client, server))
            for arguments in ((client, server, UP), (server, client, DOWN)):
                thread = threading.Thread(target=self._pump, args=(*arguments, number), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, direction: Direction, number: int
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                if not self._may_pass(direction, number):
                    return
                with self._changed:
                    data, cut = self._within_budget(data, direction)
                    self.passed[direction] += len(data)
                sink.sendall(data)
                with self._changed:
                    self._changed.notify_all()
                if cut:
                    self.cut(self._how)
            if self._may_pass(direction, number):  # the end of a stream stalls as its bytes do
                sink.shutdown(socket.SHUT_WR)

    def _may_pass(self, direction: Direction, number: int) -> bool:
        """Wait as long as a direction is stalled; False where the proxy is closed meanwhile."""

        def is_free() -> bool:
            return direction not in self._stalled and number > self._silent

        with self._changed:
            self._changed.wait_for(lambda: is_free() or self._closed)
            return is_free()

    def _within_budget(self, data: bytes, direction: Direction) -> tuple[bytes, bool]:
        if direction not in self._budget:
            return data, False
        data = data[: self._budget[direction]]
        self._budget[direction] -= len(data)
        cut = self._budget[direction] <= 0
        if cut and self._once:
            del self._budget[direction]
        return data, cut

    def _end(self, *, linger: bool) -> None:
        with self._changed:
            pairs, self._pairs = self._pairs, []
        for each in (s for pair in pairs for s in pair):
            with contextlib.suppress(OSError):
                if linger:
                    now = struct.pack("ii", 1, 0)
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
                else:
                    each.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                # wakes the other thread, which close alone does not, and would hold back the reset
                each.shutdown(socket.SHUT_RD)
            each.close()
