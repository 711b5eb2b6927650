"""What is checked, and how machines are asked for it: for `check`, and before each start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.checks import run
from safelaunch.checks.context import Ways, asked
from safelaunch.cli.info.collect_facts import Told, Wanted, probe_here, probe_there
from safelaunch.config import profiles
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError, HostError, StartError, did_you_mean
from safelaunch.model import Host, Origin, Slot
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.run import Case, Result, Site
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.remote.host_pool import HostPool

_SHOWN = 5  # hosts that are named in a hint


class Lies(NamedTuple):
    """Where the project lies on this machine, and on each host; there nowhere else: no hosts."""

    project: str
    places: tuple[str, ...] = ()


def of_plan(resolved: Resolved, plan: Plan, lies: Lies, *, is_quick: bool = False) -> Case:
    """Return a job with its plan and its machines."""
    case = run.Case(
        resolved,
        plan,
        project=lies.project,
        shown=lies.places,
        environ=os.environ,
        is_here=not lies.places,
        is_quick=is_quick,
    )
    pairs = zip(resolved.hosts, plan.nodes, strict=True)
    sites = [run.Site(host, resolved.profile_of(host), node, case=case) for host, node in pairs]
    return run.joined(case, sites)


def of_machines(names: Sequence[str], known: hosts_file.Hosts, profile: str | None) -> Case:
    """Return machines without a job, this one where none is named. Raises ConfigError."""
    case = run.Case(environ=os.environ, is_here=not names)
    sites = []
    for name in hosts_file.expand(known, tuple(names)) if names else (hosts_file.LOCAL,):
        host = known.machines.get(name) or Host(name)
        where = Origin("--profile") if profile else known.profiles.get(name, Origin("hosts"))
        said = profile or host.profile
        base = os.path.dirname(os.path.abspath(where.source)) if where.line else os.getcwd()
        sites.append(run.Site(host, profiles.load(said, where, base) if said else None))
    return run.joined(case, sites)


def ask(
    case: Case, home: str, pool: HostPool | None, *, deep: bool = False
) -> list[Told | HostError]:
    """Return what each machine told, or why it told nothing; hosts are asked beside each other."""
    # not by several threads: each would read the project
    wanted_of = [run.questions(case, site) for site in case.sites]

    def one(index: int) -> Told | HostError:
        site, questions = case.sites[index], wanted_of[index]
        request = run.request(site, questions)
        wanted = Wanted(site.interpreter, deep)
        if pool is None:
            told = probe_here(home, wanted, **request)
        else:
            try:
                told = probe_there(pool, home, site.name, wanted, **request)
            except HostError as e:
                return e
        return told._replace(questions=questions)

    everyone = range(len(case.sites))
    if pool is None:
        return [one(index) for index in everyone]
    from safelaunch.remote.parallel import together  # noqa: PLC0415 - for hosts only

    return together(one, everyone)


def check_names(names: Sequence[str]) -> None:
    """Refuse this machine as a host. Raises ConfigError."""
    if hosts_file.LOCAL in names:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine",
            hint="leave `--host` out: this machine is meant then",
        )


def explain(told: Sequence[Told | HostError], home: str, path: str | None) -> None:
    """Let the error of a host that nobody knows say what makes it known. Raises ConfigError."""
    from safelaunch.ssh.errors import Unknown  # noqa: PLC0415 - for hosts only

    for one in told:
        if isinstance(one, Unknown):
            one.hint = _making_known(str(one.where), home, path)


def _making_known(name: str, home: str, path: str | None) -> str:
    """Return what to do about a host whose name leads nowhere. Raises ConfigError."""
    from safelaunch.remote.session import known_hosts  # noqa: PLC0415 - where one is not known
    from safelaunch.ssh.config import local_user, reader  # noqa: PLC0415

    hosts, here = known_hosts(home, path), local_user.here(os.environ)
    file = path or here.shown(os.path.join(home, hosts_file.FILE))
    host = hosts.machines.get(name)
    if host is not None:
        key = "ssh" if host.ssh else "address"
        return f"correct `{key}:` of `{name}` in {file}, or bring the VPN up that knows it"
    known = dict.fromkeys((*hosts.machines, *hosts.groups, *reader.names(here)))
    option = f" --hosts {quote(path)}" if path else ""
    added = f"`safelaunch hosts add {name} USER@ADDRESS{option}`"
    near = did_you_mean(name, known)
    if near is not None:
        return f"{near} else {added}"
    listed = ", ".join(list(known)[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    start = f"known are {listed}; " if known else ""
    return f"{start}{added} says where it is; a VPN that knows the name may be down"


def judged(case: Case, told: Sequence[Told | HostError]) -> list[Result]:
    """Return what the checks say of the machines that told something, and which told nothing."""
    pairs = list(zip(case.sites, told, strict=True))
    left = [(site, one) for site, one in pairs if isinstance(one, Told)]
    lost = [_unreachable(site, one) for site, one in pairs if isinstance(one, HostError)]
    if not left:
        return lost  # there is no machine to judge
    answers = [(one.facts, one.parts, one.questions) for _, one in left]
    whole = run.with_facts(run.joined(case, [site for site, _ in left]), answers)
    return lost + run.run(whole)


def _unreachable(site: Site, error: HostError) -> Result:
    return run.Result("reached", "network", site.name, "fail", error.message, error.hint or "")


def ways(case: Case, pool: HostPool) -> Ways:
    """Try the network between the hosts of a job, as a start does. Raises HostError."""
    from safelaunch.remote import (  # noqa: PLC0415
        machine,
        routes,
    )
    from safelaunch.remote import start as remote  # noqa: PLC0415 - as above
    from safelaunch.start import preflight  # noqa: PLC0415 - as above

    machines = [machine.Machine(site.name, pool) for site in case.sites]
    first = case.sites[0]
    try:
        asked = remote.ask_report(machines[0], first.interpreter, case.job.name)
        report = remote.HostReport(asked.result()).machine
        port = preflight.facts(first.plan, report, case.job.name)[Slot.PORT]
        found = routes.find(machines, [site.host.interface for site in case.sites], int(port))
    except StartError as e:
        return Ways(e.message, e.hint or "")
    return Ways(None, "", found.addresses, found.interfaces)


def shared(case: Case, pool: HostPool) -> dict[str, list[list[int]]]:
    """Return which hosts see the same folder, for each that a job's nodes must see together.

    Raises HostError.
    """
    from safelaunch.checks.project import outputs  # noqa: PLC0415 - for several hosts only
    from safelaunch.remote import shared_filesystem as remote  # noqa: PLC0415 - as above
    from safelaunch.remote.machine import Machine  # noqa: PLC0415

    machines = [Machine(site.name, pool) for site in case.sites]
    found = {}
    for path in outputs.shared_folders(case):
        groups = remote.seen(machines, [asked(path)] * len(machines))
        if groups is not None:
            found[path] = groups
    return found
