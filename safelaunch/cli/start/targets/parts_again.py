"""Divides the parts that several hosts share again among them, for `rerun`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.cli.output import say
from safelaunch.errors import ConfigError, Refused, RunError, did_you_mean
from safelaunch.model import FanOut, PartShare
from safelaunch.runs import store
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Plan
    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.records import NodePlace, NodeSummary


def parts_again(
    plan: Plan, run: RunAccess, without: Sequence[str]
) -> tuple[Plan, Sequence[NodePlace]]:
    """Return the plan of a rerun, in which hosts keep their parts that are done, and its places.

    Hosts that are left out have none: what they had done runs again, as its outputs are there.
    Raises Refused where parts may still run.
    """
    status = run.status()
    names = [place.host for place in run.places()]
    for name in without:
        if name not in names:
            hint = did_you_mean(name, names) or f"its hosts: {', '.join(names)}"
            raise ConfigError(f"{run.id} is not on `{name}`", where="--without", hint=hint)
    places = [place for place in run.places() if place.host not in without]
    if not places:
        raise ConfigError("no host is left", where="--without")
    states = {node.node: node for node in status.nodes}
    for place in places:
        _check_end(run, place, states.get(place.node))
    counts = store.part_counts(run.record)
    if counts is None:
        raise RunError(f"how many parts {run.id} has is not known")
    ends = store.part_ends(run.record)
    hosts = [place.host for place in places]
    shares: list[list[int]] = [[] for _ in places]
    missing = []
    for part in range(counts[1]):
        end = ends.get(part)
        if end is not None and end.state == "succeeded" and end.host in hosts:
            shares[hosts.index(end.host)].append(part)
        else:
            missing.append(part)
    lost = sum(end.state == "succeeded" and end.host in without for end in ends.values())
    if lost:
        verb = "runs" if lost == 1 else "run"
        say(f"note: {quantity(lost, 'part')} of {', '.join(without)} {verb} again: no outputs")
    for number, part in enumerate(missing):
        shares[number % len(shares)].append(part)
    fan_out = replace(
        plan.fan_out or FanOut(),
        shares=tuple(
            PartShare(tuple(share), place.run_dir)
            for share, place in zip(shares, places, strict=True)
        ),
    )
    nodes = (plan.nodes[place.node] for place in places)
    numbered = tuple(replace(node, node_rank=number) for number, node in enumerate(nodes))
    return replace(plan, nodes=numbered, fan_out=fan_out), places


def _check_end(run: RunAccess, place: NodePlace, node: NodeSummary | None) -> None:
    """Raise Refused where parts of a node may still run: they would run twice."""
    status = store.last_status(run.record, place.node)
    if node is None or node.state == "unknown":
        reason = node.reason if node is not None and node.reason else "it does not answer"
        hint = f"`--without {place.host}` runs its parts on the other hosts, if it is gone for good"
        raise Refused(f"parts may still run on {place.host}: {reason}", hint=hint)
    if not agent_runs.is_over(status):
        raise Refused(
            f"parts still run on {place.host}: {node.state}", hint=f"safelaunch stop {run.id}"
        )
