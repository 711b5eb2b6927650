"""Asks machines the questions of checks, and how the hosts of a job reach each other."""

# ruff: noqa: PLC0415 - what talks to hosts: a check of this machine does without its 30 ms

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.checks import run
from safelaunch.checks.context import RouteReport
from safelaunch.checks.run import HostReply
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import HostError, StartError, did_you_mean
from safelaunch.hostfacts.saved import ProbeOptions
from safelaunch.model import Slot
from safelaunch.remote.hosts.probe_facts import active_python, probe_host, probe_local
from safelaunch.remote.parallel import together
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.hostfacts.saved import SavedFacts
    from safelaunch.remote.host_pool import HostPool

_SHOWN = 5  # hosts that are named in a hint


def ask(
    context: CheckContext, saved: SavedFacts, pool: HostPool | None, *, deep: bool = False
) -> list[HostReply | HostError]:
    """Return what each machine answered, or why it did not; hosts are asked in parallel.

    Without a pool this machine is asked.
    """
    # not by several threads: each would read the project
    questions_of = [run.questions(host) for host in context.hosts]

    def ask_host(index: int) -> HostReply | HostError:
        host, questions = context.hosts[index], questions_of[index]
        request = run.request(host, questions)
        python = host.interpreter
        if python is None and context.is_local:  # also on a node, which has the same files
            python = active_python(context.environ)
        options = ProbeOptions(python, deep)
        if pool is None:
            answer = probe_local(saved, options, context.environ, **request)
        else:
            try:
                answer = probe_host(pool, saved, host.name, options, **request)
            except HostError as e:
                return e
        return HostReply(*answer, questions)

    if pool is None:
        return [ask_host(index) for index in range(len(context.hosts))]
    return together(ask_host, range(len(context.hosts)))


def add_hints(
    answers: Sequence[HostReply | HostError],
    home: str,
    hosts_path: str | None,
    environ: Mapping[str, str],
) -> None:
    """Give the error of an unknown host name a hint that helps. Raises ConfigError."""
    from safelaunch.ssh.errors import UnknownHostName

    for error in answers:
        if isinstance(error, UnknownHostName):
            error.hint = _hint(str(error.where), home, hosts_path, environ)


def _hint(name: str, home: str, hosts_path: str | None, environ: Mapping[str, str]) -> str:
    """Return what to do about a host name without an address. Raises ConfigError."""
    from safelaunch.remote.session import load_hosts
    from safelaunch.ssh.config import local_user, reader

    hosts, user = load_hosts(home, hosts_path), local_user.current_user(environ)
    file = hosts_path or user.shown(os.path.join(home, hosts_file.FILE))
    host = hosts.machines.get(name)
    if host is not None:
        key = "ssh" if host.ssh else "address"
        return f"correct `{key}:` of `{name}` in {file}, or bring the VPN up that knows it"
    names = dict.fromkeys((*hosts.machines, *hosts.groups, *reader.declared_hosts(user)))
    option = f" --hosts {quote(hosts_path)}" if hosts_path else ""
    added = f"`safelaunch hosts add {name} USER@ADDRESS{option}`"
    near = did_you_mean(name, names)
    if near is not None:
        return f"{near} else {added}"
    listed = ", ".join(list(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    start = f"known are {listed}; " if names else ""
    return f"{start}{added} says where it is; a VPN that knows the name may be down"


def try_routes(context: CheckContext, pool: HostPool) -> RouteReport:
    """Try the network between the hosts of a job, as a start does. Raises HostError."""
    from safelaunch.remote import routes
    from safelaunch.remote.host_pool import Machine
    from safelaunch.remote.start.prepare import machine_report, request_report
    from safelaunch.start import preflight

    machines = [Machine(host.name, pool) for host in context.hosts]
    first, job = context.hosts[0], context.job.name
    try:
        report = machine_report(request_report(machines[0], first.plan, first.interpreter, job))
        ways = routes.find(machines, int(preflight.facts(first.plan, report, job)[Slot.PORT]))
    except StartError as e:
        return RouteReport(e.message, e.hint or "")
    return RouteReport(None, "", ways.addresses, ways.interfaces)


def shared_folders(context: CheckContext, pool: HostPool) -> dict[str, list[list[int]]]:
    """Return which hosts see the same folder, for each that a job's nodes must see together.

    Raises HostError.
    """
    from safelaunch.checks.project import outputs
    from safelaunch.remote.host_pool import Machine
    from safelaunch.remote.shared_filesystem import existing_groups

    machines = [Machine(host.name, pool) for host in context.hosts]
    paths = outputs.shared_folders(context)
    groups = [(path, existing_groups(machines, [path] * len(machines))) for path in paths]
    return {path: indices for path, indices in groups if indices is not None}
