"""Gives each part of a job some of the job's cards, of which the plan names all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.runtime.start.accelerators import DEVICE_VARIABLES

if TYPE_CHECKING:
    from safelaunch.model import NodePlan, Plan

CARDS = "{shard.cards}"  # filled in by the coordinator of the parts


def with_cards(plan: Plan) -> Plan:
    """Return the plan of a part, with the job's cards in `fan_out`. Raises ConfigError."""
    fan_out = plan.fan_out
    name = next((name for name in plan.nodes[0].env if name in DEVICE_VARIABLES), None)
    var = None if name is None else plan.nodes[0].env[name]
    if fan_out is None or name is None or var is None or not isinstance(var.value, str):
        return plan
    cards = tuple(filter(None, var.value.split(",")))
    if not cards:
        return plan
    processes, size = plan.topology.processes, fan_out.cards_each
    if processes is None or processes > size:
        cards_of_part = "one card" if size == 1 else f"{size} cards"
        raise ConfigError(
            f"parts of {processes or 'several'} processes each, with {cards_of_part}",
            where=var.origin,
            hint="`processes: N`: so many of the cards of `gpus` each part has; or `part_gpus: N`",
        )
    if size > len(cards):
        what = f"{size} cards for each part, of {len(cards)}"
        raise ConfigError(what, where=var.origin, hint="name more in `gpus`")

    def with_own(node: NodePlan) -> NodePlan:
        own = node.env.get(name)
        return (
            node
            if own is None
            else replace(node, env={**node.env, name: replace(own, value=CARDS)})
        )

    nodes = tuple(map(with_own, plan.nodes))
    return replace(plan, nodes=nodes, fan_out=replace(fan_out, cards=cards))
