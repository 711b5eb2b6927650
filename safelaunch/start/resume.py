"""Resuming an earlier run: which one, and whether this job is still the same experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import Refused, RunNotFound
from safelaunch.model import Slot, bind_word, join_path
from safelaunch.plan.build import resume, resumes_from_checkpoint, without_checkpoint
from safelaunch.runs import store
from safelaunch.runtime import run_state
from safelaunch.runtime.engines import current
from safelaunch.runtime.progress import checkpoints
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Plan


def resume_run(plan: Plan, home: str, name: str | None) -> Plan:
    """Return the plan that resumes a run: that of a name or id, by default the job's newest.

    Raises ConfigError where the job does not say how it resumes, RunNotFound, and Refused while the
    run still has processes: two runs would write the same checkpoints.
    """
    resume(plan)
    if name is None and not any(run.name == plan.name for run in store.all_runs(home)):
        raise RunNotFound(f"no run of `{plan.name}` to resume", hint="start it without --resume")
    run = store.find(home, plan.name if name is None else name)
    status = current.status(run.node_dir)
    if status.state not in (*run_state.ENDED, "lost") or status.alive:
        raise Refused(f"{run.id} has not ended", hint=f"end it first: safelaunch stop {run.id}")
    record = RunRecord.read(run.node_dir)
    if record is None or "fingerprint" not in record:
        raise Refused(
            f"{run.id} has no record of its settings to compare this job with",
            hint="start without --resume; its checkpoint can be named under `args:`",
        )
    return resume(plan, run.id, {str(k): str(v) for k, v in record.fingerprint.items()})


class CheckpointChoice(NamedTuple):
    """What the first attempt of a plan resumes from, and how its user learns of it."""

    plan: Plan  # without `resume_args` where there is no whole checkpoint
    checkpoint: str | None = None  # from the working directory on, if it is below
    note: str = ""

    def facts(self, rank: int, home: str) -> dict[Slot, str]:
        """Return the value of the checkpoint's slot on a node."""
        if self.checkpoint is None:
            return {}
        cwd = bind_word(self.plan.nodes[rank].cwd, {Slot.HOME: home})
        return {Slot.CHECKPOINT: str(join_path(cwd, self.checkpoint))}


def checkpoint_glob(plan: Plan) -> str | None:
    """Return the glob of the checkpoint that a plan's first attempt needs; None if it needs none.

    The answer of each node's machine is that of the question `newest_checkpoints`.
    """
    recovery = plan.supervision.recovery
    return recovery.checkpoint if recovery and resumes_from_checkpoint(plan) else None


def choose_checkpoint(plan: Plan, by_node: Sequence[tuple[Sequence[str], str]]) -> CheckpointChoice:
    """Return the checkpoint that all nodes resume from: of each its whole ones, and a flaw."""
    path = checkpoints.common([paths for paths, _ in by_node])
    flaw = by_node[0][1]
    newer = f" ({flaw})" if flaw else ""
    if path is not None:
        return CheckpointChoice(plan, path, f"resumes from {path}{newer}")
    note = (
        f"no whole checkpoint matches `{checkpoint_glob(plan)}`{newer}: "
        "it starts from the beginning, without `resume_args`"
    )
    return CheckpointChoice(without_checkpoint(plan), None, note)


def check(plan: Plan) -> None:
    """Raise Refused for a bound plan whose fingerprint is not that of the run that it resumes."""
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
