"""What is checked: a job with its plan on its machines, or machines alone; and the results."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import run
from safelaunch.config import profiles
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.paths import project_on_host
from safelaunch.errors import ConfigError, HostError
from safelaunch.model import Host, Origin, Slot, bind_word
from safelaunch.plan.build import bind, bind_job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.run import Case, Result, Site
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan


class Answers(NamedTuple):
    """What a machine answered: its facts, the parts of its answer, the questions in it."""

    facts: dict[str, Any]
    parts: Mapping[str, Any]
    questions: Sequence[Question] = ()


def for_plan(
    resolved: Resolved, plan: Plan, environ: Mapping[str, str], *, is_quick: bool = False
) -> Case:
    """Return a job with its plan and its machines."""
    places: tuple[str, ...] = ()
    if resolved.flags.remote:
        home = {Slot.HOME: "~"}  # as the machine itself understands it
        folders = [project_on_host(host, resolved.project) for host in resolved.hosts]
        places = tuple(str(bind_word(folder, home)) for folder in folders)
        job = bind_job(resolved.job, {**home, Slot.PROJECT: places[0]})
        resolved, plan = resolved._replace(job=job), bind(plan, home)
    case = run.Case(
        resolved,
        plan,
        project=resolved.project,
        shown=places,
        environ=environ,
        is_here=not resolved.flags.remote,
        is_quick=is_quick,
    )
    pairs = zip(resolved.hosts, plan.nodes, strict=True)
    sites = [run.Site(host, resolved.profile_of(host), node, case=case) for host, node in pairs]
    return run.joined(case, sites)


def for_machines(
    names: Sequence[str],
    hosts: hosts_file.Hosts,
    profile: str | None,
    environ: Mapping[str, str],
) -> Case:
    """Return machines without a job, this one where none is named. Raises ConfigError."""
    case = run.Case(environ=environ, is_here=not names)
    sites = []
    for name in hosts_file.expand(hosts, tuple(names)) if names else (hosts_file.LOCAL,):
        host = hosts.machines.get(name) or Host(name)
        where = Origin("--profile") if profile else hosts.profiles.get(name, Origin("hosts"))
        name_or_path = profile or host.profile
        base = os.path.dirname(os.path.abspath(where.source)) if where.line else os.getcwd()
        loaded = profiles.load(name_or_path, where, base) if name_or_path else None
        sites.append(run.Site(host, loaded))
    return run.joined(case, sites)


def refuse_local(names: Sequence[str]) -> None:
    """Refuse this machine as a host. Raises ConfigError."""
    if hosts_file.LOCAL in names:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine",
            hint="leave `--host` out: this machine is meant then",
        )


def results(case: Case, answers: Sequence[Answers | HostError]) -> list[Result]:
    """Return what the checks make of the machines that answered, and which did not answer."""
    pairs = list(zip(case.sites, answers, strict=True))
    answered = [(site, one) for site, one in pairs if isinstance(one, Answers)]
    lost = [_unreachable(site, one) for site, one in pairs if isinstance(one, HostError)]
    if not answered:
        return lost
    facts = [(one.facts, one.parts, one.questions) for _, one in answered]
    whole = run.with_facts(run.joined(case, [site for site, _ in answered]), facts)
    return lost + run.run(whole)


def _unreachable(site: Site, error: HostError) -> Result:
    return run.Result("reached", "network", site.name, "fail", error.message, error.hint or "")
