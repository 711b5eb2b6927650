"""The scripts of later attempts: launch.sh with `resume_args`, and with more rungs of the ladder.

They are written at the start, when the plan is there; only the port must be a fresh one for each
attempt, so the scripts have a token in its place, which the supervisor replaces.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.model import Slot
from safelaunch.plan.build import bind
from safelaunch.plan.serialize import script_of
from safelaunch.runtime.records import RestartScripts

if TYPE_CHECKING:
    from safelaunch.model import Facts, Plan


def spec(plan: Plan, run_id: str) -> RestartScripts | None:
    """Return the supervisor's record of the scripts; None where nothing is restarted."""
    if plan.supervision.recovery is None:
        return None
    rungs = plan.nodes[0].rungs
    return RestartScripts(
        token=token(plan, run_id),
        scripts=[f"again.{at}.sh" for at in range(len(rungs) + 1)],
        rungs=[" ".join(f"{var.name}={var.value}" for var in rung) for rung in rungs],
    )


def token(plan: Plan, run_id: str) -> str:
    """Return a placeholder of the port: letters and digits, so that it is quoted as a port is."""
    text = repr(plan.nodes)  # with the words of every attempt
    number = zlib.crc32(run_id.encode())
    while f"safelaunchport{number:08x}" in text:
        number += 1
    return f"safelaunchport{number:08x}"


def scripts(
    plan: Plan, facts: Facts, again: RestartScripts | None, rank: int = 0
) -> dict[str, bytes]:
    """Return {name: text} of a node for an unbound plan; `facts` and `again` are of the start."""
    if again is None:
        return {}
    bound = bind(plan, {**facts, Slot.PORT: again.token})
    node = bound.nodes[rank]
    argv = node.resume_argv if node.resume_argv is not None else node.argv
    scripts = {}
    for count, name in enumerate(again.scripts):  # with so many rungs of the ladder
        added = {var.name: var for rung in node.rungs[:count] for var in rung}
        attempt = replace(node, argv=argv, env={**node.env, **added})
        scripts[name] = script_of(bound, attempt).encode()
    return scripts
