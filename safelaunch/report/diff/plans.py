"""Compares the plans of two runs: command, topology, variables, settings."""
# ruff: noqa: PLC0415 - the model and the reader of plans are imported only where plans are compared

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypeAlias

from safelaunch.errors import SafelaunchError
from safelaunch.report.diff.model import Change, diff_mappings
from safelaunch.report.redact import secret_patterns
from safelaunch.runtime.records import PlannedNode, PlanRecord, RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.report.diff.model import RunSnapshot
    from safelaunch.report.redact.redactor import Redactor

# slots of values that always differ: the slot itself is compared
_VARYING_SLOTS = ("<port>", "<run-id>", "<run-dir>")
_SETTINGS = (
    *("capture", "log_cap", "max_duration", "success", "hang", "recovery", "smoke", "logs"),
    *("ending", "max_cost", "preemption"),
)


PlanNodes: TypeAlias = "list[PlannedNode]"
BothNodes: TypeAlias = "tuple[PlanNodes, PlanNodes]"


def plan_nodes(snapshot: RunSnapshot) -> PlanNodes:
    """Return the nodes of a plan, with slots for values that always differ."""
    for plan in (node.plan for node in snapshot.nodes):
        if plan is not None and plan.nodes:
            bound, unbound = [node.to_json() for node in plan.nodes], _unbound_nodes(plan)
            if len(unbound) != len(bound):
                return list(plan.nodes)
            pairs = zip(bound, unbound, strict=True)
            return [PlannedNode.from_json(_with_slots(b, p)) for b, p in pairs]
    return []


def _unbound_nodes(plan: PlanRecord) -> list[dict[str, Any]]:
    """Return the nodes of a plan before its slots were filled; empty if unknown."""
    from safelaunch.model import Plan
    from safelaunch.plan.serialize import plan_json, thaw

    try:
        unbound_plan = thaw(plan.unbound)
        return plan_json(unbound_plan)["nodes"] if isinstance(unbound_plan, Plan) else []
    except (SafelaunchError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return []


def _with_slots(bound: Any, unbound: Any) -> Any:
    if isinstance(bound, dict) and isinstance(unbound, dict):
        return {key: _with_slots(value, unbound.get(key)) for key, value in bound.items()}
    if isinstance(bound, list) and isinstance(unbound, list) and len(bound) == len(unbound):
        return [_with_slots(b, p) for b, p in zip(bound, unbound, strict=True)]
    if isinstance(unbound, str) and any(slot in unbound for slot in _VARYING_SLOTS):
        return unbound
    return bound


def command(was: PlanNodes, now: PlanNodes) -> list[Change]:
    """Return differences in arguments, directory, setup, files, and the rest of the script."""
    changes: list[Change] = []
    for number, (a, b) in enumerate(zip(was, now, strict=False)):
        head = f"node {number}: " if len(was) > 1 or len(now) > 1 else ""
        node_changes = [
            *_word_changes(a.argv, b.argv, head + "command"),
            *diff_mappings({"directory": a.cwd}, {"directory": b.cwd}, head),
            *_word_changes(a.setup, b.setup, head + "setup"),
        ]
        for name in dict.fromkeys([*a.files, *b.files]):
            texts = a.files.get(name, ""), b.files.get(name, "")
            node_changes += _line_changes(*texts, head + name)
        # the rest of the script differs only if safelaunch itself changed
        if a.env == b.env and not node_changes:
            scripts = _without_title(a.script), _without_title(b.script)
            node_changes += _line_changes(*scripts, head + "launch.sh")
        changes += [change for change in node_changes if change._replace(what="") not in
                  [before._replace(what="") for before in changes]]  # fmt: skip
    return changes


def _without_title(script: str) -> str:
    """Return launch.sh without its second line, which names the run for people."""
    first, _, rest = script.partition("\n")
    title, _, body = rest.partition("\n")
    return f"{first}\n{body}" if title.startswith("# ") else script


def _word_changes(a: Sequence[str], b: Sequence[str], what: str) -> list[Change]:
    """Return the arguments that differ, each with the option before it."""
    changes = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        words = [*a[i:j], *b[k:m]]
        is_value = i > 0 and a[i - 1].startswith("-") and not all(w.startswith("-") for w in words)
        head = [a[i - 1]] if is_value and k > 0 and a[i - 1] == b[k - 1] else []
        sides = [" ".join([*head, *part]) if part else None for part in (a[i:j], b[k:m])]
        changes.append(Change(what, *sides))
    return changes


def _line_changes(was: str, now: str, what: str) -> list[Change]:
    """Return the lines that differ, adjacent ones together."""
    a, b = was.splitlines(), now.splitlines()
    return [
        Change(what, "\n".join(a[i:j]) or None, "\n".join(b[k:m]) or None)
        for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def topology(before: RunSnapshot, after: RunSnapshot, plan_nodes: BothNodes) -> list[Change]:
    """Return what differs in launcher, profile, nodes, processes and GPUs."""

    def values(snapshot: RunSnapshot, nodes: PlanNodes) -> dict[str, Any]:
        plan = next((n.plan for n in snapshot.nodes if n.plan), PlanRecord())
        runs = [node.run for node in snapshot.nodes if node.run]
        return {
            "launcher": plan.launcher,
            "profile": plan.profile,
            "nodes": len(nodes),
            "world size": next((run.world_size for run in runs), None),
            "GPUs": next((run.gpus for run in runs), None),
        }

    return diff_mappings(values(before, plan_nodes[0]), values(after, plan_nodes[1]))


def variables(plan_nodes: BothNodes, redactor: Redactor) -> list[Change]:
    """Return what differs in the variables, other values before other origins."""
    changes: list[Change] = []
    for number, (a, b) in enumerate(zip(*plan_nodes, strict=False)):
        head = f"node {number}: " if max(map(len, plan_nodes)) > 1 else ""
        was, now = (_variables_of(node, redactor) for node in (a, b))
        # other values before other origins
        node_changes = diff_mappings(was, now)
        node_changes.sort(key=lambda change: _value_part(change.was) == _value_part(change.now))
        for change in node_changes:
            if change not in changes:
                changes.append(change._replace(what=head + change.what))
    return changes


def _variables_of(node: PlannedNode, redactor: Redactor) -> dict[str, str]:
    shown_values = {}
    for name, variable in node.env.items():
        shown = f"<{variable.computed}>" if variable.value is None else variable.value
        if variable.value not in (None, "***") and secret_patterns.is_secret(name):
            shown = redactor.placeholder("secret", shown)
        shown_values[name] = f"{shown} ({variable.origin})"
    for name in node.unset:
        shown_values.setdefault(name, "removed")
    return shown_values


def _value_part(text: str | None) -> str | None:
    return None if text is None else text.rpartition(" (")[0]


def settings(before: RunSnapshot, after: RunSnapshot, plan_nodes: BothNodes) -> list[Change]:
    """Return differences in supervision, job file, version and backend."""

    def values(snapshot: RunSnapshot) -> dict[str, Any]:
        plan = next((n.plan for n in snapshot.nodes if n.plan), PlanRecord())
        run = next((n.run for n in snapshot.nodes if n.run), RunRecord())
        return {
            **{key: plan.supervision.get(key) for key in _SETTINGS},
            "job file": run.job_file,
            "safelaunch": run.safelaunch,
            "backend": run.backend,
        }

    changes = diff_mappings(values(before), values(after))
    for number, (a, b) in enumerate(zip(*plan_nodes, strict=False)):
        head = f"node {number}: " if max(map(len, plan_nodes)) > 1 else ""
        changes += diff_mappings({"inherit": a.inherit}, {"inherit": b.inherit}, head)
    return changes
