"""Starts a plan on hosts: one look at each, then everything that it needs in one request.

All or nothing: where one node cannot be started, nothing is left of the others.
"""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.environ import NOTEWORTHY
from safelaunch.errors import HostError, StartError
from safelaunch.model import Slot
from safelaunch.remote.agent_client import AgentError, Lost
from safelaunch.remote.host_pool import RETRY_DELAYS
from safelaunch.remote.parallel import together
from safelaunch.runs import mirror
from safelaunch.runtime import backends
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.commands import CommandResult
from safelaunch.runtime.records import PeersAddress, PlanRecord, RunRecord
from safelaunch.runtime.start.starter import StartAnswer
from safelaunch.ssh.errors import Unreachable
from safelaunch.start import preflight
from safelaunch.start.caller import Started
from safelaunch.start.preflight import MachineReport
from safelaunch.start.run_files import start_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import Plan
    from safelaunch.remote.agent_client import Pending
    from safelaunch.remote.machine import Machine
    from safelaunch.remote.routes import Routes
    from safelaunch.runs import store
    from safelaunch.start.caller import Caller
    from safelaunch.start.run_files import StartRequest


class HostReport(NamedTuple):
    """What an agent says of its machine, with the results of `ask_report`'s commands."""

    about: Mapping[str, Any]

    @property
    def home(self) -> str:
        """The user's home folder there."""
        return str(self.about["home"])

    @property
    def machine(self) -> MachineReport:
        """What a start needs of it."""
        probe, version = (CommandResult(*result) for result in self.about["results"])
        return MachineReport(
            home=self.home,
            base=str(self.about["base"]),
            environ=self.about["environ"],
            python=str(self.about["python"]),
            bash=self.about["bash"],
            probe=probe,
            version=version.last_line,
        )


def ask_report(machine: Machine, python: str | None, run_id: str) -> Pending:
    """Ask a host for what a start there needs; the answer makes a HostReport. Raises HostError."""
    return machine.agent.ask_first(
        "start.look",
        commands=[[python, *preflight.probe_command(run_id)], [python, "-V"]],
        environ=[*NOTEWORTHY, "CUDA_VISIBLE_DEVICES", "PATH"],
    )


class StartOrder(NamedTuple):
    """What is to be started, by whom and as what."""

    plan: Plan  # not bound
    caller: Caller
    run_id: str
    hosts_file: str | None = None
    routes: Routes | None = None  # between several nodes
    follow: bool = False  # the log will be read at once

    def common(self, rank: int) -> dict[Slot, str]:
        """Return what all nodes share, and which way each goes to the others."""
        if self.routes is None:
            return {}
        return {
            Slot.MASTER_ADDR: self.routes.addresses[0],
            Slot.PORT: str(self.routes.port),
            Slot.INTERFACE: self.routes.interfaces[rank],
        }


def start(  # noqa: C901 - one story: what is asked, and what is taken back where it fails
    order: StartOrder, machines: Sequence[Machine], reports: Sequence[HostReport]
) -> Started:
    """Start each node of a plan on its machine. Raises StartError, HostError."""
    plan, run_id = order.plan, order.run_id
    for node in plan.nodes:
        preflight.check_secrets(node, order.caller.environ)
    token = secrets.token_hex(16)
    requests, places = [], []
    for rank, (machine, report) in enumerate(zip(machines, reports, strict=True)):
        facts = {
            **preflight.facts(plan.nodes[rank], report.machine, run_id),
            **order.common(rank),
        }
        requests.append(_request(order, rank, facts, report, token))
        places.append(mirror.Place(machine.name, rank, facts[Slot.RUN_DIR]))
    run = mirror.make(order.caller.home, run_id, places, plan.name, order.hosts_file)
    answers: dict[int, StartAnswer] = {}
    asking = _Asking(run, threading.Event(), follow=order.follow)

    def start_node(rank: int) -> HostError | StartError | None:
        try:
            answer = _ask(machines[rank], requests[rank], places[rank], asking)
        except (HostError, StartError) as e:
            return e
        files = {RunRecord.FILE: answer.run.to_json(), PlanRecord.FILE: requests[rank].plan_json}
        mirror.keep(run, places[rank], NodeView(status=answer.status, files=files))
        answers[rank] = answer
        return None

    def call_off() -> None:
        asking.is_off.set()
        for machine in machines:
            machine.pool.discard(machine.name)

    failed: list[HostError | StartError | None]
    try:
        failed = list(together(start_node, range(len(machines)), end=call_off))
    except BaseException:
        # Ctrl-C: what the connections were busy with is not known
        asking.is_off.set()
        if not _take_back(machines, run, afresh=True):
            machines[0].pool.say(f"it may run there: safelaunch stop {run_id}")
        raise
    lost = next((error for error in failed if isinstance(error, Lost)), None)
    error = next((error for error in failed if error and error is not lost), lost)
    if error is not None:
        if len(machines) > 1 or lost is None:
            others = [m for m, e in zip(machines, failed, strict=True) if not isinstance(e, Lost)]
            # a log that was asked for would never let go of its connection
            _take_back(others, run, afresh=order.follow, keep=lost is not None)
        raise error  # one that was lost may run there: the pointer to it stays
    records = [answers[rank].run for rank in range(len(machines))]
    notes = []
    for machine, record, request in zip(machines, records, requests, strict=True):
        if record.backend_note:
            notes.append(f"{machine.name}: {record.backend_note}")
        where = f"the environment of {machine.name}"
        notes += [note.replace("your environment", where) for note in request.notes]
    commands = [backend.attach(handle) for backend, handle in map(backends.from_record, records)]
    return Started(
        run=run,
        places=tuple(places),
        notes=tuple(dict.fromkeys(notes)),
        attach=commands[0] if all(commands) else (),
        network=_network(order.routes, places) if order.routes is not None else (),
    )


def _network(routes: Routes, places: Sequence[mirror.Place]) -> tuple[str, ...]:
    """Return how each node reaches the others, for people."""
    ways = zip(places, routes.addresses, routes.interfaces, strict=True)
    return tuple(f"{place.host} {address} ({card})" for place, address, card in ways)


def _take_back(
    machines: Sequence[Machine], run: store.Run, *, afresh: bool = False, keep: bool = False
) -> bool:
    """Leave nothing of a start; where that cannot be made sure of, the pointer to it stays.

    Returns whether nothing is left.
    """

    def undo(machine: Machine) -> bool:
        if afresh:
            machine.pool.discard(machine.name)
        try:
            for rank in ranks[machine.name]:
                machine.agent.call("start.undo", id=run.id, node=rank)
        except HostError:
            return False
        return True

    at = mirror.pointer(run)
    ranks: dict[str, list[int]] = {}
    for place in at.places if at is not None else ():
        ranks.setdefault(place.host, []).append(place.node)
    is_gone = all(together(undo, machines)) and not keep
    if is_gone:
        mirror.forget(run)
    return is_gone


class _Asking(NamedTuple):
    """What all nodes are asked to start."""

    run: store.Run
    is_off: threading.Event  # Ctrl-C: a start is not asked for again, it would begin anew
    follow: bool


def _ask(
    machine: Machine, request: StartRequest, place: mirror.Place, asking: _Asking
) -> StartAnswer:
    """Ask for a start, and again where the connection is lost: the host starts an id once."""
    run, pauses, is_lost = asking.run, iter(RETRY_DELAYS), False
    while True:
        try:
            words = {"run": request.run.to_json(), **request.words}
            asked = machine.agent.ask("start.start", data=request.data, **words)
            if asking.follow:
                machine.pool.session(machine.name).prefetch_log(run.id, place.node)
            answer = StartAnswer.from_json(asked.result())
        except AgentError as e:  # noqa: PERF203 - each try is another connection
            if e.kind == "StartFailed":
                raise StartError(e.message, where=machine.name) from e
            raise
        except HostError as e:
            if not (is_lost or isinstance(e, (Lost, Unreachable))):
                raise
            machine.pool.discard(machine.name)
            # it may run there also where the host now says anything else, such as not to let us in
            pause = next(pauses, None) if isinstance(e, (Lost, Unreachable)) else None
            if pause is None or asking.is_off.is_set():
                raise Lost(
                    f"the connection was lost during the start of {run.id}: {e.message}",
                    where=machine.name,
                    hint=f"it runs there or it does not: safelaunch show {run.id}",
                ) from e
            if not is_lost:
                machine.pool.say(f"[{machine.name} does not answer; trying again]")
            is_lost = True
            asking.is_off.wait(pause)
        else:
            return answer


def _request(
    order: StartOrder, rank: int, facts: Mapping[Slot, str], report: HostReport, token: str
) -> StartRequest:
    more = {}
    if order.routes is not None:
        routes = order.routes
        first = PeersAddress(address=routes.addresses[0], port=routes.meeting, token=token)
        more[PeersAddress.FILE] = json.dumps(first.to_json()).encode()
    environ = report.machine.environ
    return start_request(order.plan, facts, order.caller, environ, rank=rank, more=more)
