"""Brings the assets of a job to its hosts: models, data, wheels; before the job starts there."""

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
from safelaunch.start.preflight import check_assets
from safelaunch.sync.push import push_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from safelaunch.model import NodePlan, Placed, Plan
    from safelaunch.remote.machine import Machine
    from safelaunch.sync.push import Summary
    from safelaunch.sync.sender import AgentCalls
    from safelaunch.sync.transfer_progress import TransferProgress


def check(plan: Plan) -> None:
    """Refuse a plan with assets that are not on this machine. Raises ConfigError."""
    for node in plan.nodes:
        check_assets(node.assets)


def everywhere(
    machines: Sequence[Machine],
    nodes: Sequence[NodePlan],
    *,
    force: bool = False,
    cache: str | None = None,
    report: Callable[[str], None] | None = None,
    progress: Callable[[TransferProgress], None] | None = None,
) -> Iterator[tuple[str, Summary]]:
    """Bring the assets of bound nodes to their machines; yield hosts and what was done there.

    Hosts that see one file system at an asset's place are sent it once. Raises as `bring`.
    """
    done = set()
    for assets in zip(*(node.assets for node in nodes), strict=True):
        places = tuple(str(asset.place) for asset in assets)
        if places in done:
            continue  # two names for one
        done.add(places)

        def bring_group(
            group: Sequence[int], assets: tuple[Placed, ...] = assets
        ) -> tuple[str, Summary]:
            machine, asset = machines[group[0]], assets[group[0]]
            summary = _bring(
                machine.agent, asset, progress, force=force, cache=cache, report=report
            )
            return ", ".join(machines[index].name for index in group), summary

        folders = [posixpath.dirname(place) for place in places]
        yield from together(bring_group, groups(machines, folders))


def bring(
    agent: AgentCalls,
    assets: Iterable[Placed],
    *,
    force: bool = False,
    cache: str | None = None,
    report: Callable[[str], None] | None = None,
    progress: Callable[[TransferProgress], None] | None = None,
) -> list[Summary]:
    """Bring the assets of one node to its host, and say of each what was done.

    What is there and the same is not sent again; a cut transfer goes on at the next call. Raises
    Refused where something else is there and `force` is not given, HostError, ConfigError.
    """
    wanted = list({asset.place: asset for asset in assets}.values())
    check_assets(wanted)
    return [
        _bring(agent, asset, progress, force=force, cache=cache, report=report) for asset in wanted
    ]


def _bring(
    agent: AgentCalls,
    asset: Placed,
    progress: Callable[[TransferProgress], None] | None,
    **options: Any,
) -> Summary:
    place = asset.place
    if isinstance(place, Template):
        raise StartError(f"the home folder of {agent.host} is not known", where=asset.origin)

    def tell(at: TransferProgress) -> None:
        if progress is not None:
            progress(replace(at, activity=f"{asset.name} to {agent.host}: {at.activity}"))

    said = f"place: `{asset.name}: {{path: ..., to: ...}}`"
    summary = push_file(agent, asset.path, place, tell, destination=said, **options)
    return _of_asset(summary, asset)


def _of_asset(found: Summary, asset: Placed) -> Summary:
    """Return the summary of an asset: nothing of it is ever removed there."""
    if not os.path.isdir(asset.path):  # its folder holds what others brought, too
        whole = posixpath.join(found.target, posixpath.basename(str(asset.place)))
        return replace(found, target=whole)
    stay: tuple[str, ...] = ()
    if found.left:
        left = quantity(found.left, "file")
        stay = (f"{asset.name}: still there, and no longer part of it: {left}",)
    return replace(found, left=0, notes=found.notes + stay)
