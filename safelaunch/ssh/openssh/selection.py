"""Select the transport of a target: the system's `ssh` where Paramiko lacks what it needs."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.ssh.config.target import OPENSSH, PARAMIKO
from safelaunch.ssh.keys import identities, known_hosts
from safelaunch.ssh.keys.verify_host_key import HostKeyVerifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.ssh.config.target import Target

_HARDWARE_KEY = "sk-"  # prefix of the key types that FIDO authenticators hold


def program() -> str | None:
    """Return the path of an `ssh` that can share a login; None on Windows, whose own cannot."""
    return None if sys.platform == "win32" else shutil.which("ssh")


def uses_openssh(target: Target, routes: Sequence[Target]) -> bool:
    """Whether the system's `ssh` connects to a target. Raises ConfigError if it cannot."""
    if target.transport == OPENSSH and program() is None:
        raise ConfigError(
            "`transport: ssh`, and there is no `ssh` here that can share a login",
            where=target.name,
            hint="install OpenSSH's client; on Windows remove the key, or use WSL",
        )
    return may_use_openssh(target) and (
        target.transport == OPENSSH or need(target, routes) is not None
    )


def may_use_openssh(target: Target) -> bool:
    """Whether the system's `ssh` may be used for a target, and there is a usable one."""
    return target.transport != PARAMIKO and target.destination is not None and program() is not None


def need(target: Target, routes: Sequence[Target]) -> str | None:
    """Return what of a target, or of its jump hosts, Paramiko lacks; None: nothing."""
    for hop in (*target.jumps, target):
        if hop.unsupported:
            return hop.unsupported[0]
        for path in hop.identities:
            if (identities.key_type(path) or "").startswith(_HARDWARE_KEY):
                return f"{path} is a FIDO key"
        authority = _authority(hop, routes if hop is target else (hop,))
        if authority is not None:
            return authority
    return None


def _authority(target: Target, routes: Sequence[Target]) -> str | None:
    """Return the line of known_hosts that trusts a certificate authority for a target."""
    files = (*target.known_hosts, *target.system_known_hosts)
    if not any(map(known_hosts.has_authorities, files)):
        return None  # saves matching all names of a long file
    lines = HostKeyVerifier(target, routes).authorities
    return f"{lines[0].where}: `{known_hosts.AUTHORITY}`" if lines else None
