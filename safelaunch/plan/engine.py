"""The launch script that serves all nodes of a job, where an engine starts it by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import engines
from safelaunch.errors import ConfigError
from safelaunch.model import LateValue, Slot, Template
from safelaunch.plan.build import bind
from safelaunch.script import launch_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import NodePlan, Plan


def script_for_all(plan: Plan) -> str:
    """Return the script, which works out by itself what a start would fill in.

    Raises ConfigError where the job needs what only a start by safelaunch knows.
    """
    engine = engines.of_plan(plan)
    if engine is None:
        raise ValueError("the plan is for no engine")
    (node,) = bind(plan, engine.late_values(plan)).nodes
    for slot in _slots(node):
        name = "{checkpoint}" if slot is Slot.CHECKPOINT else str(slot)
        raise ConfigError(
            f"`{name}` is filled in where safelaunch starts the job; {engine.TITLE} does not",
            where=plan.job_file or None,
            hint="leave `--resume` out, and write the path into `args`"
            if slot is Slot.CHECKPOINT
            else None,
        )
    nodes = plan.topology.nodes
    title = f"{plan.name}: {plan.launcher}" + (f", each of {nodes} nodes" if nodes > 1 else "")
    lines = engine.first_lines(plan, node, launch_script(node, title))
    return launch_script(node, title, lines)


def _slots(node: NodePlan) -> Iterator[Slot | LateValue]:
    """Yield the slots that are left in what a script has of a node."""
    words = [node.cwd, node.interpreter.word, *node.argv, *node.direct]
    words += [var.value for var in node.env.values() if var.value is not None]
    words += [body for _, body in node.files]
    for word in words:
        if isinstance(word, Template):
            yield from (part for part in word.parts if isinstance(part, (Slot, LateValue)))
