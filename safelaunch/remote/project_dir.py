"""Where a project lies on hosts, and the plan of a job that runs there."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.config.paths import ASSETS, FOLDER, HOME
from safelaunch.plan.build import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.config.resolve import Flags, Resolved
    from safelaunch.model import Host, Plan

__all__ = ["ASSETS", "FOLDER", "HOME", "place", "plan"]


def place(host: Host, project_root: str, home: str = HOME) -> str:
    """Return the folder on a host that a project is synced to."""
    name = os.path.basename(project_root.rstrip("/\\")) or "project"
    folder = host.workdir or posixpath.join(FOLDER, name)
    return home + folder[1:] if folder == "~" or folder.startswith("~/") else folder


def plan(
    resolve: Callable[[Flags], Resolved],
    flags: Flags,
    places: Sequence[str],
    homes: Sequence[str] = (),
) -> tuple[Plan, Resolved]:
    """Return the plan of a job on hosts, each with its own place of the project.

    `homes` are the home folders there, below which assets lie; without them they are `<home>`.
    """
    made = {}
    at = list(zip(places, homes or [HOME] * len(places), strict=True))
    for folder, home in dict.fromkeys(at):
        resolved = resolve(flags._replace(project_root=folder, home=home))
        made[folder, home] = (make_plan(resolved), resolved)
    first, resolved = made[at[0]]
    nodes = tuple(made[where][0].nodes[rank] for rank, where in enumerate(at))
    return replace(first, nodes=nodes), resolved
