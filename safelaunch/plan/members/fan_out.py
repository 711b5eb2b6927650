"""Gives each part of a job one of the job's cards, of which the plan names all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.runtime.start.accelerators import DEVICE_VARIABLES

if TYPE_CHECKING:
    from safelaunch.model import Plan

CARDS = "{shard.cards}"  # filled in by the coordinator of the parts


def with_cards(plan: Plan) -> Plan:
    """Return the plan of a part, with the job's cards in `fan_out`. Raises ConfigError."""
    node, fan_out = plan.nodes[0], plan.fan_out
    name = next((name for name in node.env if name in DEVICE_VARIABLES), None)
    var = None if name is None else node.env[name]
    if fan_out is None or name is None or var is None or not isinstance(var.value, str):
        return plan
    cards = tuple(filter(None, var.value.split(",")))
    if not cards:
        return plan
    if plan.topology.processes != 1:
        raise ConfigError(
            f"parts of {plan.topology.processes or 'several'} processes each",
            where=var.origin,
            hint="`processes: 1`: each part has one of the cards of `gpus`",
        )
    env = {**node.env, name: replace(var, value=CARDS)}
    fan_out = replace(fan_out, cards=cards)
    return replace(plan, nodes=(replace(node, env=env), *plan.nodes[1:]), fan_out=fan_out)
