"""One connection between two supervisors of a run: lines of JSON, each with its proof.

The first line of each side is its nonce. The second one, from the side that connects, has the first
HMAC, and introduces its node; the other side sends nothing of the run before it, and the side that
connects nothing more before the answer to it.
"""

from __future__ import annotations

import errno
import json

from safelaunch.runtime.messages.proof import NONCE, Proof, ProofError, nonce

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

SILENCE = 30.0  # seconds without a message after which a connection is given up
LINE_LIMIT = 1 << 16  # bytes of a line
STRANGER_LIMIT = 5.0  # seconds that one without a proof may take for it,
STRANGER_LINE = 1 << 12  # and bytes
_LATER = (errno.EAGAIN, errno.EINPROGRESS, errno.ENOTCONN)


class PeerConnection:
    """One connection, and what of it is not read or written yet.

    `introduction` returns the first message with a proof of the side that connects; the other side
    has none. `node` is that at the other end, from the moment when it is accepted.
    """

    def __init__(
        self,
        link: socket.socket,
        now: float,
        secret: str,
        introduction: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Queue this side's first line."""
        self.link = link
        self.secret = secret
        self.introduction = introduction
        self.node: int | None = None
        self.nonce = nonce()
        self.proof: Proof | None = None
        self.is_proven = self.is_closed = False
        self.opened_at = self.heard_at = self.sent_at = now
        self.received = b""
        self.waiting = json.dumps({"nonce": self.nonce}).encode() + b"\n"

    @property
    def is_busy(self) -> bool:
        """Whether something is to be sent, or will be once the other side has answered."""
        return bool(self.waiting) or (self.introduction is not None and self.node is None)

    def queue(self, message: Mapping[str, Any]) -> None:
        """Queue a message. Nothing is sent before the other side's nonce has come."""
        if self.proof is not None:
            self.waiting += self.proof.seal(json.dumps(message).encode()) + b"\n"

    def send(self, now: float) -> None:
        """Send what can be sent. Raises OSError."""
        while self.waiting:
            try:
                sent = self.link.send(self.waiting)
            except OSError as e:
                if e.errno in _LATER:
                    return
                raise
            self.waiting = self.waiting[sent:]
            self.sent_at = now

    def receive(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the proven messages that have come. Raises OSError, ValueError, RecursionError."""
        while True:
            try:
                part = self.link.recv(LINE_LIMIT)
            except OSError as e:
                if e.errno in _LATER:
                    return
                raise
            if not part:
                self.is_closed = True  # after its last message
                return
            *lines, self.received = (self.received + part).split(b"\n")
            for line in lines:
                if self.proof is None:
                    self._greet(line)
                else:
                    yield self._open(self.proof, line)
            if self.is_proven:
                self.heard_at = now
            if len(self.received) > (LINE_LIMIT if self.is_proven else STRANGER_LINE):
                raise ValueError("a line without an end")

    def _open(self, proof: Proof, line: bytes) -> dict[str, Any]:
        """Return the message of a line. Raises ValueError, RecursionError."""
        text = proof.open(line)
        self.is_proven = True
        message = json.loads(text.decode("utf-8", "replace"))
        if not isinstance(message, dict):
            raise ProofError("no message")
        return message

    def _greet(self, line: bytes) -> None:
        """Derive the keys from the first line of the other side. Raises ValueError."""
        if len(line) > STRANGER_LINE:
            raise ProofError("a first line that is too long")
        message = json.loads(line.decode("utf-8", "replace"))
        other = message.get("nonce") if isinstance(message, dict) else None
        if not isinstance(other, str) or len(other) != NONCE * 2:
            raise ProofError("a first line without a nonce")
        if self.introduction is None:
            self.proof = Proof(self.secret, other, self.nonce, is_first=True)
            return
        self.proof = Proof(self.secret, self.nonce, other, is_first=False)
        self.queue(self.introduction())

    def is_useless(self, now: float) -> bool:
        """Whether it is closed, or silent, or has sent no proof in time."""
        is_stranger = not self.is_proven and now - self.opened_at > STRANGER_LIMIT
        return self.is_closed or is_stranger or now - self.heard_at > SILENCE
