"""Prepares a start on hosts: connects, makes the quick checks, syncs the project and the assets."""

# ruff: noqa: PLC0415 - images, services, parts: only for jobs that have some

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import cluster, quick
from safelaunch.checks import run as checks_run
from safelaunch.engines.slurm.trial import trial_request
from safelaunch.environ import NOTEWORTHY, SCRUBBED
from safelaunch.errors import StartError
from safelaunch.model import Slot, Slurm, bind_word
from safelaunch.plan.container import on_login_node
from safelaunch.remote.agent_client import EARLY, AgentError
from safelaunch.remote.host_pool import Machine
from safelaunch.remote.parallel import together
from safelaunch.remote.routes import find as find_routes
from safelaunch.remote.transfer import connect_and_scan
from safelaunch.runtime.commands import NOT_RUN, CommandResult
from safelaunch.runtime.records import NodePlace, PeersAddress
from safelaunch.start import preflight
from safelaunch.start.preflight import MachineReport
from safelaunch.start.resume import CheckpointChoice, checkpoint_glob, choose_checkpoint
from safelaunch.start.run_files import start_request
from safelaunch.start.scripts import late_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.quick import LiveRunsCheck, Report
    from safelaunch.model import NodePlan, Plan, Service
    from safelaunch.remote.agent_client import Agent, PendingReply
    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.routes import Routes
    from safelaunch.remote.transfer import CodeFolder, ProjectSync
    from safelaunch.start.caller import Caller, RunsCheck
    from safelaunch.start.run_files import StartRequest

_SEARCH = 20.0  # seconds for the search for checkpoints: a network disk may be slow


def request_report(
    machine: Machine, node: NodePlan, python: str | None, run_id: str
) -> PendingReply:
    """Request what a start on a host needs; `machine_report` reads the reply. Raises HostError."""
    if node.container is not None:  # it is asked once its folders are there: images.py
        return machine.agent.ask_first("start.look")
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
    results = [CommandResult(*result) for result in answer["results"]]
    probe, *version = results or [CommandResult(NOT_RUN, "", "")]
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
    service_reports: Sequence[MachineReport] = ()  # by the interpreter of each service

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
        plan = self.plan
        late = late_values.of_waiting(plan, self.run_id, waits=self.caller.waits)
        facts |= late
        if self.code and report.container is not None:
            from safelaunch.remote.start.images import with_place

            plan = with_place(plan, rank, self.code[rank])
        request = start_request(
            plan,
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
            container=report.container,
        ).waiting(late)
        if plan.services:
            from safelaunch.start.services import with_services

            addresses = () if self.routes is None else self.routes.addresses
            request = with_services(
                request, plan, self.caller, facts, self.service_reports, addresses=addresses
            )
        if plan.fan_out is not None:
            from safelaunch.start.fan_out import with_parts

            versions = self.versions[rank]
            request = with_parts(
                request, plan, self.caller, facts, report, versions=versions, host=rank
            )
        if self.code:
            code = self.code[rank]
            request.run.place, request.run.tree = code.place, code.tree
            request.run.checkout = code.owner or None
            request.run.tree_shared = code.nodes > 1
        host = self.machines[rank].name
        return NodePlace(host=host, node=rank, run_dir=facts[Slot.RUN_DIR]), request


class Checks(NamedTuple):
    """The quick checks before a start: `report` raises Refused where they forbid it."""

    context: CheckContext
    report: Report


def prepare(
    plan: Plan,
    hosts: Sequence[str],
    pool: HostPool,
    caller: Caller,
    *,
    checks: Checks | None = None,
    sync: ProjectSync | None = None,
) -> PreparedStart:
    """Return a start whose hosts have answered and have what the plan needs.

    `hosts` are those of the plan's nodes. Without `sync` the plan's folders are used as they are.
    Raises ConfigError, HostError, StartError and Refused.
    """
    if sync is not None and sync.is_sent:
        for node in plan.nodes:
            preflight.check_assets(node.assets)
    run_id = caller.run_id(plan.name)
    machines = [Machine(host, pool) for host in hosts]
    quick_checks = _checks_of(plan, checks)

    def ask(rank: int) -> tuple[PendingReply, PendingReply | None]:
        node, agent = on_login_node(plan.nodes[rank]), machines[rank].agent
        path = node.interpreter.path
        python = None if path is None else str(bind_word(path, {Slot.HOME: "~"}))
        if quick_checks is not None:
            quick_checks.ask(rank, agent, python)
        report = request_report(machines[rank], node, python, run_id)
        in_image = plan.nodes[rank].container is not None
        request = None if in_image else preflight.version_request(node, python)
        return report, None if request is None else agent.ask("facts.probe", **request)

    transfer = None if sync is None else connect_and_scan(sync, machines, caller.home, run_id)
    replies = together(ask, range(len(machines)))
    service_replies = [
        _ask_for_service(machines[service.node], service, run_id) for service in plan.services
    ]
    if transfer is not None:
        transfer.request()
    _request_answers(quick_checks, machines)
    if transfer is not None:
        transfer.record_code()
    reports = together(machine_report, [report for report, _ in replies])

    def read_versions(rank: int) -> dict[str, str]:
        return _versions(plan.nodes[rank], machines[rank].agent, replies[rank][1])

    versions: Sequence[Mapping[str, str]] = together(read_versions, range(len(machines)))
    service_reports = [machine_report(reply) for reply in service_replies]
    check = None if quick_checks is None else quick_checks.finish()
    in_container = any(on_login_node(node).container is not None for node in plan.nodes)
    routes = None if in_container else _routes(plan, machines, reports, run_id)
    code: Sequence[CodeFolder] = ()
    launch_files: Sequence[dict[str, bytes]] = ()
    if transfer is not None:
        plan, code = transfer.finish(plan, [{Slot.HOME: report.home} for report in reports])
        launch_files = transfer.launch_files(code)
    if in_container:
        from safelaunch.remote.start.images import ask_images

        reports, versions = ask_images(plan, machines, reports, versions, run_id)
        routes = _routes(plan, machines, reports, run_id)
    choice = _choose_checkpoint(plan, machines)
    return PreparedStart(
        choice.plan,
        caller,
        run_id,
        machines,
        reports,
        versions,
        routes,
        choice,
        code,
        launch_files,
        check,
        service_reports,
    )


def _ask_for_service(machine: Machine, service: Service, run_id: str) -> PendingReply:
    """Request what the start of a service needs of its host. Raises HostError."""
    node = service.plan.nodes[0]
    path = node.interpreter.path
    python = None if path is None else str(bind_word(path, {Slot.HOME: "~"}))
    return request_report(machine, node, python, run_id)


def _routes(
    plan: Plan, machines: Sequence[Machine], reports: Sequence[MachineReport], run_id: str
) -> Routes | None:
    """Return how several hosts reach each other; None for one, and for parts. Raises StartError."""
    if len(machines) == 1 or plan.fan_out is not None:
        return None
    facts = preflight.facts(plan.nodes[0], reports[0], run_id)
    return find_routes(machines, int(facts[Slot.PORT]))


def _versions(node: NodePlan, agent: Agent, reply: PendingReply | None) -> dict[str, str]:
    """Return the versions that a host has reported for open gates. Raises HostError."""
    if reply is None:
        return {}
    versions = preflight.versions(_probe_answer(reply), {})
    request = preflight.peer_request(node, versions)
    if request is None:
        return versions
    return preflight.versions(_probe_answer(agent.ask("facts.probe", **request)), versions)


def _choose_checkpoint(plan: Plan, machines: Sequence[Machine]) -> CheckpointChoice:
    """Return what the first attempt of a plan resumes from, on all its hosts. Raises HostError."""
    pattern = checkpoint_glob(plan)
    if pattern is None:
        return CheckpointChoice(plan)
    asks = [["newest_checkpoints", pattern]]

    def ask(rank: int) -> tuple[Sequence[str], str]:
        cwd = str(bind_word(plan.nodes[rank].cwd, {Slot.HOME: "~"}))
        agent = machines[rank].agent
        reply = agent.call("facts.probe", quick=True, cwd=cwd, asks=asks, limit=_SEARCH)
        answer = reply["parts"].get("ask.0") or {"skip": "no answer"}
        if "value" not in answer:
            where = machines[rank].name
            raise StartError(f"cannot look for checkpoints: {answer['skip']}", where=where)
        return answer["value"]["paths"], answer["value"]["flaw"]

    with_ranks = range(len(machines) - plan.service_nodes)  # the others need no checkpoint
    return choose_checkpoint(plan, together(ask, with_ranks))


def _checks_of(plan: Plan, checks: Checks | None) -> _QuickChecks | _SlurmCheck | None:
    """Return the checks of the machines that train, or of what chooses them; None for none."""
    if checks is None or plan.engine is None:
        return None if checks is None else _QuickChecks(checks)
    return _SlurmCheck(plan, checks) if isinstance(plan.engine, Slurm) else None


def _request_answers(
    checks: _QuickChecks | _SlurmCheck | None, machines: Sequence[Machine]
) -> None:
    if checks is not None:
        checks.request([machine.agent for machine in machines])


class _SlurmCheck:
    """The question to a login node whether Slurm takes the job: the node itself trains nothing."""

    def __init__(self, plan: Plan, checks: Checks) -> None:
        self._checks, self._request = checks, trial_request(plan, is_quick=True)
        self._replies: list[PendingReply] = []

    def ask(self, rank: int, agent: Agent, python: str | None) -> None:
        """Ask nothing yet: what the start needs is asked first."""

    def request(self, agents: Sequence[Agent]) -> None:
        self._replies = [agent.ask("start.trial", **self._request) for agent in agents]

    def finish(self) -> None:
        context, report = self._checks
        for host, reply in zip(context.hosts, self._replies, strict=True):
            report(cluster.quick_results(host.name, reply.result()), context)


class _QuickChecks:
    """The questions of the quick checks to all hosts: asked first, answered beside the rest."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        # not by several threads: each would read the project
        self._questions = [checks_run.questions(host) for host in checks.context.hosts]
        self._replies: list[PendingReply] = []

    def ask(self, rank: int, agent: Agent, python: str | None) -> None:
        if rank >= len(self._questions):  # it runs services, and no ranks
            return
        request = quick.request(self._checks.context.hosts[rank], self._questions[rank], python)
        # a request longer than a command may be costs a round trip more
        ask = agent.ask_first if len(json.dumps(request)) < EARLY else agent.ask
        ask("facts.begin", **request)

    def request(self, agents: Sequence[Agent]) -> None:
        with_ranks = agents[: len(self._questions)]
        self._replies = [agent.ask_first("facts.end") for agent in with_ranks]

    def finish(self) -> LiveRunsCheck:
        context, report = self._checks
        early = quick.run_early(context)
        answers = together(_probe_answer, self._replies)
        return quick.finish(context, self._questions, answers, early, report)


def _probe_answer(reply: PendingReply) -> dict[str, Any]:
    """Return the answer of a probe; empty where it failed: that keeps no job from starting."""
    try:
        answer: dict[str, Any] = reply.result()
    except AgentError:
        return {}
    return answer
