"""The runs after which another one begins: where they are, and whether they have ended already."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError, Refused
from safelaunch.model import Dependency
from safelaunch.plan.steps import check_dependencies
from safelaunch.runtime import run_state
from safelaunch.runtime.records import EarlierRun, RunRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Plan
    from safelaunch.runs.access import RunAccess


class WaitingPlan(NamedTuple):
    """A plan with what it waits for, and the same for each of its nodes."""

    plan: Plan
    after: tuple[tuple[EarlierRun, ...], ...]


def after_runs(
    plan: Plan, earlier: Sequence[tuple[RunAccess, bool]], hosts: Sequence[str] = ()
) -> WaitingPlan:
    """Return a plan that begins after runs: each with success, or where True after any end.

    `hosts` are those of its nodes, or the login node; none for this machine. Raises ConfigError
    for a run of another place, and Refused for one that has ended otherwise.
    """
    check_dependencies(replace(plan, after=tuple(Dependency(run.id) for run, _ in earlier)))
    waits: list[Dependency] = []
    nodes: list[list[EarlierRun]] = [[] for _ in plan.nodes]
    for run, is_any_end in earlier:
        has_ended = _has_ended(run, is_any_end=is_any_end)
        numbers = _engine_nodes(plan, run, hosts) if plan.engine else _nodes(plan, run, hosts)
        if not (has_ended and plan.engine):  # its engine may have forgotten the job
            waits.append(Dependency(run.id, is_any_end))
        for own, number in zip(nodes, numbers, strict=True):
            end = EarlierRun(run=run.id, node=number, is_any_end=is_any_end)
            end.has_ended = has_ended
            own.append(end)
    return WaitingPlan(replace(plan, after=tuple(waits)), tuple(map(tuple, nodes)))


def _has_ended(run: RunAccess, *, is_any_end: bool) -> bool:
    """Whether a run has ended as is asked for. Raises Refused where it has ended otherwise."""
    status = run.status()
    if status.state not in (*run_state.ENDED, "lost"):
        return False
    if not is_any_end and status.state != "succeeded":
        reason = f" ({status.reason})" if status.reason else ""
        raise Refused(
            f"{run.id} has ended: {status.state}{reason}",
            where="--after",
            hint=f"safelaunch show {run.id} says why; `--after-any` starts after any end",
        )
    return not (status.state == "lost" and status.alive)


def _nodes(plan: Plan, run: RunAccess, hosts: Sequence[str]) -> list[int]:
    """Return the node of an earlier run beside each node of a plan. Raises ConfigError."""
    record = RunRecord.read(run.record.node_dir) or RunRecord()
    if record.engine is not None:
        title = record.engine.title
        raise _elsewhere(run, f"is a job of {title}", f"only jobs of {title} can wait for it")
    names = [place.host for place in run.places()]
    numbers = _beside(hosts, names, len(plan.nodes))
    if numbers is None:
        places = list(dict.fromkeys(names))
        where = " and ".join(places) or "this machine"
        own = " and ".join(dict.fromkeys(hosts)) or "this machine"
        options = " ".join(f"--host {host}" for host in places)
        command = f"safelaunch remote {options}" if places else "safelaunch run"
        hint = f"{command} ... --after {run.id}; or start it once that has ended"
        raise _elsewhere(run, f"is on {where}, and this job starts on {own}", hint)
    return numbers


def _beside(hosts: Sequence[str], earlier: Sequence[str], nodes: int) -> list[int] | None:
    """Return the node of an earlier run on the host of each node; None where one has none there.

    Without hosts both are on this machine.
    """
    if not hosts and not earlier:
        return [0] * nodes
    if not hosts or any(host not in earlier for host in hosts):
        return None
    return [list(earlier).index(host) for host in hosts]


def step_nodes(plan: Plan, hosts: Sequence[str], name: str, earlier: Sequence[str]) -> list[int]:
    """Return the node of an earlier step, on the hosts `earlier`, beside each node of a step.

    Raises ConfigError for a step of another place.
    """
    if plan.engine is not None:
        return [0] * len(plan.nodes)
    numbers = _beside(hosts, earlier, len(plan.nodes))
    if numbers is None:
        own, other = (" and ".join(names) or "this machine" for names in (hosts, earlier))
        raise ConfigError(
            f"`{plan.name}` is on {own}, and waits for `{name}`, which is on {other}",
            where=plan.job_file or None,
            hint="a step waits for steps of its own hosts",
        )
    return numbers


def _engine_nodes(plan: Plan, run: RunAccess, hosts: Sequence[str]) -> list[int]:
    """Return node 0 of an earlier job for each node of a plan for an engine. Raises ConfigError."""
    record = RunRecord.read(run.record.node_dir) or RunRecord()
    name = plan.engine.engine_name if plan.engine else ""
    login = {place.host for place in run.places()} if hosts else set()
    is_same = record.engine is not None and record.engine.name == name
    if not is_same or (hosts and login != {hosts[0]}) or (not hosts and _is_remote(run)):
        on = f" on {', '.join(sorted(login))}" if login else ""
        what = (
            "is no job of this Slurm" + on if not is_same else f"was submitted{on or ' elsewhere'}"
        )
        raise _elsewhere(run, what, "Slurm lets a job wait only for another of its own")
    return [0] * len(plan.nodes)


def _is_remote(run: RunAccess) -> bool:
    from safelaunch.runs import mirror  # noqa: PLC0415 - only for jobs of an engine

    return mirror.pointer(run.record) is not None


def _elsewhere(run: RunAccess, what: str, hint: str) -> ConfigError:
    return ConfigError(f"{run.id} {what}", where="--after", hint=hint)
