"""Paramiko, imported late and silenced, with patched subclasses of three of its classes."""
# ruff: noqa: PLC0415 - Paramiko is slow to import

from __future__ import annotations

import collections
import contextlib
import functools
import importlib.util
import logging
import os
import struct
import sys
import threading
import types
import warnings
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.ssh.streams import Stream

WINDOW_SIZE = 1 << 23  # bytes in flight to us: allows 80 MB/s at 100 ms of latency
MAX_PACKET_SIZE = 1 << 16
_CHANNEL_DATA = 94
_MAX_COUNTER = (1 << 64) - 1


@functools.cache
def paramiko() -> Any:
    """Return the module, with its warnings and log messages off: it reports by exceptions."""
    # its ssh_config reader imports invoke, which we do not use: a third of the import time
    with warnings.catch_warnings(), _stand_ins({"invoke": None, _METADATA: _Metadata(_METADATA)}):
        warnings.simplefilter("ignore")  # older versions name ciphers that cryptography deprecates
        import paramiko as module
    logger = logging.getLogger("paramiko")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return module


_METADATA = "importlib.metadata"


class _Metadata(types.ModuleType):
    """What Paramiko needs of importlib.metadata, whose import takes a sixth of its own."""

    @staticmethod
    def version(name: str) -> str:
        """Return the version of an installed package, by the name of its folder of metadata."""
        spec = importlib.util.find_spec(name)
        place = os.path.dirname(os.path.dirname(spec.origin or "")) if spec is not None else ""
        with contextlib.suppress(OSError):
            for folder in os.listdir(place or os.curdir):
                stem, _, version = folder.removesuffix(".dist-info").partition("-")
                if folder.endswith(".dist-info") and stem == name:
                    return version
        return "0"


@contextlib.contextmanager
def _stand_ins(modules: Mapping[str, types.ModuleType | None]) -> Iterator[None]:
    """Let imports find these modules, where those of their names are not loaded yet."""
    missing = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(missing)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)


def transport(stream: Stream) -> Any:
    """Return a new transport over a stream."""
    return _transport_class()(stream, packetizer_class=_packetizer_class())


@functools.cache
def _transport_class() -> Any:
    base: Any = paramiko().Transport

    class PatchedTransport(base):  # type: ignore[misc]
        """Records why a connection ended, and never blocks its own reading thread."""

        disconnect_reason = ""  # text of the server's disconnect message
        host = ""  # the name of the host, for messages

        def __init__(self, stream: Stream, **args: Any) -> None:
            super().__init__(stream, **args)
            self._deferred: list[Any] = []

        def request(self, kind: int, *fields: Any) -> None:
            """Send a message, without waiting for the reply."""
            self._send_user_message(ssh_message(kind, *fields))

        def _parse_disconnect(self, message: Any) -> None:
            message.get_int()
            self.disconnect_reason = printable(message.get_text())

        def _send_user_message(self, data: Any) -> None:
            # The reading thread answers a channel that ends during a key exchange. Paramiko would
            # block it there until the exchange is done, whose messages only this thread reads.
            if threading.get_ident() == self.ident and not self.clear_to_send.is_set():
                self._deferred.append(data)
            else:
                super()._send_user_message(data)

        def _parse_newkeys(self, message: Any) -> None:
            super()._parse_newkeys(message)
            deferred, self._deferred = self._deferred, []
            for data in deferred:
                self._send_message(data)

        def _parse_channel_open_success(self, message: Any) -> None:
            # before the first byte of the channel: a forwarded server sends its greeting at once
            channel = self._channels.get(message.get_int())
            if channel is not None:
                channel.in_buffer = _buffer_class()()
            message.rewind()
            super()._parse_channel_open_success(message)

    return PatchedTransport


def close_reason(opened: Any) -> str:
    """Return why the connection of a transport ended, "" if unknown."""
    error = opened.saved_exception
    if opened.disconnect_reason or error is None:
        return str(opened.disconnect_reason)
    if isinstance(error, EOFError):
        return "closed by the other side"
    return printable(getattr(error, "strerror", None) or str(error))


def ssh_message(kind: int, *fields: bool | int | str | bytes) -> Any:
    """Return a message of Paramiko's class: its number, then the fields (RFC 4251, 5)."""
    message = paramiko().Message()
    message.add_byte(bytes([kind]))
    for value in fields:
        if isinstance(value, bool):
            message.add_boolean(value)
        elif isinstance(value, int):
            message.add_int(value)
        else:
            message.add_string(value)
    return message


def close_transport(opened: Any) -> None:
    """Close a transport; safe in any state."""
    with contextlib.suppress(Exception):
        opened.close()
    opened.sock.close()
    opened.packetizer.complete_handshake()  # its timer would keep the process alive
    if opened.ident is not None:
        opened.join(2)


def open_channel(opened: Any, kind: str, *args: Any, timeout: float | None = None) -> Any:
    """Open a channel with a window for high latency. Raises Paramiko's errors."""
    return opened.open_channel(
        kind, *args, window_size=WINDOW_SIZE, max_packet_size=MAX_PACKET_SIZE, timeout=timeout
    )


class ChannelData:
    """A channel data message; Paramiko's own class copies the data three times more."""

    parts: tuple[bytes, bytes | memoryview] = (b"", b"")

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def add_string(self, data: bytes | memoryview) -> None:
        """Set the data of the message."""
        self.parts = (struct.pack(">BII", _CHANNEL_DATA, self._channel, len(data)), data)

    def asbytes(self) -> bytes:
        """Return the message."""
        return b"".join(self.parts)


@functools.cache
def _packetizer_class() -> Any:
    base: Any = paramiko().packet.Packetizer

    class GcmPacketizer(base):  # type: ignore[misc]
        """Encrypts AES-GCM packets with two copies: Paramiko makes seven, a third of an upload."""

        def __init__(self, socket: Any) -> None:
            super().__init__(socket)
            self._seal: Any = None
            self._sealing = threading.Lock()

        def set_outbound_cipher(self, *args: Any, **kwargs: Any) -> None:
            with self._sealing:
                super().set_outbound_cipher(*args, **kwargs)
                self._seal = None
                if kwargs.get("aead"):  # Paramiko 3.5 names its arguments; 3.4 has no GCM
                    self._seal = kwargs["block_engine"].encrypt
                    self._block = kwargs["block_size"]
                    self._fixed = kwargs["iv_out"][:4]  # RFC 5647, 7.1
                    self._count = int.from_bytes(kwargs["iv_out"][4:], "big")
                    self._unsealed = self.REKEY_BYTES

        def send_message(self, data: Any) -> None:
            if self._seal is None:
                super().send_message(data)
                return
            parts = data.parts if isinstance(data, ChannelData) else (data.asbytes(),)
            size = 1 + sum(map(len, parts))
            padding = 4 + -(size + 4) % self._block
            head = struct.pack(">IB", size + padding, padding)
            body = b"".join((head[4:], *parts, os.urandom(padding)))
            with self._sealing:
                nonce = self._fixed + self._count.to_bytes(8, "big")
                self._count = (self._count + 1) & _MAX_COUNTER
                self.write_all(head[:4] + self._seal(nonce, body, head[:4]))
                self._unsealed -= len(body)
                if self._unsealed <= 0 and not self.need_rekey():
                    self._trigger_rekey()

    return GcmPacketizer


@functools.cache
def _buffer_class() -> Any:
    module: Any = paramiko().buffered_pipe
    base: Any = module.BufferedPipe

    class ChunkedPipe(base):  # type: ignore[misc]
        """Buffers received data as chunks: Paramiko moves all of a full window at each read."""

        def __init__(self) -> None:
            super().__init__()
            self._chunks: collections.deque[bytes] = collections.deque()

        def feed(self, data: bytes) -> None:
            with self._lock:
                self._chunks.append(data)
                self._cv.notify_all()

        def read(self, nbytes: int, timeout: float | None = None) -> bytes:
            with self._lock:
                if not self._cv.wait_for(lambda: self._chunks or self._closed, timeout):
                    raise module.PipeTimeout
                chunks = []
                while self._chunks and nbytes:
                    chunk = self._chunks.popleft()
                    if len(chunk) > nbytes:
                        self._chunks.appendleft(chunk[nbytes:])
                        chunk = chunk[:nbytes]
                    chunks.append(chunk)
                    nbytes -= len(chunk)
                return b"".join(chunks)

        def read_ready(self) -> bool:
            with self._lock:
                return bool(self._chunks)

    return ChunkedPipe
