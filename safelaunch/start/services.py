"""Adds the services of a job to the request of its start on its machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.model import Slot
from safelaunch.plan.members.words import late_values as late_words
from safelaunch.runtime.members.ready_checks import LOOPBACK
from safelaunch.start import preflight
from safelaunch.start.local_probe import LocalProbe
from safelaunch.start.run_files import start_request
from safelaunch.start.scripts import late_values, members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import LateValue, Plan, Service
    from safelaunch.start.caller import Caller
    from safelaunch.start.preflight import MachineReport
    from safelaunch.start.run_files import StartRequest


def local_reports(plan: Plan, caller: Caller) -> list[MachineReport]:
    """Return what this machine reports by the interpreter of each service. Raises StartError."""
    return [
        LocalProbe(service.plan.nodes[0], caller.environ, has_backend=False).report(caller.home)
        for service in plan.services
    ]


def with_services(
    request: StartRequest,
    plan: Plan,
    caller: Caller,
    facts: Mapping[Slot, str],
    reports: Sequence[MachineReport],
    *,
    addresses: Sequence[str] = (),
) -> StartRequest:
    """Return the request with the files of the services that its node runs.

    `facts` are those of the job, `reports` those of the machine by each service's interpreter,
    `addresses` those of the nodes, of several. Raises StartError and ConfigError.
    """
    files: list[tuple[str, bytes]] = []
    env, specs, notes = dict(request.words["env"]), [], list(request.notes)
    for service, report in zip(plan.services, reports, strict=True):
        address = addresses[service.node] if addresses else LOOPBACK
        if service.node != request.run.node:  # it has to be known there
            specs.append(members.service_spec(service, "", address))
            continue
        own, start = _service_request(service, caller, facts, report)
        files += own
        env |= start.words["env"]
        notes += [f"service {service.plan.name}: {note}" for note in start.notes]
        spec = members.service_spec(service, start.run.cwd, address)
        # the supervisor gives it the folder of the claims, or cards out of those of the run
        if service.plan.queue is None and start.run.gpus:
            spec.cards, spec.gpus = start.run.cards, start.run.gpus
        start.run.cards = None
        specs.append(spec)
    request.run.services = specs
    sizes = [[name, len(body)] for name, body in files]
    return request._replace(
        words={**request.words, "files": [*request.words["files"], *sizes], "env": env},
        data=(*request.data, *(body for _, body in files)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _service_request(
    service: Service, caller: Caller, job_facts: Mapping[Slot, str], report: MachineReport
) -> tuple[tuple[tuple[str, bytes], ...], StartRequest]:
    """Return the files of a service, and the request that it would be as a run of its own."""
    plan, node = service.plan, service.plan.nodes[0]
    preflight.check_secrets(node, caller.environ)
    facts = preflight.facts(node, report, job_facts[Slot.RUN_ID])
    folder = f"{job_facts[Slot.RUN_DIR]}/members/{plan.name}/node-0"
    words: list[Slot | LateValue] = [Slot.PORT, *late_words(plan)]
    if plan.queue is not None:  # the run waits for its cards too
        words.append(Slot.CARDS)
    late = late_values.placeholders(plan, job_facts[Slot.RUN_ID], words)
    facts |= {Slot.RUN_DIR: folder, **late}
    start = start_request(
        replace(plan, log=None, queue=None),
        facts,
        caller._replace(after=()),
        report.environ,
        packages=[preflight.package_versions(node, report.probe)],
    ).unbound(late)
    names = [name for name, _ in start.words["files"]]
    bodies = dict(zip(names, start.data, strict=True))
    return members.member_files(plan.name, start.run, bodies, late), start
