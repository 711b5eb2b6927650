"""Syncs the code of an earlier run to its hosts again, or the project as it is now."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import Refused, RunError
from safelaunch.model import Slot
from safelaunch.plan.build import bind
from safelaunch.remote.parallel import together
from safelaunch.remote.project_code import LaunchFiles, ProjectCode, code_files
from safelaunch.remote.shared_filesystem import groups
from safelaunch.remote.transfer import CodeFolder, sent_folder
from safelaunch.runs import store
from safelaunch.runtime.code import manifest
from safelaunch.runtime.records import CodeRecord, RunRecord
from safelaunch.start.code.code_tree import missing_text, run_code
from safelaunch.start.code.rerun_code import move_paths
from safelaunch.sync.file_hashes import HashCache, hash_item
from safelaunch.sync.ignore import Rules
from safelaunch.sync.project_tree import scan
from safelaunch.sync.push import LIMIT, RunSync, start_push

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.model import Plan
    from safelaunch.remote.start.prepare import PreparedStart
    from safelaunch.runs.store import Run
    from safelaunch.start.code.code_tree import RunCode
    from safelaunch.sync.push import Summary


class RerunSync(NamedTuple):
    """How `rerun` syncs: today's project or that of the launch, and what the user allows."""

    nodes: tuple[int, ...]  # of the earlier run, for each machine
    is_current: bool = False
    force: bool = False  # overwrite files that were changed on the host
    confirm: Callable[[str], bool] | None = None  # asked above the limit of a sync
    report: Callable[[str], None] = lambda _: None


def sync_again(prepared: PreparedStart, run: Run, options: RerunSync) -> PreparedStart:
    """Return a start whose hosts have the code of an earlier run, or the project as it is now.

    Where the code was not recorded the project is used as it lies there. Raises ConfigError,
    Refused, RunError, HostError.
    """
    report, home = options.report, prepared.caller.home
    try:
        code = run_code(run, home)
    except RunError as e:
        report(f"uses the project as it lies on the host: {e.message}")
        return prepared
    again = _CodeSync(prepared, run, options)
    rules = Rules(code.record.root, code.record.include, code.record.exclude)
    if options.is_current:
        report("runs the project as it is now")
        project = ProjectCode(rules.root, code.record.include, code.record.exclude)
        summary = again.push_all(rules)
        return again.prepared(project.record(summary.entries, home))
    launched = LaunchFiles(code.record, _patch(run))
    if _is_unchanged(code, rules, home):
        report(f"runs the code that {run.id} was launched with, unchanged")
        again.push_all(rules)
        return again.prepared(launched)
    with tempfile.TemporaryDirectory(prefix="safelaunch-") as folder:
        tree = os.path.join(folder, os.path.basename(rules.root) or "project")
        missing = code.restore(tree)
        if missing:
            hint = "`safelaunch rerun --current` runs the project as it is now"
            raise Refused(missing_text(missing, code.record.files), hint=hint)
        report(f"runs the code that {run.id} was launched with, sent again")
        again.push_all(Rules(tree, everything=True))
    return again.prepared(launched)


class _CodeSync:
    """The folders of a run's code on its hosts, and the start that will have it."""

    def __init__(self, prepared: PreparedStart, run: Run, options: RerunSync) -> None:
        self._prepared = prepared
        self._options = options
        self._before: list[str] = []  # folders that had the code
        self._owners: list[str] = []  # ids of the checkouts that the project's folders are of
        self._places: list[str] = []  # folders of the project
        self._code: dict[int, CodeFolder] = {}  # by node
        for node in options.nodes[: len(prepared.machines)]:
            node_dir = store.node_dir(run, node)
            target = (CodeRecord.read(node_dir) or CodeRecord()).target
            if not target:
                raise RunError(f"where node {node} of {run.id} has its code is not recorded")
            self._before.append(target)
            record = RunRecord.read(node_dir) or RunRecord()
            self._places.append(record.place or target)
            self._owners.append(record.checkout or "")

    def push_all(self, rules: Rules) -> Summary:
        """Send a tree to all hosts, once to those that share a file system; return one summary."""
        machines, places = self._prepared.machines, self._places
        cache = os.path.join(self._prepared.caller.home, "cache")
        report = self._options.report

        def push(group: Sequence[int]) -> Summary:
            first, *others = group
            shared = [(machines[rank].agent, places[rank]) for rank in others]
            run_sync = RunSync(self._prepared.run_id, self._owners[first], shared)
            pending = start_push(
                machines[first].agent,
                rules.root,
                places[first],
                rules,
                force=self._options.force,
                cache=cache,
                run_sync=run_sync,
            )
            return pending.finish(confirm=self._options.confirm, report=report, limit=LIMIT)

        by_group = groups(machines, places)
        summaries = together(push, by_group)
        for group, summary in zip(by_group, summaries, strict=True):
            for line in summary.lines(", ".join(machines[rank].name for rank in group)):
                report(line)
            for rank in group:
                code = sent_folder(places[rank], summary, len(group))
                self._code[rank] = code._replace(owner=self._owners[rank])
        return summaries[0]

    def prepared(self, launched: LaunchFiles) -> PreparedStart:
        """Return the start, with its plan in the folders that have the code now."""
        code = [self._code[rank] for rank in range(len(self._places))]
        plan = self._prepared.plan
        if [folder.path for folder in code] != self._before:
            plan = self._in_folders(plan, code)
        for machine, folder in zip(self._prepared.machines, code, strict=True):
            if folder.tree:
                machine.agent.call("trees.finish", tree=folder.tree, outputs=[])
        files = [launched.of_node(folder.path) for folder in code]
        return self._prepared._replace(plan=plan, code=code, launch_files=files)

    def _in_folders(self, plan: Plan, code: Sequence[CodeFolder]) -> Plan:
        homes = [{Slot.HOME: report.home} for report in self._prepared.reports]
        if plan.engine is not None:
            plan = bind(plan, homes[0])  # the nodes share the login node's
        else:
            nodes = [bind(plan, home).nodes[rank] for rank, home in enumerate(homes)]
            services = (replace(s, plan=bind(s.plan, homes[s.node])) for s in plan.services)
            plan = replace(plan, nodes=tuple(nodes), services=tuple(services))
        for before, folder in dict(zip(self._before, code, strict=True)).items():
            plan = move_paths(plan, before, folder.path)
        return plan


def _is_unchanged(code: RunCode, rules: Rules, home: str) -> bool:
    """Whether a sync of the project would send what was sent at the launch."""
    if not os.path.isdir(rules.root):
        return False
    cache = HashCache(os.path.join(home, "cache"), rules.root)
    try:
        tree = scan(rules)
        cache.fill_hashes(tree.files)
        for item in tree.files:
            if not item.hash:
                hash_item(item, lambda _: None)
    except OSError:
        return False  # a file was removed meanwhile
    cache.save(tree.files)
    text = manifest.to_bytes(code_files(tree.items.values()))
    return manifest.digest(text) == code.record.manifest


def _patch(run: Run) -> bytes:
    try:
        with open(os.path.join(run.node_dir, CodeRecord.PATCH), "rb") as file:
            return file.read()
    except OSError:
        return b""
