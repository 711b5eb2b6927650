"""Open the byte stream to an SSH server: TCP, a channel of a jump host, or a proxy command.

The SSH protocol on top of it is in handshake.py.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, paramiko_patches
from safelaunch.ssh.config.target import CONNECT_TIMEOUT
from safelaunch.ssh.streams import ProxyProcess, Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.ssh.config.target import Target

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


def open_stream(target: Target, via: Any, notify: Callable[[str], None]) -> Stream:
    """Open a stream to a target; `via` is the transport of the jump host before it, or None.

    Raises Unreachable.
    """
    if via is not None:
        return Stream(_open_forwarding(target, via))
    if target.proxy_command is not None:
        try:
            return Stream(ProxyProcess(target.proxy_command, notify))
        except OSError as e:
            raise errors.proxy_command_failed(target, target.proxy_command, str(e), None) from e
    return Stream(_connect_tcp(target))


def _connect_tcp(target: Target) -> socket.socket:
    seconds = target.connect_timeout or CONNECT_TIMEOUT
    family = _FAMILIES.get(target.family, socket.AF_UNSPEC)
    # the codec of str, for names that are not ASCII, takes 2 ms to import
    name = target.address.encode() if target.address.isascii() else target.address
    try:
        resolved = socket.getaddrinfo(name, target.port, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise errors.name_not_resolved(target, e) from e
    failure: OSError = OSError("the name has no address")
    for address_family, kind, protocol, _, address in resolved:
        opened = socket.socket(address_family, kind, protocol)
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
    raise errors.tcp_connect_failed(target, failure, seconds) from failure


def _open_forwarding(target: Target, via: Any) -> Any:
    module = paramiko_patches.paramiko()
    destination = (target.address, target.port)
    # a jump host has a timeout of its own for the next connection
    timeout = target.connect_timeout or 4 * CONNECT_TIMEOUT
    try:
        return paramiko_patches.open_channel(
            via, "direct-tcpip", destination, ("127.0.0.1", 0), timeout=timeout
        )
    except module.ChannelException as e:
        reason = printable(e.text)
    except (module.SSHException, OSError, EOFError) as e:
        reason = paramiko_patches.close_reason(via) or printable(str(e))
    raise errors.forwarding_refused(target, via.host, reason)
