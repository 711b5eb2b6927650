"""Submits a plan to the engine behind a login node: its files and its script in one request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from safelaunch.engines.submission import Reason
from safelaunch.errors import HostError
from safelaunch.remote.agent_client import AgentError, Lost
from safelaunch.remote.start.images import with_place
from safelaunch.remote.start.lost_connections import over_lost_connections
from safelaunch.runs import mirror
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.engines.submission import SubmitAnswer
from safelaunch.runtime.records import NodePlace, PlanRecord, RunRecord, Status
from safelaunch.ssh.config.local_user import current_user
from safelaunch.start import engine, preflight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.engines import Engine
    from safelaunch.remote.host_pool import Machine
    from safelaunch.remote.start.prepare import PreparedStart
    from safelaunch.runs.store import Run
    from safelaunch.start.caller import Started
    from safelaunch.start.engine import EngineRequest
    from safelaunch.start.resume import CheckpointChoice


def submit(prepared: PreparedStart) -> Started:
    """Submit a plan whose login node has answered. Raises StartError, HostError, Refused."""
    plan, caller, run_id = prepared.plan, prepared.caller, prepared.run_id
    machine, report = prepared.machines[0], prepared.reports[0]
    target = engine.submitting_engine(plan)
    engine.check_secret(target, plan, caller.environ)
    preflight.check_secrets(plan.nodes[0], caller.environ)
    code = engine.CodePlace(client=current_user(caller.environ).label)
    if prepared.code:
        folder = prepared.code[0]
        is_shared = len(plan.nodes) > 1
        code = code._replace(place=folder.place, tree=folder.tree, owner=folder.owner)
        code = code._replace(is_shared=is_shared)
    choice = engine.StartChoice(_in_place(prepared), prepared.versions[0], prepared.files(0))
    parts = engine.request(report, caller, choice, run_id=run_id, environ=report.environ, code=code)
    places = [
        NodePlace(host=machine.name, node=rank, run_dir=folder)
        for rank, folder in enumerate(parts.run_dirs)
    ]
    with mirror.start_lock(caller.home, run_id):
        run = mirror.create(caller.home, run_id, places, plan.name, machine.pool.hosts_path)
        answer = _submit(machine, run, parts, target)
        for rank, place in enumerate(places):
            record = RunRecord.from_json(parts.words["nodes"][rank]["run"])
            files = {RunRecord.FILE: record.to_json(), PlanRecord.FILE: parts.plan_json}
            status = Status(version=1, id=run_id, name=plan.name, state="pending")
            mirror.save(run, place, NodeView(status=status, files=files))
        mirror.save_code(run, 0, prepared.files(0))
    return engine.started(parts, answer, run, plan, machine.name)


def _in_place(prepared: PreparedStart) -> CheckpointChoice:
    """Return the plan, whose containers see the run's own copy of the project."""
    plan = prepared.choice.plan
    for rank in range(len(plan.nodes) if prepared.code else 0):
        plan = with_place(plan, rank, prepared.code[0])
    return prepared.choice._replace(plan=plan)


def _submit(machine: Machine, run: Run, parts: EngineRequest, target: Engine) -> SubmitAnswer:
    """Return the answer of the login node. Raises StartError, HostError and Refused.

    Nothing is left of what was refused, and of what was interrupted.
    """
    is_cancelled = threading.Event()

    def request() -> SubmitAnswer:
        reply = machine.agent.ask("start.submit", data=[parts.data], **parts.words)
        return SubmitAnswer.from_json(reply.result())

    try:
        return over_lost_connections(machine, run.id, request, is_cancelled)
    except AgentError as e:
        if e.kind != "UnclearSubmitError":  # else it may have the job
            mirror.remove(run)
        if e.details is not None or e.errno is not None:
            raise

        def names(**words: Any) -> Sequence[str]:
            return _names(machine, parts, words)

        reason = Reason(e.kind, e.message, run.id, names, machine.name)
        raise target.refusal(reason) from e
    except Lost:
        raise  # it may wait or run there: what is recorded of it stays
    except HostError:
        mirror.remove(run)
        raise
    except BaseException:
        # Ctrl-C: what the connection was busy with is not known
        is_cancelled.set()
        _withdraw(machine, run)
        raise


def _withdraw(machine: Machine, run: Run) -> None:
    """Leave nothing of a submission that was interrupted, or say that something may be left."""
    machine.pool.discard(machine.name)
    try:
        machine.agent.call("start.withdraw", id=run.id)
    except HostError:
        machine.pool.report(f"it may run there: safelaunch stop {run.id}")
        return
    mirror.remove(run)


def _names(machine: Machine, parts: EngineRequest, words: dict[str, Any]) -> Sequence[str]:
    """Return the names of what the engine has, such as partitions; none where it is silent."""
    try:
        prefix = list(parts.words.get("prefix") or ())
        answer = machine.agent.call("start.partitions", prefix=prefix, **words)
    except HostError:
        return ()
    names = answer.get("names")
    return [str(name) for name in names] if isinstance(names, list) else ()
