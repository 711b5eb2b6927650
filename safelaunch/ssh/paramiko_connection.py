"""Paramiko's connection to a host: logs in once, then runs all commands over it.

Over jump hosts if needed; each host is verified and logged in to separately.
"""

from __future__ import annotations

import contextlib
import errno
import math
import threading
import time
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, handshake, paramiko_patches
from safelaunch.ssh.config.target import ALIVE_COUNT, ALIVE_INTERVAL, PARAMIKO
from safelaunch.ssh.errors import ConnectionLost
from safelaunch.ssh.keys import known_hosts
from safelaunch.ssh.keys.known_hosts import HostKey
from safelaunch.ssh.streams import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.prompt import Prompter

POLL = 0.5  # seconds: on Windows a wait without a timeout cannot be interrupted
_CLOSE_GRACE = 1.0  # seconds to wait for Paramiko to mark a closed transport as inactive
_TERMINAL_SIZE = (80, 24)
_GLOBAL_REQUEST = 80
_CHANNEL_REQUEST = 98


def connect_paramiko(
    target: Target,
    routes: Sequence[Target],
    ask: Prompter | None,
    notify: Callable[[str], None],
    before_login: Callable[[], object],
) -> ParamikoConnection:
    """Return a connection to one of a machine's routes. Raises HostError."""
    transports: list[Any] = []
    via = None
    try:
        for hop in target.jumps:
            try:
                via, _ = handshake.login(hop, (hop,), via, ask, notify, before_login=before_login)
            except HostError as e:
                text = f"jump host `{hop.name}`: {e.message}"
                raise type(e)(text, where=target.name, hint=e.hint) from e
            via.host = hop.name
            transports.append(via)
        transport, credential = handshake.login(
            target, routes, via, ask, notify, before_login=before_login
        )
        transports.append(transport)
        return ParamikoConnection(target, transports, credential)
    except BaseException:
        for opened in reversed(transports):
            paramiko_patches.close_transport(opened)
        raise


class ParamikoConnection:
    """An open connection. `target` is the one that worked, `credential` the accepted one."""

    def __init__(self, target: Target, transports: list[Any], credential: str) -> None:
        self.target = target
        self.name = target.name
        self.credential = credential
        self.transport = PARAMIKO
        self._transports = transports  # the jumps' transports, then the host's
        self._transport = transports[-1]
        self._closed = threading.Event()
        interval = ALIVE_INTERVAL if target.alive_interval is None else target.alive_interval
        if interval > 0:
            count = ALIVE_COUNT if target.alive_count is None else target.alive_count
            for transport in transports:
                transport.sock.silence_limit = interval * (count + 1)
            threading.Thread(target=self._keep_alive, args=(interval,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as is known."""
        return bool(self._transport.is_active())

    @property
    def host_key(self) -> HostKey:
        """The server's host key."""
        kind, blob = self._transport.host_key.get_name(), self._transport.host_key.asbytes()
        files = (*self.target.known_hosts, *self.target.system_known_hosts)
        lines = (line.where for line in known_hosts.read_entries(files) if line.blob == blob)
        return HostKey(known_hosts.describe_key(kind, blob), next(lines, None))

    def exec(
        self,
        command: str,
        pty: bool = False,
        *,
        term: str = "xterm-256color",
        size: tuple[int, int] = _TERMINAL_SIZE,
        wait: bool = True,
    ) -> ParamikoChannel:
        """Run a command line in the user's login shell on the host. `size` is columns, rows.

        Raises HostError if the server refuses, ConnectionLost; without `wait`, the first read or
        write raises the refusal.
        """
        raw = self._session()
        try:
            if pty:
                raw.get_pty(term, *size)
            if wait:
                raw.exec_command(command)
            else:
                self._request_exec(raw, command)
        except (paramiko_patches.paramiko().SSHException, OSError, EOFError) as e:
            refused = raw.eof_sent  # the answer to a server that closed the channel
            raw.close()
            if not refused and self.ended():
                raise self.lost() from e
            raise errors.exec_refused(self.name) from e
        return ParamikoChannel(self, raw)

    def ended(self) -> bool:
        """Whether the connection has ended; to be called once its channels are closed.

        Paramiko closes the channels a moment before it marks the transport as inactive.
        """
        if self.alive:
            self._transport.join(_CLOSE_GRACE)
        return not self.alive

    def lost(self) -> ConnectionLost:
        """Return the error of a lost connection, with the reason if known."""
        ended = [jump for jump in self._transports[:-1] if not jump.is_active()]
        reasons = map(paramiko_patches.close_reason, (*ended, self._transport))
        reason = next(filter(None, reasons), "")
        return ConnectionLost(
            f"the connection to {self.name} was lost" + f": {reason}" * bool(reason)
        )

    def close(self) -> None:
        """Close it, and the connections to its jump hosts. The host gets no other notice."""
        if not self._closed.is_set():
            self._closed.set()
            for transport in reversed(self._transports):
                paramiko_patches.close_transport(transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request_exec(self, raw: Any, command: str) -> None:
        """Send an exec request as Paramiko does, without waiting for the reply."""
        raw._event_pending()  # noqa: SLF001 - records whether the reply is a success
        want_reply = True
        self._transport.request(_CHANNEL_REQUEST, raw.remote_chanid, "exec", want_reply, command)

    def _session(self) -> Any:
        if not self.alive:
            raise self.lost()
        try:
            return paramiko_patches.open_channel(self._transport, "session")
        except paramiko_patches.paramiko().ChannelException as e:
            raise errors.session_refused(self.name, printable(e.text)) from e
        except (paramiko_patches.paramiko().SSHException, OSError, EOFError) as e:
            raise self.lost() from e

    def _keep_alive(self, interval: float) -> None:
        """Send keepalive requests after silence; the stream detects missing answers.

        Not Paramiko's own keepalive: it requests no answer, and runs on the reading thread.
        """
        stream = self._transport.sock
        last_request = stream.last_received
        while self.alive:
            due = max(stream.last_received, last_request) + interval
            if self._closed.wait(max(due - time.monotonic(), 0.05)):
                return
            if time.monotonic() < max(stream.last_received, last_request) + interval:
                continue
            last_request = time.monotonic()
            want_reply = True  # any kind of reply proves that the host is alive
            with contextlib.suppress(Exception):
                self._transport.request(_GLOBAL_REQUEST, "keepalive@openssh.com", want_reply)


class ParamikoChannel:
    """A running command: its stdin and stdout, and the end of its stderr."""

    def __init__(self, connection: ParamikoConnection, raw: Any) -> None:
        self._connection = connection
        self._channel = raw
        self._errors = Tail()
        self._closed = False
        self._closed_stdin = False
        raw.settimeout(POLL)
        # unread stderr would fill the window and block stdout too
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of stdout, none at its end. Raises ConnectionLost."""
        while True:
            try:
                data: bytes = self._channel.recv(size)
            except TimeoutError:
                continue
            except (OSError, EOFError, paramiko_patches.paramiko().SSHException) as e:
                raise self._connection.lost() from e
            if data:
                return data
            if self._exec_refused():
                raise errors.exec_refused(self._connection.name)
            if self._command_ended():
                return data
            raise self._connection.lost()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all data to stdin. Raises ConnectionLost; BrokenPipeError if the command ended."""
        view = memoryview(data).cast("B")
        position, chunk_size = 0, self._channel.out_max_packet_size - 64
        while position < len(view):
            try:
                message = paramiko_patches.ChannelData(self._channel.remote_chanid)
                sent = self._channel._send(view[position : position + chunk_size], message)  # noqa: SLF001 - as `send`
            except TimeoutError:
                continue
            except (OSError, EOFError, paramiko_patches.paramiko().SSHException) as e:
                raise self._write_error() from e
            if not sent:
                raise self._write_error()
            position += sent
        if not self._connection.alive:  # the last data may not have arrived
            raise self._connection.lost()

    def close_stdin(self) -> None:
        """Send the end of stdin to the command."""
        self._closed_stdin = True
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal size of a command on a pty."""
        with contextlib.suppress(OSError, EOFError, paramiko_patches.paramiko().SSHException):
            self._channel.resize_pty(columns, rows)

    def stderr_tail(self) -> str:
        """Return the last lines of stderr so far; complete once the command has ended."""
        if self._channel.eof_received or self._channel.closed:
            self._drain.join(2)
        return self._errors.text()

    def exit_code(self, timeout: float | None = None) -> int | None:
        """Return the exit code; None after the timeout, 255 if a signal ended the command.

        Raises ConnectionLost.
        """
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        while not self._channel.status_event.wait(min(max(deadline - time.monotonic(), 0), POLL)):
            if time.monotonic() >= deadline:
                return None
        code = int(self._channel.exit_status)
        if code >= 0:
            return code
        if not self._command_ended():
            raise self._connection.lost()
        return 255  # ssh returns the same

    def close(self) -> None:
        """Close the channel; a command that still reads or writes gets an error."""
        self._closed = True
        with contextlib.suppress(OSError, EOFError, paramiko_patches.paramiko().SSHException):
            self._channel.close()
        self._drain.join(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _command_ended(self) -> bool:
        """Whether the server or we ended the command, and not a lost connection."""
        raw = self._channel
        if raw.eof_received or raw.exit_status >= 0 or self._closed:
            return True
        return self._closed_by_server() or not self._connection.ended()

    def _closed_by_server(self) -> bool:
        """Whether the server closed the channel, which Paramiko answers with an EOF."""
        return bool(self._channel.eof_sent) and not self._closed_stdin

    def _exec_refused(self) -> bool:
        """Whether the server closed the channel instead of running the command."""
        refused = self._channel.closed and not self._channel.event_ready and not self._closed
        return bool(refused) and self._closed_by_server()

    def _write_error(self) -> Exception:
        if self._exec_refused():
            return errors.exec_refused(self._connection.name)
        if not self._closed_by_server() and self._connection.ended():
            return self._connection.lost()
        return BrokenPipeError(errno.EPIPE, f"the command on {self._connection.name} has ended")

    def _read_errors(self) -> None:
        while True:
            try:
                data = self._channel.recv_stderr(1 << 16)
            except TimeoutError:
                continue
            except (OSError, EOFError, paramiko_patches.paramiko().SSHException):
                return
            if not data:
                return
            self._errors.add(data)
