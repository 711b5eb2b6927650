"""The way to an SSH server: TCP to an address, a channel of a jump host, a proxy command.

Opens streams; what is spoken on them is transport.py's.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, paramiko_patches
from safelaunch.ssh.streams import Command, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.ssh.config.target import Target

CONNECT = 15.0  # seconds for one address
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class _Pipe(Stream):
    """A stream over a proxy command."""

    def __init__(self, command: Command) -> None:
        super().__init__(command)
        self.command = command


def stream(target: Target, via: Any, say: Callable[[str], None]) -> Stream:
    """Open the way to a target; `via` is the transport of the jump host before it, or None.

    Raises Unreachable.
    """
    if via is not None:
        return Stream(_forwarded(target, via))
    if target.proxy_command is not None:
        try:
            return _Pipe(Command(target.proxy_command, say))
        except OSError as e:
            raise errors.proxy(target, target.proxy_command, str(e), None) from e
    return Stream(_connected(target))


def command_of(opened: Stream) -> Command | None:
    """Return the command of a stream, if it is one."""
    return opened.command if isinstance(opened, _Pipe) else None


def _connected(target: Target) -> socket.socket:
    seconds = target.connect_timeout or CONNECT
    family = _FAMILIES.get(target.family, socket.AF_UNSPEC)
    try:
        found = socket.getaddrinfo(target.address, target.port, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise errors.unresolved(target, e) from e
    failure: OSError = OSError("the name has no address")
    for kind, sort, protocol, _, address in found:
        opened = socket.socket(kind, sort, protocol)
        try:
            opened.settimeout(seconds)
            opened.connect(address)
        except OSError as e:
            opened.close()
            failure = e
            continue
        except BaseException:
            opened.close()
            raise
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    raise errors.not_connected(target, failure, seconds) from failure


def _forwarded(target: Target, via: Any) -> Any:
    module = paramiko_patches.paramiko()
    there = (target.address, target.port)
    # the jump host has its own patience with the next
    patience = target.connect_timeout or 4 * CONNECT
    try:
        return paramiko_patches.open_channel(
            via, "direct-tcpip", there, ("127.0.0.1", 0), timeout=patience
        )
    except module.ChannelException as e:
        reason = printable(e.text)
    except (module.SSHException, OSError, EOFError) as e:
        reason = via.ending() or printable(str(e))
    raise errors.not_forwarded(target, via.host, reason)
