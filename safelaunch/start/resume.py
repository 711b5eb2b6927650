"""Going on from an earlier run: which one, and whether this job is still the same experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import Refused, RunNotFound
from safelaunch.plan.build import resume
from safelaunch.runs import store
from safelaunch.runtime import run_state
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from safelaunch.model import Plan


def of_run(plan: Plan, home: str, wanted: str | None) -> Plan:
    """Return the plan that goes on from a run: the one that is meant, or the job's newest.

    Raises ConfigError where the job does not say how it resumes, RunNotFound, and Refused while the
    run still has processes: two runs would write the same checkpoints.
    """
    resume(plan)
    run = store.find(home, wanted) if wanted is not None else _newest(plan.name, home)
    status = run_state.current_status(run.node_dir)
    if status.state not in (*run_state.ENDED, "lost") or status.alive:
        raise Refused(f"{run.id} has not ended", hint=f"end it first: safelaunch stop {run.id}")
    record = RunRecord.read(run.node_dir)
    if record is None or "fingerprint" not in record:
        raise Refused(
            f"{run.id} recorded nothing that this job could be compared with",
            hint="start without --resume; its checkpoint can be named under `args:`",
        )
    return resume(plan, run.id, {str(k): str(v) for k, v in record.fingerprint.items()})


def _newest(name: str, home: str) -> store.Run:
    if not any(run.name == name for run in store.all_runs(home)):
        raise RunNotFound(f"no run of `{name}` to go on from", hint="start it without --resume")
    return store.find(home, name)


def check(plan: Plan) -> None:
    """Refuse a bound plan whose fingerprint is not that of the run it goes on from."""
    if plan.resumes is None:
        return
    now = {name: str(value) for name, value in plan.fingerprint.items()}
    names = dict.fromkeys([*plan.expected, *now])
    changed = [
        f"  {name}: {plan.expected.get(name, 'not given')} -> {now.get(name, 'not given')}"
        for name in names
        if plan.expected.get(name) != now.get(name)
    ]
    if changed:
        raise Refused(
            "\n".join([f"this job is not the one that {plan.resumes} ran (was -> is)", *changed]),
            hint="put the old values back, or start anew without --resume",
        )
