"""Connect to one SSH server: greeting, key exchange, host key, login."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, paramiko_patches, proxy
from safelaunch.ssh.keys.verify_host_key import HostKeyVerifier
from safelaunch.ssh.login import Login
from safelaunch.ssh.retries import with_retries
from safelaunch.ssh.streams import ProxyProcess, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.prompt import Prompter

GREETING_TIMEOUT = 30.0  # seconds until the server's greeting: it may look up our name first
KEY_EXCHANGE_TIMEOUT = 30.0  # seconds
# what OpenSSH sends instead of a greeting when it is at its limit of connections
_OVERLOAD_MESSAGES = ("exceeded maxstartups", "not allowed at this time")
# GCM needs no second pass for a MAC: the fastest on a processor with AES instructions
_GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
CIPHERS = (*_GCM, "aes128-ctr", "aes192-ctr", "aes256-ctr")


def login(
    target: Target,
    routes: Sequence[Target],
    via: Any,
    ask: Prompter | None,
    notify: Callable[[str], None],
    *,
    before_login: Callable[[], object],
) -> tuple[Any, str]:
    """Return an open transport to a target, and the accepted credential.

    `via` is the transport of a jump host, or None. `routes` are all targets of this machine.
    `before_login` starts other work, each time the server has been reached. Raises HostError.
    """
    verifier = HostKeyVerifier(target, routes)

    def exchange(attempt: int) -> Any:
        stream = proxy.open_stream(target, via, notify)
        paramiko_patches.paramiko()  # its import takes as long as the server's start of a session
        before_login()
        return _key_exchange(target, verifier, stream, attempt)

    transport = with_retries(target.name, notify, exchange)
    try:
        key = transport.host_key
        verifier.check(key.get_name(), key.asbytes(), ask, notify)
        return transport, Login(target, transport, ask).run()
    except BaseException:
        paramiko_patches.close_transport(transport)
        raise


def _key_exchange(target: Target, verifier: HostKeyVerifier, stream: Stream, attempts: int) -> Any:
    transport = None
    timeout = GREETING_TIMEOUT + KEY_EXCHANGE_TIMEOUT
    try:
        transport = paramiko_patches.transport(stream)
        transport.banner_timeout = GREETING_TIMEOUT
        transport.handshake_timeout = KEY_EXCHANGE_TIMEOUT
        options = transport.get_security_options()
        options.ciphers = [c for c in CIPHERS if c in options.ciphers]
        options.key_types = verifier.algorithms(options.key_types)
        transport.start_client(timeout=timeout)
    except BaseException as e:
        _close(transport, stream)
        if isinstance(e, Exception):
            reason = getattr(transport, "disconnect_reason", "")
            raise _explain_failure(target, stream, e, reason, attempts) from e
        raise
    if not transport.initial_kex_done:
        _close(transport, stream)
        raise errors.handshake_timeout(target, timeout, "the key exchange")
    return transport


def _close(transport: Any, stream: Stream) -> None:
    if transport is not None:
        paramiko_patches.close_transport(transport)
    stream.close()


def _explain_failure(
    target: Target, stream: Stream, error: Exception, disconnect_reason: str, attempts: int
) -> HostError:
    """Return the error of a failed key exchange: no data, not SSH, or no agreement."""
    if not stream.greeting:
        return _explain_no_data(target, stream, error, attempts)
    if not any(line.startswith(b"SSH-") for line in stream.greeting.splitlines()):
        first_line = stream.greeting.decode("utf-8", "replace").strip().splitlines()[0]
        if first_line.lower().startswith(_OVERLOAD_MESSAGES):
            message = f"its message: {printable(first_line)}"
            return errors.closed_before_handshake(target, attempts, message)
        return errors.not_an_ssh_server(target, first_line)
    if isinstance(error, EOFError) and not disconnect_reason and not stream.closed_by_peer:
        return errors.handshake_timeout(target, KEY_EXCHANGE_TIMEOUT, "the key exchange")
    if isinstance(error, (EOFError, ConnectionError)) and not disconnect_reason:
        return errors.closed_before_handshake(
            target, attempts, getattr(error, "strerror", None) or ""
        )
    text = disconnect_reason or str(error) or type(error).__name__
    incompatible = paramiko_patches.paramiko().ssh_exception.IncompatiblePeer
    explain = (
        errors.no_common_algorithm if isinstance(error, incompatible) else errors.handshake_failed
    )
    return explain(target, text)


def _explain_no_data(target: Target, stream: Stream, error: Exception, attempts: int) -> HostError:
    command = stream.raw
    if isinstance(command, ProxyProcess):
        return errors.proxy_command_failed(
            target, target.proxy_command or "", command.stderr_tail, command.code()
        )
    if time.monotonic() - stream.last_received >= GREETING_TIMEOUT - 1:
        return errors.handshake_timeout(target, GREETING_TIMEOUT, "its greeting")
    reason = getattr(error.__context__, "strerror", None)
    return errors.closed_before_handshake(target, attempts, reason or "")
