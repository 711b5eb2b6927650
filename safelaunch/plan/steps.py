"""The plan of a step: its job's, with a late value for each output of an earlier step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import STEP_OUTPUT, Dependency, LateValue, Template, bind_word, text
from safelaunch.plan.build import make_plan, map_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.resolve import ResolvedStep
    from safelaunch.model import Part, Plan, Word


def step_plan(step: ResolvedStep, runs: Mapping[str, str]) -> Plan:
    """Return the plan of a step; `runs` are the names or ids of the earlier ones."""
    plan = make_plan(step.resolved)
    nodes = tuple(map_words(node, _with_late_values) for node in plan.nodes)
    after = tuple(Dependency(runs[name]) for name in step.after)
    plan = replace(plan, nodes=nodes, after=after)
    check_dependencies(plan)
    return plan


def check_dependencies(plan: Plan) -> None:
    """Refuse a plan that waits for runs where nothing can wait for them. Raises ConfigError."""
    if not plan.after:
        return
    where = plan.job_file or None
    hint = "start it once they have ended: safelaunch wait RUN && safelaunch run ..."
    name = plan.engine.engine_name if plan.engine else ""
    if name not in ("", "slurm"):
        what = f"{name} starts a job at once: it cannot wait for other runs"
        raise ConfigError(what, where=where, hint=hint)
    if any(node.container is not None for node in plan.nodes):
        what = "a job in a container cannot wait for runs: its supervisor sees no others there"
        raise ConfigError(what, where=where, hint=hint)


def late_values(plan: Plan) -> list[LateValue]:
    """Return the outputs of earlier steps in the words of a plan, each once."""
    late: dict[LateValue, None] = {}

    def note(word: Word) -> Word:
        if isinstance(word, Template):
            late.update((part, None) for part in word.parts if isinstance(part, LateValue))
        return word

    for node in plan.nodes:
        map_words(node, note)
    return list(late)


def _with_late_values(word: Word) -> Word:
    parts: list[Part] = []
    for part in word.parts if isinstance(word, Template) else (word,):
        if not isinstance(part, str):
            parts.append(part)
            continue
        # text and names take turns
        for number, piece in enumerate(STEP_OUTPUT.split(part)):
            parts.append(LateValue(f"steps.{piece}") if number % 2 else piece)
    return bind_word(text(*parts), {})
