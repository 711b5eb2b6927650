"""Starts a plan on hosts: one question to each, then everything that it needs in one request.

All or nothing: where one node cannot be started, nothing is left of the others.
"""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.environ import NOTEWORTHY, SCRUBBED
from safelaunch.errors import HostError, Refused, StartError
from safelaunch.model import Slot
from safelaunch.remote.agent_client import AgentError, Lost
from safelaunch.remote.host_pool import RETRY_DELAYS
from safelaunch.remote.parallel import together
from safelaunch.runs import mirror
from safelaunch.runtime import backends
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.commands import CommandResult
from safelaunch.runtime.records import NodePlace, PeersAddress, PlanRecord, RunRecord
from safelaunch.runtime.start.starter import StartAnswer
from safelaunch.ssh.config.local_user import current_user
from safelaunch.ssh.errors import Unreachable
from safelaunch.start import preflight
from safelaunch.start.caller import Started
from safelaunch.start.preflight import MachineReport
from safelaunch.start.run_files import start_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import NodePlan, Plan
    from safelaunch.remote.agent_client import PendingReply
    from safelaunch.remote.host_pool import Machine
    from safelaunch.remote.routes import Routes
    from safelaunch.remote.transfer import CodeFolder
    from safelaunch.start.caller import Caller, RunsCheck
    from safelaunch.start.resume import CheckpointChoice
    from safelaunch.start.run_files import StartRequest


def request_report(
    machine: Machine, node: NodePlan, python: str | None, run_id: str
) -> PendingReply:
    """Request what a start on a host needs; `machine_report` reads the reply. Raises HostError."""
    # the host expands `~` of a program only, not behind a prefix
    binding = [] if (python or "").startswith("~") else preflight.binding(node)
    return machine.agent.ask_first(
        "start.look",
        commands=[[*binding, python, *preflight.probe_command(run_id, node)], [python, "-V"]],
        until_success=True,
        environ=[*NOTEWORTHY, *SCRUBBED, "PATH"],
    )


def machine_report(reply: PendingReply) -> MachineReport:
    """Return what a host reports of itself before a start. Raises HostError."""
    answer: Mapping[str, Any] = reply.result()
    probe, *version = (CommandResult(*result) for result in answer["results"])
    return MachineReport(
        home=str(answer["home"]),
        base=str(answer["base"]),
        environ=answer["environ"],
        python=str(answer["python"]),
        bash=answer["bash"],
        probe=probe,
        version=version[0].last_line if version else "",
    )


class PreparedStart(NamedTuple):
    """A start whose hosts have answered: what is started, by whom and where."""

    plan: Plan  # not bound
    caller: Caller
    run_id: str
    machines: Sequence[Machine]  # of each node
    reports: Sequence[MachineReport]  # of each node
    versions: Sequence[Mapping[str, str]]  # of each node, for open gates
    routes: Routes | None  # between several nodes
    choice: CheckpointChoice  # what they resume from
    code: Sequence[CodeFolder] = ()  # of each node, where the project was synced
    launch_files: Sequence[Mapping[str, bytes]] = ()  # record of the code, of each node
    check: RunsCheck | None = None  # of the live runs; None: a start beside any is wanted

    def files(self, rank: int) -> Mapping[str, bytes]:
        """Return the files of a node's run directory that say what code it has."""
        return self.launch_files[rank] if self.launch_files else {}

    def node(self, rank: int, token: str) -> tuple[NodePlace, StartRequest]:
        """Return place and request of a node; the supervisors share `token`. Raises StartError."""
        report, files = self.reports[rank], dict(self.files(rank))
        facts = preflight.facts(self.plan.nodes[rank], report, self.run_id)
        facts |= self.choice.facts(rank, report.home)
        if self.routes is not None:
            address, port = self.routes.addresses[0], self.routes.supervisor_port
            facts[Slot.MASTER_ADDR], facts[Slot.PORT] = address, str(self.routes.port)
            facts[Slot.INTERFACE] = self.routes.interfaces[rank]
            peers = PeersAddress(address=address, port=port, token=token)
            files[PeersAddress.FILE] = json.dumps(peers.to_json()).encode()
        request = start_request(
            self.plan,
            facts,
            self.caller,
            report.environ,
            rank=rank,
            versions=self.versions[rank],
            more=files,
            packages=[
                preflight.package_versions(node, answer.probe)
                for node, answer in zip(self.plan.nodes, self.reports, strict=True)
            ],
        )
        if self.code:
            code = self.code[rank]
            request.run.place, request.run.tree = code.place, code.tree
            request.run.checkout = code.owner or None
            request.run.tree_shared = code.nodes > 1
        host = self.machines[rank].name
        return NodePlace(host=host, node=rank, run_dir=facts[Slot.RUN_DIR]), request


def start(prepared: PreparedStart, *, follow: bool = False) -> Started:
    """Start each node of a plan on its machine. Raises StartError, HostError, Refused.

    `follow`: the log will be read at once, and is requested together with the start.
    """
    for node in prepared.plan.nodes:
        preflight.check_secrets(node, prepared.caller.environ)
    with mirror.start_lock(prepared.caller.home, prepared.run_id):
        started = _Start(prepared, follow=follow)
        started.run_all()
    routes, records = prepared.routes, [answer.run for _, answer in sorted(started.answers.items())]
    notes = [prepared.choice.note] if prepared.choice.note else []
    for machine, record, request in zip(prepared.machines, records, started.requests, strict=True):
        if record.backend_note:
            notes.append(f"{machine.name}: {record.backend_note}")
        where = f"the environment of {machine.name}"
        notes += [note.replace("your environment", where) for note in request.notes]
        notes += [f"{machine.name}: {decision}" for decision in record.decisions]
    commands = [backend.attach(handle) for backend, handle in map(backends.from_record, records)]
    network: list[str] = []
    if routes is not None:
        ways = zip(started.places, routes.addresses, routes.interfaces, strict=True)
        network = [f"{place.host} {address} ({card})" for place, address, card in ways]
    return Started(
        run=started.run,
        places=started.places,
        notes=tuple(dict.fromkeys(notes)),
        attach=commands[0] if all(commands) else (),
        network=tuple(network),
    )


class _Start:
    """A start of all nodes under way: what each is asked, and what it has answered."""

    def __init__(self, prepared: PreparedStart, *, follow: bool) -> None:
        self.machines = prepared.machines
        self.check = prepared.check
        self.follow = follow
        self.code_files = [prepared.files(rank) for rank in range(len(self.machines))]
        self.is_cancelled = threading.Event()  # after Ctrl-C another request would start it anew
        self.answers: dict[int, StartAnswer] = {}
        token = secrets.token_hex(16)
        nodes = [prepared.node(rank, token) for rank in range(len(self.machines))]
        self.places = [place for place, _ in nodes]
        self.requests = [request for _, request in nodes]
        for request in self.requests:
            request.run.client = current_user(prepared.caller.environ).label
        home, hosts_path = prepared.caller.home, self.machines[0].pool.hosts_path
        name = prepared.plan.name
        self.run = mirror.create(home, prepared.run_id, self.places, name, hosts_path)

    def run_all(self) -> None:
        """Start all nodes, or leave nothing of any. Raises StartError, HostError, Refused."""
        ranks = range(len(self.machines))
        try:
            errors = together(self._start_node, ranks, end=self._cancel)
        except BaseException:
            # Ctrl-C: what the connections were busy with is not known
            self.is_cancelled.set()
            if not self._undo(ranks, reconnect=True):
                text = f"it may run there: safelaunch stop {self.run.id}"
                self.machines[0].pool.report(text)
            raise
        lost = next((error for error in errors if isinstance(error, Lost)), None)
        error = next((error for error in errors if error and error is not lost), lost)
        if error is None:
            return
        if len(self.machines) > 1 or lost is None:
            others = [rank for rank in ranks if not isinstance(errors[rank], Lost)]
            # a log that was requested would never let go of its connection
            self._undo(others, reconnect=self.follow, keep=lost is not None)
        raise error  # a lost one may run there: what is recorded of it stays

    def _start_node(self, rank: int) -> HostError | StartError | Refused | None:
        try:
            answer = self._request_start(rank)
        except (HostError, StartError, Refused) as e:
            return e
        files = {
            RunRecord.FILE: answer.run.to_json(),
            PlanRecord.FILE: self.requests[rank].plan_json,
        }
        mirror.save(self.run, self.places[rank], NodeView(status=answer.status, files=files))
        mirror.save_code(self.run, rank, self.code_files[rank])
        self.answers[rank] = answer
        return None

    def _cancel(self) -> None:
        self.is_cancelled.set()
        for machine in self.machines:
            machine.pool.discard(machine.name)

    def _undo(self, ranks: Sequence[int], *, reconnect: bool, keep: bool = False) -> bool:
        """Leave nothing of a start on some nodes, and return whether that succeeded.

        The record of the run goes too, unless `keep` or something may be left.
        """

        def undo(rank: int) -> bool:
            machine = self.machines[rank]
            if reconnect:
                machine.pool.discard(machine.name)
            try:
                machine.agent.call("start.undo", id=self.run.id, node=rank)
            except HostError:
                return False
            return True

        is_undone = all(together(undo, ranks)) and not keep
        if is_undone:
            mirror.remove(self.run)
        return is_undone

    def _request_start(self, rank: int) -> StartAnswer:
        """Request a start, and again where the connection is lost: the host starts an id once."""
        machine = self.machines[rank]
        pauses, is_lost = iter(RETRY_DELAYS), False
        while True:
            try:
                return self._request_once(rank)
            except AgentError as e:  # noqa: PERF203 - each try is another connection
                if e.kind == "StartFailed":
                    raise StartError(e.message, where=machine.name) from e
                raise
            except HostError as e:
                is_cut = isinstance(e, (Lost, Unreachable))
                if not (is_lost or is_cut):
                    raise
                machine.pool.discard(machine.name)
                # it may run there also where the host now reports another error, as a refused login
                pause = next(pauses, None) if is_cut else None
                if pause is None or self.is_cancelled.is_set():
                    raise Lost(
                        f"the connection was lost during the start of {self.run.id}: {e.message}",
                        where=machine.name,
                        hint=f"see whether it is running there: safelaunch show {self.run.id}",
                    ) from e
                if not is_lost:
                    machine.pool.report(f"[{machine.name} does not answer; trying again]")
                is_lost = True
                self.is_cancelled.wait(pause)

    def _request_once(self, rank: int) -> StartAnswer:
        """Request a start, and again after each run that came first and is none to be refused."""
        machine, request = self.machines[rank], self.requests[rank]
        while True:
            words = {"run": request.run.to_json(), **request.words}
            if self.check is not None:
                words["checked"] = self.check.digest(rank)
            reply = machine.agent.ask("start.start", data=request.data, **words)
            if self.follow:
                machine.session.prefetch_log(self.run.id, rank)
            answer = StartAnswer.from_json(reply.result())
            if self.check is None or answer.others is None:
                return answer
            self.check.check_again(rank, answer.others)
