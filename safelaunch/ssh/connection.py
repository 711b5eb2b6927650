"""One connection to a host, for all steps of a command: logs in once, then runs commands.

`connect` takes the ways that a Target names, over jump hosts if need be, each verified and logged
in on its own. Nothing here prints: `ask` asks a person, `say` gets a line to show.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from typing import TYPE_CHECKING, Any

from safelaunch.errors import HostError
from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, handshake, paramiko_patches
from safelaunch.ssh.errors import ConnectionLost, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.login import Ask

ALIVE_INTERVAL = 15.0  # seconds of silence after which the host is asked for a sign of life
ALIVE_COUNT = 3  # of them without an answer: dead
POLL = 0.5  # seconds: on Windows a wait without an end cannot be interrupted
_SETTLED = 1.0  # seconds
TAIL = 1 << 16  # bytes of stderr that are kept
_SIZE = (80, 24)
_GLOBAL_REQUEST = 80
_CHANNEL_REQUEST = 98


def connect(
    target: Target, *, ask: Ask | None = None, say: Callable[[str], None] = lambda _: None
) -> Connection:
    """Return a connection to a host. Raises HostError (explain.py says which).

    Without `ask`, nobody is there: unknown host keys and passwords are refused.
    """
    ways = (target, *target.others)
    failures: list[HostError] = []
    for way in ways:
        try:
            return _connect(way, ways, ask, say)
        except Unreachable as e:  # noqa: PERF203 - a few
            failures.append(e)
    raise errors.several(target.name, failures) from failures[-1]


def _connect(
    way: Target, ways: tuple[Target, ...], ask: Ask | None, say: Callable[[str], None]
) -> Connection:
    opened: list[Any] = []
    try:
        for hop in way.jumps:
            try:
                jump, _, _ = handshake.login(hop, (hop,), _last(opened), ask, say)
            except HostError as e:
                raise errors.at_jump(way, hop.name, e) from e
            jump.host = hop.name
            opened.append(jump)
        final, _, proof = handshake.login(way, ways, _last(opened), ask, say)
        opened.append(final)
        return Connection(way, opened, proof)
    except BaseException:
        for each in reversed(opened):
            paramiko_patches.end(each)
        raise


def _last(opened: list[Any]) -> Any:
    return opened[-1] if opened else None


class Connection:
    """An open connection. `way` is the Target that worked, `proof` what opened the door."""

    def __init__(self, way: Target, opened: list[Any], proof: str) -> None:
        self.way = way
        self.name = way.name
        self.proof = proof
        self._opened = opened  # the jumps' transports, then the host's
        self._transport = opened[-1]
        self._closed = threading.Event()
        interval = ALIVE_INTERVAL if way.alive_interval is None else way.alive_interval
        if interval > 0:
            count = ALIVE_COUNT if way.alive_count is None else way.alive_count
            for each in opened:
                each.sock.limit = interval * (count + 1)
            threading.Thread(target=self._keep_alive, args=(interval,), daemon=True).start()

    @property
    def alive(self) -> bool:
        """Tell whether the connection stands, as far as is known."""
        return bool(self._transport.is_active())

    @property
    def server(self) -> str:
        """Return what the server calls itself, such as SSH-2.0-OpenSSH_9.2p1."""
        return printable(self._transport.remote_version)

    @property
    def host_key(self) -> tuple[str, bytes]:
        """Return type and key that the server has shown."""
        key = self._transport.host_key
        return key.get_name(), key.asbytes()

    def exec(
        self,
        command: str,
        pty: bool = False,
        *,
        term: str = "xterm-256color",
        size: tuple[int, int] = _SIZE,
        wait: bool = True,
    ) -> Channel:
        """Run a command line in the user's login shell there. `size` is columns, rows.

        Raises HostError where the server refuses, ConnectionLost; without `wait`, a refusal is
        raised by the first read or write that meets it.
        """
        raw = self._session()
        try:
            if pty:
                raw.get_pty(term, *size)
            if wait:
                raw.exec_command(command)
            else:
                self._begin(raw, command)
        except (paramiko_patches.paramiko().SSHException, OSError, EOFError) as e:
            refused = raw.eof_sent  # in answer to the server's, which closed the channel
            raw.close()
            if not refused and self.ended():
                raise self.lost() from e
            raise errors.no_command(self.name) from e
        return Channel(self, raw)

    def sftp(self) -> Any:
        """Return Paramiko's SFTP client. Raises HostError where there is none, ConnectionLost."""
        raw = self._session()
        try:
            raw.invoke_subsystem("sftp")
            return paramiko_patches.paramiko().SFTPClient(raw)
        except (paramiko_patches.paramiko().SSHException, OSError, EOFError) as e:
            refused = raw.eof_sent
            raw.close()
            if not refused and self.ended():
                raise self.lost() from e
            raise errors.Unusable("the server offers no SFTP", where=self.name) from e

    def ended(self) -> bool:
        """Tell whether the connection is gone, once its channels say that they are closed.

        Paramiko closes them a moment before it calls itself inactive.
        """
        if self.alive:
            self._transport.join(_SETTLED)
        return not self.alive

    def lost(self) -> ConnectionLost:
        """Return the error of a connection that is gone, with the reason if one is known."""
        reason = self._transport.ending()
        jumps = [each.ending() for each in self._opened[:-1] if not each.is_active()]
        told = next((text for text in (*jumps, reason) if text), "")
        return ConnectionLost(
            f"the connection to {self.name} was lost" + (f": {told}" * bool(told))
        )

    def close(self) -> None:
        """Close it, and the jumps behind it. What runs on the host is not told anything else."""
        if not self._closed.is_set():
            self._closed.set()
            for each in reversed(self._opened):
                paramiko_patches.end(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, raw: Any, command: str) -> None:
        """Ask for a command as Paramiko does, but leave its answer for later."""
        message = paramiko_patches.paramiko().Message()
        message.add_byte(bytes([_CHANNEL_REQUEST]))
        message.add_int(raw.remote_chanid)
        message.add_string("exec")
        message.add_boolean(True)  # an answer is wanted
        message.add_string(command)
        raw._event_pending()  # noqa: SLF001 - notes whether the answer was yes
        self._transport._send_user_message(message)  # noqa: SLF001 - asks without waiting

    def _session(self) -> Any:
        if not self.alive:
            raise self.lost()
        try:
            return paramiko_patches.open_channel(self._transport, "session")
        except paramiko_patches.paramiko().ChannelException as e:
            raise errors.no_session(self.name, printable(e.text)) from e
        except (paramiko_patches.paramiko().SSHException, OSError, EOFError) as e:
            raise self.lost() from e

    def _keep_alive(self, interval: float) -> None:
        """Ask for a sign of life after silence; the stream notices that none comes.

        Not Paramiko's own: it asks for no answer, and from the thread that has to read it.
        """
        stream = self._transport.sock
        asked = stream.heard
        while self.alive:
            due = max(stream.heard, asked) + interval
            if self._closed.wait(max(due - time.monotonic(), 0.05)):
                return
            if time.monotonic() < max(stream.heard, asked) + interval:
                continue
            asked = time.monotonic()
            message = paramiko_patches.paramiko().Message()
            message.add_byte(bytes([_GLOBAL_REQUEST]))
            message.add_string("keepalive@openssh.com")
            message.add_boolean(True)  # an answer is wanted, of any kind
            with contextlib.suppress(Exception):
                self._transport._send_user_message(message)  # noqa: SLF001 - asks without waiting


class Channel:
    """A running command: its stdin and stdout, and the end of its stderr."""

    def __init__(self, connection: Connection, raw: Any) -> None:
        self._connection = connection
        self._raw = raw
        self._errors = bytearray()
        self._cut = False  # more came than is kept
        self._closed = False
        self._closed_stdin = False
        raw.settimeout(POLL)
        # an stderr that nobody reads would fill the window and stop stdout too
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of stdout, none at its end. Raises ConnectionLost."""
        while True:
            try:
                data: bytes = self._raw.recv(size)
            except TimeoutError:
                continue
            except (OSError, EOFError, paramiko_patches.paramiko().SSHException) as e:
                raise self._connection.lost() from e
            if data:
                return data
            if self._refused():
                raise errors.no_command(self._connection.name)
            if self._ended():
                return data
            raise self._connection.lost()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of it to stdin. Raises ConnectionLost; BrokenPipeError where nobody reads."""
        view = memoryview(data).cast("B")
        at, step = 0, self._raw.out_max_packet_size - 64
        while at < len(view):
            try:
                message = paramiko_patches.Data(self._raw.remote_chanid)
                sent = self._raw._send(view[at : at + step], message)  # noqa: SLF001 - as `send`
            except TimeoutError:
                continue
            except (OSError, EOFError, paramiko_patches.paramiko().SSHException) as e:
                raise self._unwritten() from e
            if not sent:
                raise self._unwritten()
            at += sent
        if not self._connection.alive:  # what was sent last may be nowhere
            raise self._connection.lost()

    def close_stdin(self) -> None:
        """Let the command see the end of its stdin."""
        self._closed_stdin = True
        with contextlib.suppress(OSError, EOFError):
            self._raw.shutdown_write()

    def resize(self, columns: int, rows: int) -> None:
        """Tell a command on a pty the terminal's new size."""
        with contextlib.suppress(OSError, EOFError, paramiko_patches.paramiko().SSHException):
            self._raw.resize_pty(columns, rows)

    def stderr_tail(self) -> str:
        """Return the end of what came on stderr so far, all of it once the command has ended."""
        if self._raw.eof_received or self._raw.closed:
            self._drain.join(2)
        text = bytes(self._errors).decode("utf-8", "replace")
        return text.partition("\n")[2] if self._cut else text

    def exit_code(self, timeout: float | None = None) -> int | None:
        """Return the exit code, None if it has not ended in time, 255 if a signal ended it.

        Raises ConnectionLost.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._raw.status_event.wait(POLL if deadline is None else _left(deadline)):
            if deadline is not None and time.monotonic() >= deadline:
                return None
        code = int(self._raw.exit_status)
        if code >= 0:
            return code
        if not self._ended():
            raise self._connection.lost()
        return 255  # as ssh

    def close(self) -> None:
        """Close it; a command that still reads or writes learns of it."""
        self._closed = True
        with contextlib.suppress(OSError, EOFError, paramiko_patches.paramiko().SSHException):
            self._raw.close()
        self._drain.join(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ended(self) -> bool:
        """Tell whether the command's end was told, or is ours: not only the connection's."""
        raw = self._raw
        if raw.eof_received or raw.exit_status >= 0 or self._closed:
            return True
        return self._shut_there() or not self._connection.ended()

    def _shut_there(self) -> bool:
        """Tell whether the server closed the channel: that is answered with an EOF."""
        return bool(self._raw.eof_sent) and not self._closed_stdin

    def _refused(self) -> bool:
        """Tell whether the server has closed the channel instead of running the command."""
        raw = self._raw
        return bool(raw.closed and not raw.event_ready) and not self._closed and self._shut_there()

    def _unwritten(self) -> Exception:
        if self._refused():
            return errors.no_command(self._connection.name)
        if not self._shut_there() and self._connection.ended():
            return self._connection.lost()
        return BrokenPipeError(errno.EPIPE, f"the command on {self._connection.name} has ended")

    def _read_errors(self) -> None:
        while True:
            try:
                data = self._raw.recv_stderr(1 << 16)
            except TimeoutError:
                continue
            except (OSError, EOFError, paramiko_patches.paramiko().SSHException):
                return
            if not data:
                return
            self._errors += data
            if len(self._errors) > 2 * TAIL:
                self._cut = True
                del self._errors[:-TAIL]


def _left(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), POLL)
