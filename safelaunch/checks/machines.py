"""What is checked: a job with its plan on its hosts, or hosts alone; and their results."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.checks import run
from safelaunch.checks.context import CheckContext, HostContext
from safelaunch.checks.registry import CheckResult
from safelaunch.config import profiles
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.paths import project_on_host
from safelaunch.errors import ConfigError, HostError
from safelaunch.model import Host, Origin, Slot, bind_word
from safelaunch.plan.build import bind, bind_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan


def for_plan(
    resolved: Resolved, plan: Plan, environ: Mapping[str, str], *, is_quick: bool = False
) -> CheckContext:
    """Return the context of a job with its plan and its hosts."""
    project_dirs: tuple[str, ...] = ()
    if resolved.flags.remote:
        home = {Slot.HOME: "~"}  # the host itself expands it
        folders = [project_on_host(host, resolved.project) for host in resolved.hosts]
        project_dirs = tuple(str(bind_word(folder, home)) for folder in folders)
        job = bind_job(resolved.job, {**home, Slot.PROJECT: project_dirs[0]})
        resolved, plan = resolved._replace(job=job), bind(plan, home)
    context = CheckContext(
        resolved,
        plan,
        project=resolved.project,
        project_dirs=project_dirs,
        environ=environ,
        is_local=not resolved.flags.remote,
        is_quick=is_quick,
    )
    pairs = list(zip(resolved.hosts, plan.nodes, strict=True))
    if plan.engine is not None:
        del pairs[1:]  # all are behind one login node
    if plan.service_nodes:
        del pairs[-plan.service_nodes :]  # what runs there is checked as a job of its own
    hosts = [HostContext(host, resolved.profile_of(host), node) for host, node in pairs]
    return run.with_hosts(context, hosts)


def for_services(context: CheckContext) -> list[tuple[str, CheckContext]]:
    """Return the name of each service of a job, and the context in which it is checked."""
    if context.resolved is None or context.plan is None:
        return []
    with_ranks = len(context.plan.nodes) - context.plan.service_nodes
    pairs = zip(context.resolved.services, context.plan.services, strict=True)
    contexts = []
    for service, own in pairs:
        plan = own.plan
        if own.node >= with_ranks:  # its port is not looked at with the job, on that one's hosts
            plan = replace(plan, services=(replace(own, node=0),))
        contexts.append((own.plan.name, for_plan(service.resolved, plan, context.environ)))
    return contexts


def for_hosts(
    names: Sequence[str],
    hosts: hosts_file.Hosts,
    profile: str | None,
    environ: Mapping[str, str],
) -> CheckContext:
    """Return the context of hosts without a job, this machine by default. Raises ConfigError."""
    selected = []
    for name in hosts_file.expand(hosts, tuple(names)) if names else (hosts_file.LOCAL,):
        host = hosts.machines.get(name) or Host(name)
        where = Origin("--profile") if profile else hosts.profiles.get(name, Origin("hosts"))
        name_or_path = profile or host.profile
        base = os.path.dirname(os.path.abspath(where.source)) if where.line else os.getcwd()
        loaded = profiles.load(name_or_path, where, base) if name_or_path else None
        selected.append(HostContext(host, loaded))
    return run.with_hosts(CheckContext(environ=environ, is_local=not names), selected)


def refuse_local(names: Sequence[str]) -> None:
    """Refuse this machine as a host. Raises ConfigError."""
    if hosts_file.LOCAL in names:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine",
            hint="leave out `--host`: this machine is the default",
        )


def results(
    context: CheckContext, replies: Sequence[run.HostReply | HostError]
) -> list[CheckResult]:
    """Return an error for each host that did not answer, and the checks' results for the others."""
    pairs = list(zip(context.hosts, replies, strict=True))
    lost = [
        CheckResult("reached", "network", host.name, "fail", error.message, error.hint or "")
        for host, error in pairs
        if isinstance(error, HostError)
    ]
    answered = [host for host, reply in pairs if isinstance(reply, run.HostReply)]
    if not answered:
        return lost
    whole = run.with_hosts(context, answered)
    return lost + run.run(
        run.attach_answers(whole, [r for r in replies if isinstance(r, run.HostReply)])
    )
