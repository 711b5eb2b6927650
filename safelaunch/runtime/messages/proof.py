"""Proof that a message comes from a supervisor that has the secret of the run.

Each side opens with a nonce of its own. Two keys, one for each direction, are derived from the
secret and both nonces, and each later message has an HMAC over its number and text: the secret
never travels, and a message that is repeated, left out, sent back, or taken from another
connection has a wrong HMAC. The text itself is not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os

NONCE = 16  # bytes: as long as the keys of TLS 1.3's smallest cipher
DIGITS = hashlib.sha256().digest_size * 2  # hex digits of an HMAC
_SIDES = ("to the others", "to node 0")


class ProofError(ValueError):
    """A message that no supervisor of the run has sent."""


def nonce() -> str:
    """Return a nonce as hex digits."""
    return os.urandom(NONCE).hex()


def derive(secret: str, *purpose: str) -> str:
    """Return a secret for one purpose as hex digits; it does not give the first one away."""
    text = b"\0".join(os.fsencode(part) for part in ("safelaunch", *purpose))
    return hmac.new(os.fsencode(secret), text, hashlib.sha256).hexdigest()


class Proof:
    """The keys of one connection, and how many messages have used each."""

    def __init__(self, secret: str, opening: str, answer: str, *, is_first: bool) -> None:
        """Derive the keys; node 0's nonce is `answer`, and `is_first` whether this is node 0."""
        keys = [derive(secret, opening, answer, side) for side in _SIDES]
        self._own, self._other = keys if is_first else reversed(keys)
        self._sent = self._received = 0

    def seal(self, text: bytes) -> bytes:
        """Return the line of a message: its HMAC and its text."""
        self._sent += 1
        return _digest(self._own, self._sent, text) + b" " + text

    def open(self, line: bytes) -> bytes:
        """Return the text of the next line. Raises ProofError."""
        self._received += 1
        digest, text = line[:DIGITS], line[DIGITS + 1 :]
        if not hmac.compare_digest(digest, _digest(self._other, self._received, text)):
            raise ProofError("not sent by a supervisor of this run")
        return text


def _digest(key: str, number: int, text: bytes) -> bytes:
    message = b"%d %s" % (number, text)
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest().encode()
