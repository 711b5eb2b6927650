"""Copies the project of a job and its assets (models, data, wheels) to the hosts of a start."""

# ruff: noqa: PLC0415 - checks.job_paths: only where the run gets a copy of the project

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.paths import project_on_host
from safelaunch.errors import StartError
from safelaunch.model import Slot, Template, bind_word
from safelaunch.plan.build import bind, move_project
from safelaunch.remote.parallel import together
from safelaunch.remote.project_code import LaunchFiles, ProjectCode
from safelaunch.remote.shared_filesystem import groups
from safelaunch.runtime.units import quantity
from safelaunch.sync.checkout_id import checkout_id
from safelaunch.sync.ignore import Rules
from safelaunch.sync.manifest import manifest_hash
from safelaunch.sync.project_scan import ProjectScan
from safelaunch.sync.push import LIMIT, RunSync, push_file, start_push

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import NodePlan, Placed, Plan
    from safelaunch.remote.host_pool import Machine
    from safelaunch.sync.project_tree import Entry
    from safelaunch.sync.push import PendingPush, Summary
    from safelaunch.sync.sender import AgentCalls
    from safelaunch.sync.transfer_progress import TransferProgress


class ProjectSync(NamedTuple):
    """The project and the assets of a job, and how they are copied to its hosts."""

    resolved: Resolved
    is_sent: bool = True  # false: used as it lies there
    delete: bool = False  # remove there what earlier syncs copied and is gone here
    force: bool = False  # overwrite files that were changed there
    limit: int | None = LIMIT  # bytes of a sync above which `confirm` is asked
    confirm: Callable[[str], bool] | None = None  # None: refused above the limit
    report: Callable[[str], None] = lambda _: None
    progress: Callable[[TransferProgress], None] | None = None  # of assets


class CodeFolder(NamedTuple):
    """The folder of a project on a node's host, and the run's own copy of it, if it has one."""

    place: str
    tree: str | None = None
    owner: str = ""  # id of the checkout that the folder belongs to; "" where it is shared
    nodes: int = 1  # of the run that have it on one file system

    @property
    def path(self) -> str:
        """The folder with the code of the run."""
        return self.tree or self.place


def connect_and_scan(
    sync: ProjectSync, machines: Sequence[Machine], home: str, run_id: str
) -> Transfer:
    """Return a transfer that is to begin; a single host is connected to while its files are read.

    Raises HostError, ConfigError.
    """
    transfer = Transfer(sync, machines, home, run_id)
    if len(machines) == 1 and sync.is_sent:
        machines[0].pool.session(machines[0].name, transfer.start_scan)
    return transfer


class Transfer:
    """The project on its way to all hosts; to those that share a file system once."""

    def __init__(
        self, sync: ProjectSync, machines: Sequence[Machine], home: str, run_id: str
    ) -> None:
        job, project = sync.resolved.job.sync, sync.resolved.project
        self._sync = sync
        self._machines = machines
        self._run = run_id
        self._cache = os.path.join(home, "cache")
        self._owner = checkout_id(home, project)
        self._rules = Rules(project, job.include, job.exclude)
        hosts = sync.resolved.hosts[: len(machines)]  # an engine has more nodes behind one of them
        self._planned = [project_on_host(host, project) for host in hosts]
        self._pending: PendingPush | None = None
        self._entries: Sequence[Entry] = ()  # of the project, as they were sent
        self._code = ProjectCode(project, job.include, job.exclude) if sync.is_sent else None
        self._launched: LaunchFiles | None = None
        self._home = home
        self._scan: ProjectScan | None = None

    def start_scan(self) -> None:
        """Scan the project beside what follows."""
        self._scan = self._scan or ProjectScan(self._rules, self._cache)

    def request(self) -> None:
        """Request the state of the folder on a single host: it travels with the others."""
        if len(self._machines) == 1 and self._sync.is_sent:
            folder = bind_word(self._planned[0], {Slot.HOME: "~"})
            self._pending = self._start_push([0], [str(folder)])

    def _owner_on(self, rank: int) -> str:
        """Return the owner of the project's folder on a host, "" for one that checkouts share."""
        return "" if self._sync.resolved.hosts[rank].is_shared else self._owner

    def _start_push(self, group: Sequence[int], folders: Sequence[str]) -> PendingPush:
        first, *others = group
        more = [(self._machines[rank].agent, folders[rank]) for rank in others]
        run_sync = RunSync(self._run, self._owner_on(first), more)
        return start_push(
            self._machines[first].agent,
            self._rules.root,
            folders[first],
            self._rules,
            delete=self._sync.delete,
            force=self._sync.force,
            cache=self._cache,
            run_sync=run_sync,
            scan=self._scan,
        )

    def record_code(self) -> None:
        """Make the record of the code while the host still compares, where all hashes are known."""
        if self._pending is not None and self._pending.digest and self._code is not None:
            self._machines[0].agent.launch()
            self._entries = tuple(self._pending.tree.items.values())
            self._launched = self._code.record(self._entries, self._home)

    def finish(
        self, plan: Plan, homes: Sequence[dict[Slot, str]]
    ) -> tuple[Plan, Sequence[CodeFolder]]:
        """Send what the hosts lack of project and assets, and report what that was.

        Returns the plan with the folders in which the run's code is, and these. Raises HostError,
        Refused.
        """
        sync, machines = self._sync, self._machines
        pairs = zip(self._planned, homes, strict=True)
        folders = [str(bind_word(folder, home)) for folder, home in pairs]
        code = self._send(folders) if sync.is_sent else self._find(folders)
        code = [used._replace(owner=self._owner_on(rank)) for rank, used in enumerate(code)]
        for machine, folder, used in zip(machines, folders, code, strict=True):
            if used.place != folder:
                text = f"{machine.name}:{folder} is another checkout's: this one is {used.place}"
                sync.report(text)
        placed = self._moved(plan, folders, [used.place for used in code])
        if sync.is_sent:
            nodes = [bind(placed, home).nodes[rank] for rank, home in enumerate(homes)]
            options = {"force": sync.force, "cache": self._cache, "report": sync.report}
            self._report(list(push_assets(machines, nodes, sync.progress, **options)))
        plan = self._moved(plan, folders, [used.path for used in code])
        for rank, used in enumerate(code):
            if used.tree:
                outputs = _output_folders(sync.resolved, plan, rank, used.tree)
                machines[rank].agent.call("trees.finish", tree=used.tree, outputs=outputs)
        return plan, code

    def launch_files(self, code: Sequence[CodeFolder]) -> list[dict[str, bytes]]:
        """Return for each node the record of the code that `finish` has sent to its folder."""
        if self._code is None:
            return []
        launched = self._launched or self._code.record(self._entries, self._home)
        return [launched.of_node(folder.path) for folder in code]

    def _send(self, folders: Sequence[str]) -> list[CodeFolder]:
        """Sync the project; return for each host where it is."""
        sync, machines = self._sync, self._machines

        def push(group: Sequence[int]) -> tuple[str, Summary]:
            pending = self._pending or self._start_push(group, folders)
            summary = pending.finish(confirm=sync.confirm, report=sync.report, limit=sync.limit)
            return _names(machines, group), summary

        by_group = groups(machines, folders)
        summaries = together(push, by_group)
        self._report(summaries)
        first, count = summaries[0][1], len(self._entries)
        self._entries = first.entries
        is_new = first.sent or len(first.entries) != count
        digest = None if self._pending is None else self._pending.digest
        if is_new and manifest_hash(first.entries) != digest:  # changed since they were hashed
            self._launched = None
        code = {}
        for group, (_, summary) in zip(by_group, summaries, strict=True):
            for rank in group:
                code[rank] = sent_folder(folders[rank], summary, len(group))
        return [code[rank] for rank in range(len(machines))]

    def _find(self, folders: Sequence[str]) -> list[CodeFolder]:
        """Return for each host where the project lies there."""

        def find(rank: int) -> CodeFolder:
            if not (owner := self._owner_on(rank)):
                return CodeFolder(folders[rank])
            agent = self._machines[rank].agent
            answer = agent.call("trees.place", folder=folders[rank], owner=owner)
            return CodeFolder(folders[rank] + answer["suffix"])

        return together(find, range(len(folders)))

    def _moved(self, plan: Plan, folders: Sequence[str], others: Sequence[str]) -> Plan:
        if list(folders) == list(others):
            return plan
        return move_project(plan, self._sync.resolved, others)

    def _report(self, summaries: Sequence[tuple[str, Summary]]) -> None:
        for names, summary in summaries:
            for line in summary.lines(names):
                self._sync.report(line)


def sent_folder(folder: str, summary: Summary, nodes: int) -> CodeFolder:
    """Return where a sync into a node's folder has put the code; `nodes` is CodeFolder's."""
    place = folder + summary.suffix
    # not the path of the copy itself: that may be another one on the host that was asked
    end = summary.target[len(summary.place) :] if summary.place else ""
    return CodeFolder(place, place + end if end else None, nodes=nodes)


def _output_folders(resolved: Resolved, plan: Plan, rank: int, tree: str) -> list[str]:
    """Return the folders below a tree, from there on, that a job is known to write to."""
    from safelaunch.checks.job_paths import named_outputs

    supervision, node = plan.supervision, plan.nodes[rank]
    recovery, success = supervision.recovery, supervision.success
    globs = [recovery.checkpoint] if recovery and recovery.checkpoint else []
    globs += [*(success.artifacts if success else ()), *([plan.log] if plan.log else [])]
    paths = [*named_outputs(resolved.job, node), *map(_folder_of_glob, globs)]
    below = [_from_tree(node, path, tree) for path in paths]
    for service, own in zip(resolved.services, plan.services, strict=True):
        if service.node != rank:
            continue
        node = own.plan.nodes[0]
        names = named_outputs(service.resolved.job, node)
        below += (_from_tree(node, path, tree) for path in names)
    return [path for path in dict.fromkeys(below) if path.split("/")[0] not in (".", "..")]


def _from_tree(node: NodePlan, path: str, tree: str) -> str:
    """Return a path of a node's job from a tree on."""
    return posixpath.relpath(posixpath.join(str(bind_word(node.cwd, {})), path), tree)


def _folder_of_glob(glob: str) -> str:
    """Return the folder before the first wildcard or field of a path."""
    return posixpath.dirname(re.split(r"[*?\[{]", glob, maxsplit=1)[0]) or "."


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
