"""What `remote` does after its plan: connects, syncs, starts, and says how to look."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from safelaunch.checks import machines as check_machines
from safelaunch.checks import quick
from safelaunch.checks import run as checks_run
from safelaunch.cli import plan_options as shared
from safelaunch.cli.check.quick import report
from safelaunch.cli.connections import host_pool, resolver
from safelaunch.cli.output import say
from safelaunch.cli.show_plan import print_warnings
from safelaunch.cli.start.after_start import check_output, show_started
from safelaunch.cli.start.start_local import interruptible
from safelaunch.cli.transfer.progress_bar import Bar
from safelaunch.config.paths import project_on_host
from safelaunch.model import Slot, bind_word
from safelaunch.plan.build import bind, make_plan
from safelaunch.remote import assets
from safelaunch.remote import machine as remote_machine
from safelaunch.remote import start as remote
from safelaunch.remote.agent_client import EARLY, AgentError
from safelaunch.remote.parallel import together
from safelaunch.remote.shared_filesystem import groups
from safelaunch.runs import store
from safelaunch.start import preflight
from safelaunch.start.caller import caller
from safelaunch.start.resume import of_run
from safelaunch.sync.ignore import Rules
from safelaunch.sync.push import LIMIT, start_push

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import NodePlan, Plan
    from safelaunch.remote.agent_client import Pending
    from safelaunch.remote.machine import Machine
    from safelaunch.remote.routes import Routes
    from safelaunch.remote.start import HostReport
    from safelaunch.runs.mirror import Pointer
    from safelaunch.sync.push import PendingPush


def start(resolved: Resolved, options: dict[str, Any]) -> int:
    """Start a job on its hosts; return the exit code of the command."""
    check_output(options, "remote")
    hosts_path = os.path.abspath(options["hosts_file"]) if options["hosts_file"] else None
    plan = make_plan(resolved)
    folders = [project_on_host(host, resolved.project) for host in resolved.hosts]
    if not options["no_sync"]:
        assets.check(plan)
    case = None
    if not options["no_check"]:
        case = check_machines.for_plan(resolved, plan, os.environ, is_quick=True)
    pending = _PendingStart(plan, [host.name for host in resolved.hosts], hosts_path, case)
    sync = None if options["no_sync"] else _Sync(resolved, pending.machines, options)
    if sync is not None and len(folders) == 1:
        # on its way with the question
        sync.start([0], str(bind_word(folders[0], {Slot.HOME: "~"})))
    pending.ask_checks()
    homes = [{Slot.HOME: report.home} for report in pending.await_reports()]
    if shared.wants_resume(options):
        plan = of_run(plan, pending.caller.home, options["resume_from"])
    print_warnings(plan)
    pending.check()
    pending.find_routes([host.interface for host in resolved.hosts])
    if sync is not None:
        sync.finish([str(bind_word(*pair)) for pair in zip(folders, homes, strict=True)])
        nodes = [bind(plan, home).nodes[rank] for rank, home in enumerate(homes)]
        _bring(pending.machines, nodes, options)
    return pending.start(plan, options)


def again(plan: Plan, at: Pointer, options: dict[str, Any]) -> int:
    """Start a recorded plan again on its hosts, with the project as it lies there."""
    check_output(options, "rerun")
    pending = _PendingStart(plan, [place.host for place in at.places], at.hosts_file)
    pending.await_reports()
    known = resolver(at.hosts_file, may_prompt=False)
    pending.find_routes([known.host(place.host).interface for place in at.places])
    return pending.start(plan, options)


class _PendingStart:
    """A start on its way: an id, connections, and the report of each host."""

    def __init__(
        self,
        plan: Plan,
        hosts: Sequence[str],
        hosts_path: str | None,
        case: CheckContext | None = None,
    ) -> None:
        self.caller = caller(os.environ)
        self.run_id = store.new_id(plan.name, self.caller.utc, self.caller.random)
        self.hosts_path = hosts_path
        pool = host_pool(hosts_path)
        self.machines = [remote_machine.Machine(host, pool) for host in hosts]
        self.routes: Routes | None = None
        self.plan = plan
        self.reports: list[HostReport] = []
        self._case = case  # what is checked before anything is sent; None: nothing
        checked = case.hosts if case is not None else ()
        self._wanted = [checks_run.questions(host) for host in checked]
        self._checks: list[Pending] = []
        self._asked = together(self._ask, range(len(hosts)))

    def _ask(self, rank: int) -> Pending:
        path = self.plan.nodes[rank].interpreter.path
        python = None if path is None else str(bind_word(path, {Slot.HOME: "~"}))
        if self._case is not None:
            asked = quick.request(self._case.hosts[rank], self._wanted[rank], python)
            agent = self.machines[rank].agent
            # what is longer than a command may be is a round trip more
            ask = agent.ask_first if len(json.dumps(asked)) < EARLY else agent.ask
            ask("facts.begin", **asked)
        return remote.ask_report(self.machines[rank], python, self.run_id)

    def await_reports(self) -> list[HostReport]:
        """Wait for the report of each host, and return them. Raises HostError."""
        self.reports = together(lambda asked: remote.HostReport(asked.result()), self._asked)
        return self.reports

    def ask_checks(self) -> None:
        """Ask for what the checks need: it is found out beside all that was asked before."""
        if self._case is not None:
            self._checks = [machine.agent.ask_first("facts.end") for machine in self.machines]

    def check(self) -> None:
        """Make the quick checks. Raises Refused."""
        if self._case is not None:
            early = quick.run_early(self._case)
            answers = together(_answer, self._checks)
            report(quick.results(self._case, self._wanted, answers, early), self._case)

    def find_routes(self, interfaces: Sequence[str | None]) -> None:
        """Try the network between the hosts, before anything is sent or started."""
        if len(self.machines) > 1:
            from safelaunch.remote import routes  # noqa: PLC0415 - for several hosts only

            first = preflight.facts(self.plan.nodes[0], self.reports[0].machine, self.run_id)
            self.routes = routes.find(self.machines, interfaces, int(first[Slot.PORT]))

    def start(self, plan: Plan, options: dict[str, Any]) -> int:
        """Start the plan, and tell of it."""
        order = remote.StartOrder(
            plan,
            self.caller,
            self.run_id,
            self.hosts_path,
            self.routes,
            follow=bool(options["follow"]),
        )
        with interruptible():  # of several nodes all start, or none
            started = remote.start(order, self.machines, self.reports)
        return show_started(started, options)


class _Sync:
    """The project on its way to all hosts; to those that see one file system once."""

    def __init__(
        self, resolved: Resolved, machines: Sequence[Machine], options: dict[str, Any]
    ) -> None:
        sync = resolved.job.sync
        self._rules = Rules(resolved.project, sync.include, sync.exclude)
        self._machines = machines
        self._options = options
        self._begun: dict[int, PendingPush] = {}  # by the first host of each group

    def start(self, group: Sequence[int], folder: str) -> None:
        """Ask what a group of hosts holds; `~/` is the home folder there."""
        self._begun[group[0]] = start_push(
            self._machines[group[0]].agent,
            self._rules.root,
            folder,
            self._rules,
            delete=self._options["delete"],
            force=self._options["force"],
            cache=os.path.join(store.home(os.environ), "cache"),
        )

    def finish(self, folders: Sequence[str]) -> None:
        """Bring what the hosts lack, and say what that was."""
        several = groups(self._machines, folders)

        def finish_group(group: Sequence[int]) -> list[str]:
            if group[0] not in self._begun:
                self.start(group, folders[group[0]])
            summary = self._begun[group[0]].finish(
                confirm=_confirm if sys.stdin.isatty() else None,
                report=say,
                limit=None if self._options["yes"] else LIMIT,
            )
            return list(summary.lines(", ".join(self._machines[index].name for index in group)))

        for lines in together(finish_group, several):
            for line in lines:
                say(line)


def _bring(machines: Sequence[Machine], nodes: Sequence[NodePlan], options: dict[str, Any]) -> None:
    """Bring the assets to all hosts."""
    cache = os.path.join(store.home(os.environ), "cache")
    with Bar() as bar:
        brought = assets.everywhere(
            machines,
            nodes,
            force=options["force"],
            cache=cache,
            report=say,
            progress=bar.show,
        )
        told = [line for hosts, summary in brought for line in summary.lines(hosts)]
    for line in told:
        say(line)


def _answer(asked: Pending) -> dict[str, Any]:
    """Return what a probe told; nothing where it failed: that keeps no job from starting."""
    try:
        told: dict[str, Any] = asked.result()
    except AgentError:
        return {}
    return told


_turn = threading.Lock()


def _confirm(question: str) -> bool:
    with _turn:
        return click.confirm(question, err=True)
