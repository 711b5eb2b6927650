"""Copies the assets of a job to its hosts before the job starts there: models, data, wheels."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.errors import StartError
from safelaunch.model import Template
from safelaunch.remote.parallel import together
from safelaunch.remote.shared_filesystem import groups
from safelaunch.runtime.units import quantity
from safelaunch.sync.push import push_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.model import NodePlan, Placed
    from safelaunch.remote.host_pool import Machine
    from safelaunch.sync.push import Summary
    from safelaunch.sync.sender import AgentCalls
    from safelaunch.sync.transfer_progress import TransferProgress


def push_assets(
    machines: Sequence[Machine],
    nodes: Sequence[NodePlan],
    progress: Callable[[TransferProgress], None] | None = None,
    **options: Any,
) -> Iterator[tuple[str, Summary]]:
    """Copy the assets of bound nodes to their machines; yield hosts and summary of each copy.

    Hosts that share a file system at an asset's place are sent it once. What is there and the same
    is not sent again; a cut transfer resumes. `options` and errors are those of `push_file`.
    """
    done = set()
    for assets in zip(*(node.assets for node in nodes), strict=True):
        places = tuple(str(asset.place) for asset in assets)
        if places in done:
            continue  # two names for one file
        done.add(places)

        def push_group(
            group: Sequence[int], assets: tuple[Placed, ...] = assets
        ) -> tuple[str, Summary]:
            summary = _push(machines[group[0]].agent, assets[group[0]], progress, options)
            return ", ".join(machines[rank].name for rank in group), summary

        folders = [posixpath.dirname(place) for place in places]
        yield from together(push_group, groups(machines, folders))


def _push(
    agent: AgentCalls,
    asset: Placed,
    progress: Callable[[TransferProgress], None] | None,
    options: dict[str, Any],
) -> Summary:
    """Return the summary of one copy; no file of an asset is ever removed on the host."""
    if isinstance(asset.place, Template):
        raise StartError(f"the home folder of {agent.host} is not known", where=asset.origin)

    def show(at: TransferProgress) -> None:
        if progress is not None:
            progress(replace(at, activity=f"{asset.name} to {agent.host}: {at.activity}"))

    key = f"place: `{asset.name}: {{path: ..., to: ...}}`"
    summary = push_file(agent, asset.path, asset.place, show, destination=key, **options)
    if not os.path.isdir(asset.path):  # other files in its folder belong to something else
        return replace(
            summary, target=posixpath.join(summary.target, posixpath.basename(asset.place))
        )
    note = f"{asset.name}: still there, and no longer part of it: {quantity(summary.left, 'file')}"
    return replace(summary, left=0, notes=(*summary.notes, *([note] if summary.left else [])))
