"""Paramiko, imported late and silenced, and what is changed in two of its classes."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from safelaunch.ssh.explain import printable

if TYPE_CHECKING:
    from safelaunch.ssh.streams import Stream

WINDOW = 1 << 23  # bytes that may be under way to us: 80 MB/s at 100 ms
PACKET = 1 << 16


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
    return _transport()(stream)


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

    def __init__(self, stream: Stream) -> None:
        above: Any = super()
        above.__init__(stream)
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
