"""Login messages (RFC 4252): send requests, and receive replies from Paramiko's reading thread.

Paramiko's own handler prompts the user on that thread, which blocks all other reading.
"""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any

from safelaunch.ssh import paramiko_patches

if TYPE_CHECKING:
    from collections.abc import Callable

REPLY_TIMEOUT = 120.0  # seconds for one reply: the user may have to confirm on a phone
REQUEST, FAILURE, SUCCESS, CONTINUE, INFO_RESPONSE = 50, 51, 52, 60, 61
_BANNER = 53
_SERVICE_REQUEST, _SERVICE_ACCEPT = 5, 6
_SERVICE = "ssh-userauth"


class AuthAborted(Exception):  # noqa: N818 - reads as what happened
    """The connection ended, or no reply came within REPLY_TIMEOUT."""


class AuthExchange:
    """Requests and replies of the login; replaces Paramiko's own auth handler."""

    def __init__(self, transport: Any) -> None:
        self.authenticated = False
        self.banner = ""
        self._transport = transport
        self._replies: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        kinds = (_SERVICE_ACCEPT, FAILURE, SUCCESS, _BANNER, CONTINUE)
        self._handler_table = {kind: self._handler_for(kind) for kind in kinds}
        transport.auth_handler = self

    def _handler_for(self, kind: int) -> Callable[[Any], None]:
        def handle(message: Any) -> None:
            if kind == _BANNER:
                self.banner = message.get_text()
            else:
                if kind == SUCCESS:  # before the next message, which may depend on it, is read
                    self.authenticated = True
                    self._transport._auth_trigger()  # noqa: SLF001 - as Paramiko's handler
                self._replies.put((kind, message))

        return handle

    # called by Paramiko's transport

    def is_authenticated(self) -> bool:
        """Whether the server accepted the login."""
        return self.authenticated

    def abort(self) -> None:
        """Wake the waiting login: the connection has ended."""
        self._replies.put((0, None))

    # called by Login

    def request_service(self) -> None:
        """Request the user authentication service. Raises AuthAborted."""
        self.send(_SERVICE_REQUEST, _SERVICE)

    def send(self, kind: int, *fields: Any) -> tuple[int, Any]:
        """Send a message and return the type and content of the reply. Raises AuthAborted."""
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
            raise AuthAborted(str(e)) from e
        return self._reply()

    def _reply(self) -> tuple[int, Any]:
        deadline = time.monotonic() + REPLY_TIMEOUT
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
        raise AuthAborted(
            "" if not self._transport.is_active() else f"no answer for {REPLY_TIMEOUT:g} s"
        )
