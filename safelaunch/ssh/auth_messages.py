"""The messages of a login (RFC 4252): requests, and the replies that the reading thread hands over.

Paramiko's own handler asks a person on that thread, and nothing else is read meanwhile.
"""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any

from safelaunch.ssh import paramiko_patches

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 120.0  # seconds for one answer: a push to a phone may be behind it
REQUEST, FAILURE, SUCCESS, MORE, ANSWER = 50, 51, 52, 60, 61
_BANNER = 53
_SERVICE_REQUEST, _SERVICE_ACCEPT = 5, 6
_SERVICE = "ssh-userauth"


class Ended(Exception):  # noqa: N818 - reads as what happened
    """The connection ended, or nothing came for too long."""


class Exchange:
    """Requests and replies of the login. Stands where Paramiko has its own handler."""

    def __init__(self, transport: Any) -> None:
        self.authenticated = False
        self.banner = ""
        self._transport = transport
        self._replies: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        kinds = (_SERVICE_ACCEPT, FAILURE, SUCCESS, _BANNER, MORE)
        self._handler_table = {kind: self._taker(kind) for kind in kinds}
        transport.auth_handler = self

    def _taker(self, kind: int) -> Callable[[Any], None]:
        def take(message: Any) -> None:
            if kind == _BANNER:
                self.banner = message.get_text()
            else:
                if kind == SUCCESS:  # before the next message is read: it may need it
                    self.authenticated = True
                    self._transport._auth_trigger()  # noqa: SLF001 - as Paramiko's handler
                self._replies.put((kind, message))

        return take

    # what a transport asks of its handler

    def is_authenticated(self) -> bool:
        """Tell whether the server has let us in."""
        return self.authenticated

    def abort(self) -> None:
        """Learn that the connection has ended."""
        self._replies.put((0, None))

    # what a login does

    def begin(self) -> None:
        """Ask for the service that logs in. Raises Ended."""
        self.send(_SERVICE_REQUEST, _SERVICE)

    def send(self, kind: int, *fields: Any) -> tuple[int, Any]:
        """Send a message and return type and content of the reply. Raises Ended."""
        message = paramiko_patches.paramiko().Message()
        message.add_byte(bytes([kind]))
        for value in fields:
            if isinstance(value, bool):
                message.add_boolean(value)
            elif isinstance(value, int):
                message.add_int(value)
            else:
                message.add_string(value)
        try:
            self._transport._send_message(message)  # noqa: SLF001 - as Paramiko's handler
        except (OSError, EOFError) as e:
            raise Ended(str(e)) from e
        return self._reply()

    def _reply(self) -> tuple[int, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                kind, message = self._replies.get(timeout=0.2)
            except queue.Empty:
                if not self._transport.is_active():
                    break
                continue
            if kind:
                return kind, message
            break
        raise Ended("" if not self._transport.is_active() else f"no answer for {PATIENCE:g} s")
