"""Where a project lies on hosts, and the plan of a job that runs there."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.config.resolve import Flags, Resolved
    from safelaunch.model import Host, Plan

HOME = "<home>"  # in a dry-run: only the host knows its user's home folder
FOLDER = "~/safelaunch"  # for the projects of hosts that name no `workdir`


def place(host: Host, project_root: str, home: str = HOME) -> str:
    """Return the folder on a host that a project is synced to."""
    name = os.path.basename(project_root.rstrip("/\\")) or "project"
    folder = host.workdir or posixpath.join(FOLDER, name)
    return home + folder[1:] if folder == "~" or folder.startswith("~/") else folder


def plan(
    resolve: Callable[[Flags], Resolved], flags: Flags, places: Sequence[str]
) -> tuple[Plan, Resolved]:
    """Return the plan of a job on hosts, each with its own place of the project."""
    made = {}
    for folder in dict.fromkeys(places):
        resolved = resolve(flags._replace(project_root=folder))
        made[folder] = (make_plan(resolved), resolved)
    first, resolved = made[places[0]]
    nodes = tuple(made[folder][0].nodes[rank] for rank, folder in enumerate(places))
    return replace(first, nodes=nodes), resolved
