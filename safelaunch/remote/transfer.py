"""Copies the project of a job and its assets (models, data, wheels) to the hosts of a start."""

from __future__ import annotations

import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.paths import project_on_host
from safelaunch.errors import StartError
from safelaunch.model import Slot, Template, bind_word
from safelaunch.plan.build import bind
from safelaunch.remote.parallel import together
from safelaunch.remote.shared_filesystem import groups
from safelaunch.runtime.units import quantity
from safelaunch.sync.ignore import Rules
from safelaunch.sync.push import LIMIT, push_file, start_push

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import NodePlan, Placed, Plan
    from safelaunch.remote.host_pool import Machine
    from safelaunch.sync.push import PendingPush, Summary
    from safelaunch.sync.sender import AgentCalls
    from safelaunch.sync.transfer_progress import TransferProgress


class ProjectSync(NamedTuple):
    """The project and the assets of a job, and how they are copied to its hosts."""

    resolved: Resolved
    delete: bool = False  # remove there what earlier syncs copied and is gone here
    force: bool = False  # overwrite files that were changed there
    limit: int | None = LIMIT  # bytes of a sync above which `confirm` is asked
    confirm: Callable[[str], bool] | None = None  # None: refused above the limit
    report: Callable[[str], None] = lambda _: None
    progress: Callable[[TransferProgress], None] | None = None  # of assets


class Transfer:
    """The project on its way to all hosts; to those that share a file system once."""

    def __init__(self, sync: ProjectSync, machines: Sequence[Machine], cache: str) -> None:
        job, project = sync.resolved.job.sync, sync.resolved.project
        self._sync = sync
        self._machines = machines
        self._cache = cache
        self._rules = Rules(project, job.include, job.exclude)
        self._folders = [project_on_host(host, project) for host in sync.resolved.hosts]
        self._pending: PendingPush | None = None
        self.summaries: dict[int, Summary] = {}  # of the project, by node
        if len(machines) == 1:  # its first request travels with the others
            folder = bind_word(self._folders[0], {Slot.HOME: "~"})
            self._pending = self._start_push(machines[0], str(folder))

    def _start_push(self, machine: Machine, folder: str) -> PendingPush:
        root, delete, force = self._rules.root, self._sync.delete, self._sync.force
        return start_push(
            machine.agent, root, folder, self._rules, delete=delete, force=force, cache=self._cache
        )

    def finish(self, plan: Plan, homes: Sequence[dict[Slot, str]]) -> None:
        """Send what the hosts lack of project and assets, and report what that was."""
        sync, machines = self._sync, self._machines
        pairs = zip(self._folders, homes, strict=True)
        folders = [str(bind_word(folder, home)) for folder, home in pairs]

        def push(group: Sequence[int]) -> tuple[str, Summary]:
            first = group[0]
            pending = self._pending or self._start_push(machines[first], folders[first])
            summary = pending.finish(confirm=sync.confirm, report=sync.report, limit=sync.limit)
            self.summaries.update(dict.fromkeys(group, summary))
            return _names(machines, group), summary

        self._report(together(push, groups(machines, folders)))
        nodes = [bind(plan, home).nodes[rank] for rank, home in enumerate(homes)]
        options = {"force": sync.force, "cache": self._cache, "report": sync.report}
        self._report(list(push_assets(machines, nodes, sync.progress, **options)))

    def _report(self, summaries: Sequence[tuple[str, Summary]]) -> None:
        for names, summary in summaries:
            for line in summary.lines(names):
                self._sync.report(line)


def _names(machines: Sequence[Machine], group: Sequence[int]) -> str:
    return ", ".join(machines[rank].name for rank in group)


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
            return _names(machines, group), summary

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
        target = posixpath.join(summary.target, posixpath.basename(asset.place))
        return replace(summary, target=target)
    note = f"{asset.name}: still there, and no longer part of it: {quantity(summary.left, 'file')}"
    return replace(summary, left=0, notes=(*summary.notes, *([note] if summary.left else [])))
