"""Writes README.md of a bundle: what maintainers ask for, in reading order."""

from __future__ import annotations

import itertools
import shlex
import time
from typing import TYPE_CHECKING, Any

from safelaunch.report.diff import compare
from safelaunch.runtime.packages import TRAINING
from safelaunch.runtime.records import (
    Checkout,
    CodeRecord,
    PlannedNode,
    PlanRecord,
    Provenance,
    RunRecord,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.report.collect import CollectedNode, CollectedRun
    from safelaunch.report.diff.model import Change, Group, RunSnapshot

_MAX_EVENTS = 12
_MAX_FILES = 20  # changed files
_MAX_CHANGES = 12  # between two runs
_MAX_CELL_CHARS = 160  # characters of a value in a table


def readme_lines(
    collected: CollectedRun, headline: str, block: Sequence[str], events: Sequence[str]
) -> list[str]:
    """Return the lines of README.md; `block` is the failure, `events` the timeline."""
    return [
        f"# {collected.name}: {headline}",
        "",
        *_failure_section(collected, block),
        "## Environment",
        "",
        *_table(collected),
        "",
        *_facts_note(collected),
        "## How to reproduce",
        "",
        *_reproduction(collected),
        "## What happened when",
        "",
        *_timeline(events),
        "## Already tried",
        "",
        *already_tried(collected),
        "",
    ]


def _failure_section(collected: CollectedRun, block: Sequence[str]) -> list[str]:
    if block:
        return ["```text", *block, "```", ""]
    why = collected.status.reason or collected.status.warning
    text = f"The run is `{collected.status.state}`; no failure is recorded."
    return [text + (f" {why}" if why else ""), ""]


# -- the environment -------------------------------------------------------------------------------


def _table(collected: CollectedRun) -> list[str]:
    columns = [_versions(node) for node in collected.nodes]
    rows = list(dict.fromkeys(key for column in columns for key in column))
    heads = [node.host for node in collected.nodes]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for row in rows:
        cells = [_cell(column.get(row)) for column in columns]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _cell(value: object) -> str:
    text = " ".join(str("" if value is None else value).replace("|", "\\|").split())
    return text if len(text) <= _MAX_CELL_CHARS else text[:_MAX_CELL_CHARS] + " ..."


def _versions(node: CollectedNode) -> dict[str, Any]:
    """Return {label: value} of a node: what the run recorded, and facts of its host."""
    record, run = node.record(Provenance) or Provenance(), node.record(RunRecord) or RunRecord()
    plan = node.record(PlanRecord) or PlanRecord()
    packages, git = record.packages or {}, _checkout(node)
    facts = compare.host_summary(node.facts)
    changed = len(git.changed or ()) + git.more_changed
    branch = f" on {git.branch}" if git.branch else ""
    commit = f"{git.commit}{branch}, changed files: {changed}" if git.commit else None
    versions = {
        "commit": commit,
        "tree": (node.record(CodeRecord) or CodeRecord()).manifest,
        "safelaunch": run.safelaunch,
        "launcher": plan.launcher,
        "profile": plan.profile,
        "processes": run.ranks,
        "world size": run.world_size,
        "Python": record.python,
        **{name: packages[name] for name in TRAINING if name in packages},
        **{name: version for name, version in packages.items() if name not in TRAINING},
        **{key: value for key, value in facts.items() if key not in packages},
    }
    return {key: value for key, value in versions.items() if value not in (None, "")}


def _facts_note(collected: CollectedRun) -> list[str]:
    times = [node.facts.get("kept_at") for node in collected.nodes if node.facts]
    timestamps = [timestamp for timestamp in times if isinstance(timestamp, (int, float))]
    if not timestamps:
        unknown = "GPUs, driver, CUDA and NCCL are unknown"
        return [f"{unknown}: `safelaunch facts` was not run for this host.", ""]
    timestamp = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(timestamps)))
    current = f"GPUs, driver and system as of {timestamp}"
    return [f"Packages and commit are those of the run; {current}.", ""]


# -- reproduction ----------------------------------------------------------------------------------


def _checkout(node: CollectedNode) -> Checkout:
    code, record = node.record(CodeRecord) or CodeRecord(), node.record(Provenance) or Provenance()
    return code.git or record.git or Checkout()


def _reproduction(collected: CollectedRun) -> list[str]:
    lines: list[str] = []
    numbers = itertools.count(1)
    git = _checkout(collected.nodes[0]) if collected.nodes else Checkout()
    if git.commit:
        changed = list(git.changed or ())
        dirty = ", with these changes:" if changed else ", nothing changed"
        lines.append(f"{next(numbers)}. check out commit `{git.commit}`{dirty}")
        lines += [f"   - `{name}`" for name in changed[:_MAX_FILES]]
        if len(changed) > _MAX_FILES:
            lines.append(f"   - and {len(changed) - _MAX_FILES} more")
    variables = dict.fromkeys(
        f"`{name}`" for node in collected.nodes for name in _from_caller(node)
    )
    if variables:
        lines.append(f"{next(numbers)}. set {', '.join(variables)} (values not kept)")
    is_multi_node = len(collected.nodes) > 1
    for node in collected.nodes:
        script = f"node-{node.number}/launch.sh" if is_multi_node else "launch.sh"
        where = f"`bash {script}`" + (f" on {node.host}" if is_multi_node else "")
        if node.script:
            lines.append(f"{next(numbers)}. {where}; paths in it are those of that machine")
        command = _plan(node).argv
        if command:
            lines += ["", "   ```sh", f"   {shlex.join(command)}", "   ```", ""]
    if not lines:
        return ["Nothing is recorded of how it was started.", ""]
    lines.append(
        "All variables with their origins: `environment.txt`; the whole plan: `plan.json`."
    )
    return [*lines, ""]


def _plan(node: CollectedNode) -> PlannedNode:
    """Return the plan of a node."""
    nodes = (node.record(PlanRecord) or PlanRecord()).nodes
    only = nodes[0] if len(nodes) == 1 else PlannedNode()
    return next((plan for plan in nodes if plan.node_rank == node.number), only)


def _from_caller(node: CollectedNode) -> list[str]:
    return [name for name, variable in _plan(node).env.items() if variable.origin == "env_from"]


def environment(collected: CollectedRun) -> list[str]:
    """Return the variables of each node, with where each comes from and why."""
    lines: list[str] = []
    for node in collected.nodes:
        plan = _plan(node)
        lines += [f"# node {node.number} ({node.host})"]
        for name, variable in plan.env.items():
            computed = variable.value is None and variable.computed
            shown = f"<{variable.computed}>" if computed else variable.value
            lines += [f"{name}={shown}", f"    from {variable.origin}"]
            reasons = {"why": variable.why, "cost": variable.cost, "source": variable.source}
            lines += [f"    {key}: {text}" for key, text in reasons.items() if text]
        lines += [f"removed: {' '.join(plan.unset)}"] if plan.unset else []
        lines += [f"inherited: {plan.inherit}"] if plan.inherit else []
        lines += [f"setup: {line}" for line in plan.setup]
        lines.append("")
    return lines


def _timeline(events: Sequence[str]) -> list[str]:
    if not events:
        return ["No events are recorded.", ""]
    shown = [events[0], *events[1:][-_MAX_EVENTS:]]
    more = len(events) - len(shown)
    note = [f"({more} earlier ones: `timeline.txt`)", ""] if more else []
    return ["```text", *shown, "```", "", *note]


# -- already tried ---------------------------------------------------------------------------------


def already_tried(collected: CollectedRun) -> list[str]:
    """Return how earlier runs of the job ended, and what differed from the one before each."""
    if not collected.earlier_runs:
        return ["No earlier run of this job is recorded."]
    lines: list[str] = []
    before: RunSnapshot | None = None
    for snapshot in (*collected.earlier_runs, collected.snapshot):
        note = " (this run)" if snapshot.id == collected.id else ""
        lines.append(f"- {snapshot.id}{note}: {_outcome_text(snapshot)}")
        if before is not None:
            changes = _change_lines(compare.compare(before, snapshot))
            lines += [f"  - {line}" for line in changes]
        before = snapshot
    return lines


def _outcome_text(snapshot: RunSnapshot) -> str:
    values = compare.outcome(snapshot)
    state = str(values.pop("state", "not known"))
    failure = values.pop("failure", None)
    text = ", ".join([state, *(f"{key} {value}" for key, value in values.items())])
    return text + (f": {' '.join(str(failure).split())}" if failure else "")


def _change_lines(groups: Sequence[Group]) -> list[str]:
    others = [group for group in groups if group.name != "outcome"]
    changes = [(group.name, change) for group in others for change in group.changes]
    if not changes:
        return ["nothing else differed from the run before, as far as it is recorded"]
    lines = [f"{_change(change)} ({name})" for name, change in changes[:_MAX_CHANGES]]
    more = len(changes) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def _change(change: Change) -> str:
    def cell(value: str | None) -> str:
        return "nothing" if value is None else f"`{_cell(value)}`"

    return f"{change.what}: {cell(change.was)} -> {cell(change.now)}"


def section(heading: str, items: Sequence[str]) -> list[str]:
    """Return a section that is a list."""
    return [heading, "", *(f"- {item}" for item in items), ""]
