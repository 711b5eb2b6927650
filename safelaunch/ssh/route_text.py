"""How a host is shown: the way to it, and a line about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.ssh.keys.known_hosts import STANDARD_PORT

if TYPE_CHECKING:
    from safelaunch.ssh.config.target import Target


def way_there(found: Target) -> str:
    """Return `me@10.0.0.5:2201`, with the jump hosts on the way."""
    address = f"[{found.address}]" if ":" in found.address else found.address
    port = "" if found.port == STANDARD_PORT else f":{found.port}"
    through = ", ".join(way_there(jump) for jump in found.jumps)
    through = through or ("a proxy command" if found.proxy_command else "")
    return f"{found.user}@{address}{port}" + f" via {through}" * bool(through)


def brief(proof: str) -> str:
    """Return what opened a door without the key's fingerprint: its file says enough."""
    return re.sub(r" SHA256:[^\s)]+", "", proof)
