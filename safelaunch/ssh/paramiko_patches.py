"""Paramiko, imported late and silenced, and what is changed in two of its classes."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import os
import struct
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from safelaunch.ssh.streams import Stream

WINDOW = 1 << 23  # bytes that may be under way to us: 80 MB/s at 100 ms
PACKET = 1 << 16
_CHANNEL_DATA = 94
_LAST = (1 << 64) - 1


@functools.cache
def paramiko() -> Any:
    """Return the module, silenced: what it has to tell comes as errors."""
    # its reader of ssh_config wants invoke, a third of the import; ours needs neither
    missing = object()
    before = sys.modules.get("invoke", missing)
    if before is missing:
        sys.modules["invoke"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():  # older ones name ciphers that cryptography gives up
            warnings.simplefilter("ignore")
            import paramiko as module  # noqa: PLC0415 - slow
    finally:
        if before is missing:
            sys.modules.pop("invoke", None)
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return module


def transport(stream: Stream) -> Any:
    """Return a new transport over a stream."""
    return _transport()(stream, packetizer_class=_packets())


class _Ours:
    """What is different in our transports; made one by _transport, once Paramiko is there."""

    told = ""  # what the server said when it hung up
    host = ""  # the name of the host, for messages
    # of Paramiko's class
    clear_to_send: threading.Event
    saved_exception: Exception | None
    ident: int | None
    _channels: Any
    _send_message: Any

    def __init__(self, stream: Stream, **words: Any) -> None:
        above: Any = super()
        above.__init__(stream, **words)
        self._held: list[Any] = []

    def _parse_disconnect(self, message: Any) -> None:
        message.get_int()
        self.told = printable(message.get_text())

    def _send_user_message(self, data: Any) -> None:
        # A channel that ends while new keys are agreed is answered from the reading thread.
        # Paramiko lets it wait there for the keys, which it would have to read itself.
        if threading.get_ident() == self.ident and not self.clear_to_send.is_set():
            self._held.append(data)
        else:
            above: Any = super()
            above._send_user_message(data)  # noqa: SLF001 - its own

    def _parse_newkeys(self, message: Any) -> None:
        above: Any = super()
        above._parse_newkeys(message)  # noqa: SLF001 - its own
        held, self._held = self._held, []
        for data in held:
            self._send_message(data)

    def _parse_channel_open_success(self, message: Any) -> None:
        # here no byte of the channel has come yet; a forwarded server speaks at once
        channel = self._channels.get(message.get_int())
        if channel is not None:
            channel.in_buffer = _pieces()()
        message.rewind()
        above: Any = super()
        above._parse_channel_open_success(message)  # noqa: SLF001 - its own

    def ending(self) -> str:
        """Return why it ended, as far as that is known."""
        error = self.saved_exception
        if self.told or error is None:
            return self.told
        if isinstance(error, EOFError):
            return "the other side closed it"
        return printable(getattr(error, "strerror", None) or str(error))


@functools.cache
def _transport() -> Any:
    return type("Transport", (_Ours, paramiko().Transport), {})


def end(opened: Any) -> None:
    """Close a transport; safe in any state."""
    with contextlib.suppress(Exception):
        opened.close()
    opened.sock.close()
    opened.packetizer.complete_handshake()  # its timer would keep the process alive
    if opened.ident is not None:
        opened.join(2)


def open_channel(opened: Any, kind: str, *words: Any, timeout: float | None = None) -> Any:
    """Open a channel with a window for long ways. Raises what Paramiko does."""
    return opened.open_channel(
        kind, *words, window_size=WINDOW, max_packet_size=PACKET, timeout=timeout
    )


class Data:
    """A message with data of a channel; Paramiko's own copies it three times more."""

    parts: tuple[bytes, bytes | memoryview] = (b"", b"")

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def add_string(self, data: bytes | memoryview) -> None:
        """Take the data."""
        self.parts = (struct.pack(">BII", _CHANNEL_DATA, self._channel, len(data)), data)

    def asbytes(self) -> bytes:
        """Return the message."""
        return b"".join(self.parts)


@functools.cache
def _packets() -> Any:
    base: Any = paramiko().packet.Packetizer

    class Packets(base):  # type: ignore[misc]
        """Seals packets of AES-GCM with two copies: Paramiko takes seven, a third of an upload."""

        def __init__(self, socket: Any) -> None:
            super().__init__(socket)
            self._seal: Any = None
            self._sealing = threading.Lock()

        def set_outbound_cipher(self, *words: Any, **named: Any) -> None:
            with self._sealing:
                super().set_outbound_cipher(*words, **named)
                self._seal = None
                if named.get("aead"):  # Paramiko 3.5 names its arguments; 3.4 has no GCM
                    self._seal = named["block_engine"].encrypt
                    self._block = named["block_size"]
                    self._fixed = named["iv_out"][:4]  # RFC 5647, 7.1
                    self._count = int.from_bytes(named["iv_out"][4:], "big")
                    self._unsealed = self.REKEY_BYTES

        def send_message(self, data: Any) -> None:
            if self._seal is None:
                super().send_message(data)
                return
            parts = data.parts if isinstance(data, Data) else (data.asbytes(),)
            size = 1 + sum(map(len, parts))
            padding = 4 + -(size + 4) % self._block
            head = struct.pack(">IB", size + padding, padding)
            body = b"".join((head[4:], *parts, os.urandom(padding)))
            with self._sealing:
                nonce = self._fixed + self._count.to_bytes(8, "big")
                self._count = (self._count + 1) & _LAST
                self.write_all(head[:4] + self._seal(nonce, body, head[:4]))
                self._unsealed -= len(body)
                if self._unsealed <= 0 and not self.need_rekey():
                    self._trigger_rekey()

    return Packets


@functools.cache
def _pieces() -> Any:
    module: Any = paramiko().buffered_pipe
    base: Any = module.BufferedPipe

    class Pieces(base):  # type: ignore[misc]
        """Keeps what came in pieces: Paramiko moves all of a full window at each read."""

        def __init__(self) -> None:
            super().__init__()
            self._pieces: collections.deque[bytes] = collections.deque()

        def feed(self, data: bytes) -> None:
            with self._lock:
                self._pieces.append(data)
                self._cv.notify_all()

        def read(self, nbytes: int, timeout: float | None = None) -> bytes:
            with self._lock:
                if not self._cv.wait_for(lambda: self._pieces or self._closed, timeout):
                    raise module.PipeTimeout
                found = []
                while self._pieces and nbytes:
                    piece = self._pieces.popleft()
                    if len(piece) > nbytes:
                        self._pieces.appendleft(piece[nbytes:])
                        piece = piece[:nbytes]
                    found.append(piece)
                    nbytes -= len(piece)
                return b"".join(found)

        def read_ready(self) -> bool:
            with self._lock:
                return bool(self._pieces)

    return Pieces
