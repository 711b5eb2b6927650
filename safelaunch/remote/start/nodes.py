"""Starts a plan on hosts: one question to each, then everything that it needs in one request.

All or nothing: where one node cannot be started, nothing is left of the others.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

from safelaunch.errors import HostError, Refused, StartError
from safelaunch.remote.agent_client import AgentError, Lost
from safelaunch.remote.parallel import together
from safelaunch.remote.start.lost_connections import over_lost_connections
from safelaunch.runs import mirror
from safelaunch.runtime import backends
from safelaunch.runtime.agent.runs import NodeView
from safelaunch.runtime.records import FanOutSpec, PlanRecord, RunRecord
from safelaunch.runtime.start.starter import StartAnswer
from safelaunch.ssh.config.local_user import current_user
from safelaunch.start import preflight
from safelaunch.start.caller import Started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.start.prepare import PreparedStart


def start_nodes(prepared: PreparedStart, *, follow: bool = False) -> Started:
    """Start each node of a plan on its machine. Raises StartError, HostError, Refused.

    `follow`: the log will be read at once, and is requested together with the start.
    """
    services = (service.plan for service in prepared.plan.services)
    for node in (node for plan in (prepared.plan, *services) for node in plan.nodes):
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
        self.has_parts = prepared.plan.fan_out is not None
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
        if self.has_parts:
            words = self.requests[rank].words["files"]
            bodies = zip((name for name, _ in words), self.requests[rank].data, strict=True)
            files[FanOutSpec.FILE] = dict(bodies)[FanOutSpec.FILE]
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
        try:
            return over_lost_connections(
                machine, self.run.id, lambda: self._request_once(rank), self.is_cancelled
            )
        except AgentError as e:
            if e.kind == "StartFailed":
                raise StartError(e.message, where=machine.name) from e
            raise

    def _request_once(self, rank: int) -> StartAnswer:
        """Request a start, and again after each run that came first and is none to be refused."""
        machine, request = self.machines[rank], self.requests[rank]
        while True:
            words = {"run": request.run.to_json(), **request.words}
            if self.check is not None and rank < self.check.count:
                words["checked"] = self.check.digest(rank)
            reply = machine.agent.ask("start.start", data=request.data, **words)
            if self.follow:
                machine.session.prefetch_log(self.run.id, rank)
            answer = StartAnswer.from_json(reply.result())
            if self.check is None or answer.others is None or rank >= self.check.count:
                return answer
            self.check.check_again(rank, answer.others)
