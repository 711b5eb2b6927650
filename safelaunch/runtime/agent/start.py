"""What a client asks before a start, and for a start: this machine's state, and runtime/start."""

from __future__ import annotations

import os
import shutil
import sys
import time

from safelaunch.runtime import commands
from safelaunch.runtime.home import home
from safelaunch.runtime.start import starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from safelaunch.runtime.agent.wire import Link


def look(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return what a start needs to know, and how each of `commands` ended.

    A command is a list of words; the first may be null for the agent's own interpreter, or begin
    with `~/`.
    """
    del link
    names = request.get("environ") or []
    asked = request.get("commands") or []
    return {
        "home": os.path.expanduser("~"),
        "base": home(),
        "hostname": os.uname().nodename,
        "user": os.getuid(),
        "environ": {n: v for n, v in os.environ.items() if _is_named(n, names)},
        "python": sys.executable,
        "bash": shutil.which("bash"),
        "results": [_run(command).to_json() for command in asked],
    }


def _run(command: list[str | None]) -> commands.CommandResult:
    program, *words = (word or sys.executable for word in command)
    return commands.run([os.path.expanduser(program), *words])


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in patterns)


def clock(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return what this machine's clock says."""
    del request, link
    return {"now": time.time()}


def start(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Start a run, its files as data behind the request. Raises OSError, StartFailed."""
    answer = starter.start(request, b"".join(link.pieces()), os.environ, home())
    return answer.to_json()


def undo(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Leave nothing of a start, as far as it came."""
    del link
    starter.undo(str(request["id"]), int(request["node"]))
    return {}


VERBS = {"look": look, "start": start, "undo": undo, "clock": clock}
