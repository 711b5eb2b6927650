"""Format the route to a host, and the credential of a login, for messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.ssh.keys.known_hosts import STANDARD_PORT

if TYPE_CHECKING:
    from safelaunch.ssh.config.target import Target


def format_route(target: Target) -> str:
    """Return the address as `me@10.0.0.5:2201`, with its jump hosts."""
    address = f"[{target.address}]" if ":" in target.address else target.address
    port = "" if target.port == STANDARD_PORT else f":{target.port}"
    via = ", ".join(format_route(jump) for jump in target.jumps)
    via = via or ("a proxy command" if target.proxy_command else "")
    return f"{target.user}@{address}{port}" + f" via {via}" * bool(via)


def without_fingerprint(credential: str) -> str:
    """Return a credential without the key's fingerprint: the name of its file is enough."""
    return re.sub(r" SHA256:[^\s)]+", "", credential)
