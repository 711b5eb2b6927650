"""Decides at a start whether ranks are started without their launcher: by the versions found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, StartError
from safelaunch.plan.gates import describe, holds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import DirectStart, Gate, NodePlan, Plan

_NEWEST = "9999"  # a version above all conditions: a dry-run shows what the newest packages get
BY_LAUNCHER = "started by the launcher, not directly"
OLD_RTX40 = "old_rtx40"  # what the probe before a start prints of such a machine


def packages(node: NodePlan) -> tuple[str, ...]:
    """Return the packages whose versions decide; none for a node that its launcher starts."""
    gates = () if node.ranks is None else node.ranks.tested
    return tuple(dict.fromkeys(gate.key for gate in gates))


def decide(plan: Plan, versions: Sequence[Mapping[str, str]]) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan whose nodes are all started directly, or all by the launcher, and why.

    `versions` are those of the packages on each node's machine. Ranks that were started in
    different ways would not meet: for nodes that are started by hand, elsewhere, there is no way
    out, and StartError is raised.
    """
    if not any(node.ranks for node in plan.nodes):
        return plan, ()
    why = ""
    for node, installed in zip(plan.nodes, versions, strict=True):
        problem = "" if node.ranks is None else _problem(node.ranks, installed)
        where = f"{node.host}: " if len(plan.nodes) > 1 else ""
        why = why or (where + problem if problem else "")
    if why and plan.manual_node is not None:
        raise StartError(
            f"`start: direct`: {why}",
            hint="leave it out on all nodes: ranks that are started in two ways do not meet",
        )
    if why:
        return replace(plan, nodes=tuple(map(_by_launcher, plan.nodes))), (f"{BY_LAUNCHER}: {why}",)
    pairs = zip(plan.nodes, versions, strict=True)
    return replace(plan, nodes=tuple(_with_variables(node, own) for node, own in pairs)), ()


def alike(nodes: Sequence[NodePlan]) -> tuple[list[NodePlan], list[str]]:
    """Return nodes that are all started directly, or all by the launcher, and a note on why."""
    others = [node.host for node in nodes if node.ranks is None]
    if not others or len(others) == len(nodes):
        return [*nodes], []
    return [*map(_by_launcher, nodes)], [f"{BY_LAUNCHER}: as on {', '.join(others)}"]


def _by_launcher(node: NodePlan) -> NodePlan:
    return replace(node, ranks=None)


def _problem(ranks: DirectStart, versions: Mapping[str, str]) -> str:
    for gate in ranks.tested:
        version = versions.get(gate.key)
        if version is None:
            return f"no {gate.key} was found in the job's interpreter"
        if not _holds(version, gate):
            return f"{gate.key} {version} was not tried ({describe(gate.condition)} was)"
    for var in ranks.variables:
        if var.gate is not None and len(_readings(versions[var.gate.key], var.gate)) > 1:
            return f"{var.gate.key} {versions[var.gate.key]} is no release"
    if ranks.refuses_old_rtx40 and versions.get(OLD_RTX40) == "yes":
        return "accelerate sets NCCL_P2P_DISABLE for RTX 40 cards with a driver below 550.40.07"
    return ""


def _holds(version: str, gate: Gate) -> bool:
    return _readings(version, gate) == {True}


def _readings(version: str, gate: Gate) -> set[bool]:
    """Return whether a version meets a gate; both, for one on the way to a release that does.

    2.14.0.dev20260101 comes before 2.14, and may have all of it already.
    """
    release = re.match(r"[0-9]+(\.[0-9]+)*", version)
    try:
        return {
            holds(text, gate.condition, gate.origin)
            for text in {version, release[0] if release else version}
        }
    except ConfigError:  # of a build that has no version
        return {False}


def _with_variables(node: NodePlan, versions: Mapping[str, str]) -> NodePlan:
    """Return a node with the variables that these versions of its packages set."""
    if node.ranks is None:
        return node
    variables = tuple(
        replace(var, gate=None)
        for var in node.ranks.variables
        if var.gate is None or _holds(versions.get(var.gate.key, _NEWEST), var.gate)
    )
    return replace(node, ranks=replace(node.ranks, variables=variables))


def newest(node: NodePlan) -> NodePlan:
    """Return a node with the variables that the newest versions of its packages set."""
    return _with_variables(node, {})
