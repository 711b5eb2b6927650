"""One SSH server, from its greeting to the login: key exchange, its host key, who we are."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors, paramiko_patches, proxy
from safelaunch.ssh.keys.verify_host_key import Known
from safelaunch.ssh.login import Ask, Login

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target
    from safelaunch.ssh.streams import Stream

GREETING = 30.0  # seconds until the server has said who it is: it may look our name up first
EXCHANGE = 30.0  # seconds for the key exchange
PAUSES = (1.0, 2.0, 4.0)  # seconds before the tries after the first; each somewhat off
# how OpenSSH sends away whom it has no place for
_NOT_NOW = ("exceeded maxstartups", "not allowed at this time")
# GCM does without a second pass for a MAC: the fastest where the processor knows AES
CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)


def login(
    target: Target,
    ways: Sequence[Target],
    via: Any,
    ask: Ask | None,
    say: Callable[[str], None],
) -> tuple[Any, Login, str]:
    """Return an open transport to a target, its login, and what opened the door. Raises HostError.

    `via` is the transport of a jump host, or None. `ways` are all ways to this machine.
    """
    known = Known(target, ways)
    transport = _greeted(target, known, via, say)
    try:
        key = transport.host_key
        known.check(key.get_name(), key.asbytes(), ask, say)
        session = Login(target, transport, ask)
        return transport, session, session.run()
    except BaseException:
        paramiko_patches.end(transport)
        raise


def _greeted(target: Target, known: Known, via: Any, say: Callable[[str], None]) -> Any:
    """Return a transport after the key exchange; a server that hangs up at once is tried again."""
    for number, pause in enumerate((*PAUSES, None), 1):
        try:
            return _exchange(target, known, proxy.stream(target, via, say), number)
        except errors.Dropped:  # noqa: PERF203 - four at most
            if pause is None:
                raise
            # somewhat off, so that many who were turned away do not come back at once
            seconds = pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            say(
                f"{target.name}: closed before the SSH handshake (sshd restarting, MaxStartups or "
                f"fail2ban?); again in {seconds:.1f} s, try {number + 1} of {len(PAUSES) + 1}"
            )
            time.sleep(seconds)
    raise AssertionError  # the last try returns or raises


def _exchange(target: Target, known: Known, stream: Stream, tries: int) -> Any:
    transport = None
    try:
        transport = paramiko_patches.transport(stream)
        transport.banner_timeout = GREETING
        transport.handshake_timeout = EXCHANGE
        options = transport.get_security_options()
        options.ciphers = [c for c in CIPHERS if c in options.ciphers]
        options.key_types = known.algorithms(options.key_types)
        transport.start_client(timeout=GREETING + EXCHANGE)
    except BaseException as e:
        _abandon(transport, stream)
        if isinstance(e, Exception):
            raise _failure(target, stream, e, getattr(transport, "told", ""), tries) from e
        raise
    if not transport.initial_kex_done:
        _abandon(transport, stream)
        raise errors.mute(target, GREETING + EXCHANGE, "the key exchange")
    return transport


def _abandon(transport: Any, stream: Stream) -> None:
    if transport is not None:
        paramiko_patches.end(transport)
    stream.close()


def _failure(target: Target, stream: Stream, error: Exception, told: str, tries: int) -> HostError:
    """Return what an exchange failed of: nothing came, no SSH came, or no agreement."""
    if not stream.first:
        return _nothing(target, stream, error, tries)
    if not any(line.startswith(b"SSH-") for line in stream.first.splitlines()):
        said = stream.first.decode("utf-8", "replace").strip().splitlines()[0]
        if said.lower().startswith(_NOT_NOW):
            return errors.dropped(target, tries, f"it says: {printable(said)}")
        return errors.no_ssh(target, said)
    if isinstance(error, EOFError) and not told and not stream.ended:
        return errors.mute(target, EXCHANGE, "the key exchange")
    if isinstance(error, (EOFError, ConnectionError)) and not told:
        return errors.dropped(target, tries, getattr(error, "strerror", None) or "")
    return errors.handshake(target, told or str(error) or type(error).__name__)


def _nothing(target: Target, stream: Stream, error: Exception, tries: int) -> HostError:
    command = proxy.command_of(stream)
    if command is not None:
        return errors.proxy(target, target.proxy_command or "", command.told, command.code())
    if time.monotonic() - stream.heard >= GREETING - 1:
        return errors.mute(target, GREETING, "its greeting")
    reason = getattr(error.__context__, "strerror", None)
    return errors.dropped(target, tries, reason or "")
