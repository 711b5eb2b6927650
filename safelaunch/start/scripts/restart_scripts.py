"""The scripts of later attempts: launch.sh with `resume_args`, and with more rungs of the ladder.

They are written at the start, when the plan is there. Each attempt needs a fresh port and the
newest checkpoint: the scripts have a token in the place of each, which the supervisor replaces.
`fresh` scripts are for attempts for which there is no whole checkpoint.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.model import Slot
from safelaunch.plan.build import bind, resume, resumes_from_checkpoint, without_checkpoint
from safelaunch.plan.serialize import script_of
from safelaunch.runtime.records import RestartScripts
from safelaunch.script import QUOTE_IN_QUOTES, quoted_placeholder

if TYPE_CHECKING:
    from safelaunch.model import Facts, Plan


_PORT = "safelaunchport"


def spec(plan: Plan, run_id: str) -> RestartScripts | None:
    """Return the supervisor's record of the scripts; None where nothing is restarted."""
    if plan.supervision.recovery is None:
        return None
    rungs = plan.nodes[0].rungs
    record = RestartScripts(
        token=token(plan, run_id),
        scripts=[f"again.{at}.sh" for at in range(len(rungs) + 1)],
        rungs=[" ".join(f"{var.name}={var.value}" for var in rung) for rung in rungs],
    )
    if resumes_from_checkpoint(_resumed(plan)):
        # without the token of the port, which is replaced too
        number = record.token.removeprefix(_PORT)
        record.checkpoint = quoted_placeholder(f"checkpoint {number}")
        record.quote = QUOTE_IN_QUOTES
        record.fresh = [f"fresh.{at}.sh" for at in range(len(rungs) + 1)]
    return record


def token(plan: Plan, run_id: str) -> str:
    """Return a placeholder of the port: letters and digits, so that it is quoted as a port is."""
    text = repr(plan.nodes)  # with the words of every attempt
    number = zlib.crc32(run_id.encode())
    while f"{_PORT}{number:08x}" in text:
        number += 1
    return f"{_PORT}{number:08x}"


def _resumed(plan: Plan) -> Plan:
    """Return the plan of later attempts: with `resume_args`, where the job has some."""
    return resume(plan) if plan.nodes[0].resume_argv is not None else plan


def scripts(
    plan: Plan, facts: Facts, again: RestartScripts | None, rank: int = 0
) -> dict[str, bytes]:
    """Return {name: text} of a node for an unbound plan; `facts` and `again` are of the start."""
    if again is None:
        return {}
    facts = {**facts, Slot.PORT: again.token}
    if again.checkpoint is not None:
        facts[Slot.CHECKPOINT] = again.checkpoint
    fresh, scripts = without_checkpoint(plan), {}
    for names, attempt in ((again.scripts, _resumed(fresh)), (again.fresh, fresh)):
        bound = bind(attempt, facts)
        node = bound.nodes[rank]
        for count, name in enumerate(names):  # with so many rungs of the ladder
            added = {var.name: var for rung in node.rungs[:count] for var in rung}
            text = script_of(bound, replace(node, env={**node.env, **added}))
            scripts[name] = text.encode()
    return scripts
