"""What differs between the plans of two runs: command, topology, variables, settings."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from safelaunch.errors import SafelaunchError
from safelaunch.report.diff.model import Change, between, items, mapping
from safelaunch.report.redact import secret_patterns
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.report.diff.model import Side
    from safelaunch.report.redact.redactor import Redactor

# what differs always: where a plan had such a slot, the slot is compared
_ALWAYS = ("<port>", "<run-id>", "<run-dir>")
_SETTINGS = ("capture", "log_cap", "max_duration", "success", "hang", "recovery", "smoke", "logs")


def plans(side: Side) -> list[dict[str, Any]]:
    """Return the nodes of a plan as JSON, with slots where the value differs always."""
    for node in side.nodes:
        bound = [mapping(one) for one in items(node.plan.get("nodes"))]
        if bound:
            printed = _printed(node.plan)
            if len(printed) != len(bound):
                return bound
            return [_with_slots(b, p) for b, p in zip(bound, printed, strict=True)]
    return []


def _printed(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes of a plan before its slots were filled; nothing where that is not known."""
    from safelaunch.model import Plan  # noqa: PLC0415 - only where plans are compared
    from safelaunch.plan.serialize import plan_json, thaw  # noqa: PLC0415 - as above

    try:
        unbound = thaw(plan.get("unbound"))
        return plan_json(unbound)["nodes"] if isinstance(unbound, Plan) else []
    except (SafelaunchError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return []


def _with_slots(bound: Any, printed: Any) -> Any:
    if isinstance(bound, dict) and isinstance(printed, dict):
        return {key: _with_slots(value, printed.get(key)) for key, value in bound.items()}
    if isinstance(bound, list) and isinstance(printed, list) and len(bound) == len(printed):
        return [_with_slots(b, p) for b, p in zip(bound, printed, strict=True)]
    if isinstance(printed, str) and any(slot in printed for slot in _ALWAYS):
        return printed
    return bound


def command(was: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[Change]:
    """Return what differs in words, directory, setup, files, and in the script beyond all that."""
    found: list[Change] = []
    for number, (a, b) in enumerate(zip(was, now, strict=False)):
        head = f"node {number}: " if len(was) > 1 or len(now) > 1 else ""
        changes = [
            *_words(items(a.get("argv")), items(b.get("argv")), head + "command"),
            *between({"directory": a.get("cwd")}, {"directory": b.get("cwd")}, head),
            *_words(items(a.get("setup")), items(b.get("setup")), head + "setup"),
            *_files(mapping(a.get("files")), mapping(b.get("files")), head),
        ]
        # what the script says beyond all that: nothing, unless safelaunch itself changed
        same = a.get("env") == b.get("env") and not changes
        if same and a.get("script") != b.get("script"):
            changes += _lines(str(a.get("script")), str(b.get("script")), head + "launch.sh")
        found += [change for change in changes if change._replace(what="") not in
                  [one._replace(what="") for one in found]]  # fmt: skip
    return found


def _words(was: list[Any], now: list[Any], what: str) -> list[Change]:
    """Return the words that differ, each with the option before it."""
    a, b = [str(word) for word in was], [str(word) for word in now]
    found = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        words = [*a[i:j], *b[k:m]]
        is_value = i > 0 and a[i - 1].startswith("-") and not all(w.startswith("-") for w in words)
        head = [a[i - 1]] if is_value and k > 0 and a[i - 1] == b[k - 1] else []
        sides = [" ".join([*head, *part]) if part else None for part in (a[i:j], b[k:m])]
        found.append(Change(what, *sides))
    return found


def _files(was: dict[str, Any], now: dict[str, Any], head: str) -> list[Change]:
    found: list[Change] = []
    for name in dict.fromkeys([*was, *now]):
        found += _lines(str(was.get(name, "")), str(now.get(name, "")), head + name)
    return found


def _lines(was: str, now: str, what: str) -> list[Change]:
    """Return the lines that differ, those in one place together."""
    a, b = was.splitlines(), now.splitlines()
    return [
        Change(what, "\n".join(a[i:j]) or None, "\n".join(b[k:m]) or None)
        for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


def topology(
    one: Side, other: Side, plans: tuple[list[dict[str, Any]], list[dict[str, Any]]]
) -> list[Change]:
    """Return what differs in launcher, profile, nodes, processes and cards."""

    def of(side: Side, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        plan = next((n.plan for n in side.nodes if n.plan), {})
        runs = [node.run for node in side.nodes if node.run]
        return {
            "launcher": plan.get("launcher"),
            "profile": plan.get("profile"),
            "nodes": len(nodes),
            "world size": next((run.world_size for run in runs), None),
            "GPUs": next((run.gpus for run in runs), None),
        }

    return between(of(one, plans[0]), of(other, plans[1]))


def variables(
    plans: tuple[list[dict[str, Any]], list[dict[str, Any]]], hide: Redactor
) -> list[Change]:
    """Return what differs in the variables, other values before other origins."""
    found: list[Change] = []
    for number, (a, b) in enumerate(zip(*plans, strict=False)):
        head = f"node {number}: " if max(map(len, plans)) > 1 else ""
        was, now = (_variables_of(node, hide) for node in (a, b))
        # other values before other origins
        changes = between(was, now)
        changes.sort(key=lambda change: _value(change.was) == _value(change.now))
        for change in changes:
            if change not in found:
                found.append(change._replace(what=head + change.what))
    return found


def _variables_of(node: dict[str, Any], hide: Redactor) -> dict[str, str]:
    found = {}
    for name, told in mapping(node.get("env")).items():
        known = mapping(told)
        value = known.get("value")
        shown = f"<{known.get('computed')}>" if value is None else str(value)
        if value not in (None, "***") and secret_patterns.is_secret(name):
            shown = hide.name("secret", str(value))
        found[name] = f"{shown} ({known.get('origin')})"
    for name in items(node.get("unset")):
        found.setdefault(str(name), "removed")
    return found


def _value(text: str | None) -> str | None:
    return None if text is None else text.rpartition(" (")[0]


def settings(
    one: Side, other: Side, plans: tuple[list[dict[str, Any]], list[dict[str, Any]]]
) -> list[Change]:
    """Return what differs in how the run is watched, and what it was started from."""

    def of(side: Side) -> dict[str, Any]:
        plan = next((n.plan for n in side.nodes if n.plan), {})
        supervision = mapping(plan.get("supervision"))
        run = next((n.run for n in side.nodes if n.run), RunRecord())
        return {
            **{key: supervision.get(key) for key in _SETTINGS},
            "job file": run.job_file,
            "safelaunch": run.safelaunch,
            "backend": run.backend,
        }

    changes = between(of(one), of(other))
    for number, (a, b) in enumerate(zip(*plans, strict=False)):
        head = f"node {number}: " if max(map(len, plans)) > 1 else ""
        changes += between({"inherit": a.get("inherit")}, {"inherit": b.get("inherit")}, head)
    return changes
