"""Prepares a start on hosts: connects, makes the quick checks, syncs the project and the assets."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import quick
from safelaunch.checks import run as checks_run
from safelaunch.config.paths import project_on_host
from safelaunch.model import Slot, bind_word
from safelaunch.plan.build import bind
from safelaunch.remote.agent_client import EARLY, AgentError
from safelaunch.remote.assets import push_assets
from safelaunch.remote.host_pool import Machine
from safelaunch.remote.parallel import together
from safelaunch.remote.routes import find as find_routes
from safelaunch.remote.shared_filesystem import groups
from safelaunch.remote.start import PreparedStart, machine_report, request_report
from safelaunch.start import preflight
from safelaunch.sync.ignore import Rules
from safelaunch.sync.push import LIMIT, start_push

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan, Word
    from safelaunch.remote.agent_client import Agent, PendingReply
    from safelaunch.remote.host_pool import HostPool
    from safelaunch.start.caller import Caller
    from safelaunch.sync.push import PendingPush
    from safelaunch.sync.transfer_progress import TransferProgress


class Checks(NamedTuple):
    """The quick checks before a start: `report` raises Refused where they forbid it."""

    context: CheckContext
    report: Callable[[Sequence[CheckResult], CheckContext], None]


class ProjectSync(NamedTuple):
    """The project and the assets of a job, and how they are copied to its hosts."""

    resolved: Resolved
    delete: bool = False  # remove there what earlier syncs copied and is gone here
    force: bool = False  # overwrite files that were changed there
    limit: int | None = LIMIT  # bytes of a sync above which `confirm` is asked
    confirm: Callable[[str], bool] | None = None  # None: refused above the limit
    report: Callable[[str], None] = lambda _: None
    progress: Callable[[TransferProgress], None] | None = None  # of assets


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

    `hosts` are those of the plan's nodes. Without `sync` the project is used as it lies there.
    Raises ConfigError, HostError, StartError and Refused.
    """
    if sync is not None:
        for node in plan.nodes:
            preflight.check_assets(node.assets)
    run_id = f"{plan.name}-{caller.id_suffix}"
    machines = [Machine(host, pool) for host in hosts]
    quick_checks = None if checks is None else _QuickChecks(checks)

    def ask(rank: int) -> PendingReply:
        path, agent = plan.nodes[rank].interpreter.path, machines[rank].agent
        python = None if path is None else _with_tilde(path)
        if quick_checks is not None:
            quick_checks.ask(rank, agent, python)
        return request_report(machines[rank], python, run_id)

    replies = together(ask, range(len(machines)))
    transfer = None
    if sync is not None:
        transfer = _Transfer(sync, machines, os.path.join(caller.home, "cache"))
    answers = [machine.agent.ask_first("facts.end") for machine in machines if quick_checks]
    reports = together(machine_report, replies)
    if quick_checks is not None:
        quick_checks.report(answers)
    routes = None
    if len(machines) > 1:
        facts = preflight.facts(plan.nodes[0], reports[0], run_id)
        routes = find_routes(machines, int(facts[Slot.PORT]))
    if transfer is not None:
        transfer.finish(plan, [{Slot.HOME: report.home} for report in reports])
    return PreparedStart(plan, caller, run_id, machines, reports, routes)


def _with_tilde(path: Word) -> str:
    """Return a path on a host whose home folder is not known yet."""
    return str(bind_word(path, {Slot.HOME: "~"}))


class _QuickChecks:
    """The questions of the quick checks to all hosts: asked first, answered beside the rest."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        # not by several threads: each would read the project
        self._questions = [checks_run.questions(host) for host in checks.context.hosts]

    def ask(self, rank: int, agent: Agent, python: str | None) -> None:
        request = quick.request(self._checks.context.hosts[rank], self._questions[rank], python)
        # a request longer than a command may be costs a round trip more
        ask = agent.ask_first if len(json.dumps(request)) < EARLY else agent.ask
        ask("facts.begin", **request)

    def report(self, replies: Sequence[PendingReply]) -> None:
        context = self._checks.context
        early = quick.run_early(context)
        answers = together(_probe_answer, replies)
        self._checks.report(quick.results(context, self._questions, answers, early), context)


def _probe_answer(reply: PendingReply) -> dict[str, Any]:
    """Return the answer of a probe; empty where it failed: that keeps no job from starting."""
    try:
        answer: dict[str, Any] = reply.result()
    except AgentError:
        return {}
    return answer


class _Transfer:
    """The project on its way to all hosts; to those that share a file system once."""

    def __init__(self, sync: ProjectSync, machines: Sequence[Machine], cache: str) -> None:
        job, project = sync.resolved.job.sync, sync.resolved.project
        self._sync = sync
        self._machines = machines
        self._cache = cache
        self._rules = Rules(project, job.include, job.exclude)
        self._folders = [project_on_host(host, project) for host in sync.resolved.hosts]
        self._pending: PendingPush | None = None
        if len(machines) == 1:  # its first request travels with the others
            self._pending = self._start_push(machines[0], _with_tilde(self._folders[0]))

    def _start_push(self, machine: Machine, folder: str) -> PendingPush:
        root, delete, force = self._rules.root, self._sync.delete, self._sync.force
        return start_push(
            machine.agent, root, folder, self._rules, delete=delete, force=force, cache=self._cache
        )

    def finish(self, plan: Plan, homes: Sequence[dict[Slot, str]]) -> None:
        """Send what the hosts lack, and report what that was."""
        sync, machines = self._sync, self._machines
        pairs = zip(self._folders, homes, strict=True)
        folders = [str(bind_word(folder, home)) for folder, home in pairs]

        def push(group: Sequence[int]) -> list[str]:
            first = group[0]
            pending = self._pending or self._start_push(machines[first], folders[first])
            summary = pending.finish(confirm=sync.confirm, report=sync.report, limit=sync.limit)
            return list(summary.lines(", ".join(machines[rank].name for rank in group)))

        for lines in together(push, groups(machines, folders)):
            for line in lines:
                sync.report(line)
        nodes = [bind(plan, home).nodes[rank] for rank, home in enumerate(homes)]
        options = {"force": sync.force, "cache": self._cache, "report": sync.report}
        for names, summary in list(push_assets(machines, nodes, sync.progress, **options)):
            for line in summary.lines(names):
                sync.report(line)
