"""Syncs the code of an earlier run to its hosts again, or the project as it is now."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from safelaunch.errors import Refused, RunError
from safelaunch.remote.parallel import together
from safelaunch.remote.project_code import LaunchFiles, ProjectCode, code_files
from safelaunch.remote.shared_filesystem import groups
from safelaunch.runs import store
from safelaunch.runtime.code import manifest
from safelaunch.runtime.records import CodeRecord
from safelaunch.start.code_tree import missing_text, run_code
from safelaunch.sync.file_hashes import HashCache, hash_item
from safelaunch.sync.ignore import Rules
from safelaunch.sync.project_tree import scan
from safelaunch.sync.push import start_push

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.remote.host_pool import Machine
    from safelaunch.runs.store import Run
    from safelaunch.start.code_tree import RunCode
    from safelaunch.sync.push import Summary


def sync_again(
    run: Run,
    machines: Sequence[Machine],
    home: str,
    report: Callable[[str], None],
    *,
    is_current: bool,
    **options: Any,
) -> list[dict[str, bytes]]:
    """Give the hosts of a run its code, or that of today; return the record of it for each node.

    `home` is safelaunch's folder; `options` are those of the sync. Where the code was not recorded
    the project is used as it lies there. Raises ConfigError, Refused, RunError, HostError.
    """
    try:
        code = run_code(run, home)
    except RunError as e:
        report(f"uses the project as it lies on the host: {e.message}")
        return [{} for _ in machines]
    records = [CodeRecord.read(store.node_dir(run, node)) for node in range(len(machines))]
    targets = [record.target or "" if record else "" for record in records]
    if not all(targets):
        raise RunError(f"where {run.id} has its code is not recorded for all hosts")
    record = code.record
    rules = Rules(record.root, record.include, record.exclude)

    def push_all(rules: Rules) -> Sequence[Summary]:
        cache = os.path.join(home, "cache")

        def push(group: Sequence[int]) -> Summary:
            agent, target = machines[group[0]].agent, targets[group[0]]
            pending = start_push(
                agent, rules.root, target, rules, force=options["force"], cache=cache
            )
            return pending.finish(confirm=options.get("confirm"), report=report)

        summaries = []
        pairs = groups(machines, targets)
        for group, summary in zip(pairs, together(push, pairs), strict=True):
            names = ", ".join(machines[rank].name for rank in group)
            for line in summary.lines(names, removes=False):
                report(line)
            summaries.append(summary)
        return summaries

    if is_current:
        project = ProjectCode(record.root, record.include, record.exclude)
        report("runs the project as it is now")
        summary, *_ = push_all(rules)
        return [project.record(summary.entries, home).of_node(target) for target in targets]
    launched = LaunchFiles(record, _patch(run))
    if _is_unchanged(code, rules, home):
        report(f"runs the code that {run.id} was launched with, unchanged")
        push_all(rules)
    else:
        with tempfile.TemporaryDirectory(prefix="safelaunch-") as folder:
            tree = os.path.join(folder, os.path.basename(record.root) or "project")
            missing = code.restore(tree)
            if missing:
                hint = "`safelaunch rerun --current` runs the project as it is now"
                raise Refused(missing_text(missing, record.files), hint=hint)
            report(f"runs the code that {run.id} was launched with, on the host again")
            push_all(Rules(tree, everything=True))
    return [launched.of_node(target) for target in targets]


def _is_unchanged(code: RunCode, rules: Rules, home: str) -> bool:
    """Whether a sync of the project would send what was sent at the launch."""
    if not os.path.isdir(rules.root):
        return False
    tree = scan(rules)
    cache = HashCache(os.path.join(home, "cache"), rules.root)
    cache.fill_hashes(tree.files)
    try:
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
