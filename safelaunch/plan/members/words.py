"""The words of a plan: a function applied to all of them, and those that are known only late."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.model import LateValue, Template, bind_word, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.model import DirectStart, EnvVar, NodePlan, Part, Plan, Word


def map_words(node: NodePlan, function: Callable[[Word], Word]) -> NodePlan:
    """Return a node with a function applied to each word of its commands, variables and files."""

    def map_all(words: tuple[Word, ...] | None) -> tuple[Word, ...] | None:
        return None if words is None else tuple(map(function, words))

    return replace(
        node,
        argv=tuple(map(function, node.argv)),
        env={name: _map_variable(var, function) for name, var in node.env.items()},
        files=tuple((name, function(body)) for name, body in node.files),
        ranks=None if node.ranks is None else _map_ranks(node.ranks, function),
        direct=tuple(map(function, node.direct)),
        resume_argv=map_all(node.resume_argv),
        fresh_argv=map_all(node.fresh_argv),
        evidence={
            group: tuple(_map_variable(var, function) for var in rows)
            for group, rows in node.evidence.items()
        },
    )


def _map_ranks(ranks: DirectStart, function: Callable[[Word], Word]) -> DirectStart:
    return replace(
        ranks,
        starter=function(ranks.starter),
        python=tuple(map(function, ranks.python)),
        program=tuple(map(function, ranks.program)),
        count=function(ranks.count),
        variables=tuple(replace(var, value=function(var.value)) for var in ranks.variables),
    )


def _map_variable(var: EnvVar, function: Callable[[Word], Word]) -> EnvVar:
    beats = tuple(_map_variable(beaten, function) for beaten in var.beats)
    return replace(var, value=None if var.value is None else function(var.value), beats=beats)


def with_late_values(plan: Plan, *kinds: str) -> Plan:
    """Return a plan with a late value for each word such as `{steps.train.log}`, of these kinds.

    A `$` before it is OmegaConf's: that word stays.
    """
    pattern = re.compile(r"(?<!\$)\{((?:" + "|".join(kinds) + r")\.[^{}]*)\}")

    def late(word: Word) -> Word:
        parts: list[Part] = []
        for part in word.parts if isinstance(word, Template) else (word,):
            if not isinstance(part, str):
                parts.append(part)
                continue
            # text and names take turns
            for number, piece in enumerate(pattern.split(part)):
                parts.append(LateValue(piece) if number % 2 else piece)
        return bind_word(text(*parts), {})

    return replace(plan, nodes=tuple(map_words(node, late) for node in plan.nodes))


def with_step_outputs(plan: Plan) -> Plan:
    """Return the plan of a step and its services with a late value for each earlier output."""
    services = (replace(s, plan=with_late_values(s.plan, "steps")) for s in plan.services)
    return replace(with_late_values(plan, "steps"), services=tuple(services))


def late_values(plan: Plan) -> list[LateValue]:
    """Return the late values in the words of a plan, each once."""
    late: dict[LateValue, None] = {}

    def note(word: Word) -> Word:
        if isinstance(word, Template):
            late.update((part, None) for part in word.parts if isinstance(part, LateValue))
        return word

    for node in plan.nodes:
        map_words(node, note)
    return list(late)
