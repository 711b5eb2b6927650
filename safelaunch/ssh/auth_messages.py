"""Login messages (RFC 4252): send requests, and receive replies from Paramiko's reading thread.

Paramiko's own handler prompts the user on that thread, which blocks all other reading.
"""
# ruff: noqa: SLF001 - calls the methods that Paramiko's own handler calls

from __future__ import annotations

import queue
import time
from functools import partial
from typing import Any

from safelaunch.ssh import paramiko_patches

REPLY_TIMEOUT = 120.0  # seconds for one reply: the user may have to confirm on a phone
REQUEST, FAILURE, SUCCESS, CONTINUE, INFO_RESPONSE = 50, 51, 52, 60, 61
_BANNER = 53
SERVICE_REQUEST, _SERVICE_ACCEPT = 5, 6


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
        self._handler_table = {kind: partial(self._receive, kind) for kind in kinds}
        transport.auth_handler = self

    # called by Paramiko's transport

    def _receive(self, kind: int, message: Any) -> None:
        if kind == _BANNER:
            self.banner = message.get_text()
            return
        if kind == SUCCESS:  # before the next message, which may depend on it, is read
            self.authenticated = True
            self._transport._auth_trigger()
        self._replies.put((kind, message))

    def is_authenticated(self) -> bool:
        """Whether the server accepted the login."""
        return self.authenticated

    def abort(self) -> None:
        """Wake the waiting login: the connection has ended."""
        self._replies.put((0, None))

    # called by Login

    def send(self, kind: int, *fields: Any) -> tuple[int, Any]:
        """Send a message and return the type and content of the reply. Raises AuthAborted."""
        try:
            self._transport._send_message(paramiko_patches.ssh_message(kind, *fields))
        except (OSError, EOFError) as e:
            raise AuthAborted(str(e)) from e
        deadline = time.monotonic() + REPLY_TIMEOUT
        while time.monotonic() < deadline:
            try:
                reply = self._replies.get(timeout=0.2)
            except queue.Empty:
                if not self._transport.is_active():
                    break
                continue
            if reply[0]:
                return reply
            break
        raise AuthAborted(
            "" if not self._transport.is_active() else f"no answer for {REPLY_TIMEOUT:g} s"
        )
