"""Asks the engines of hosts for the images that the nodes of a plan run in."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.model import Slot, text
from safelaunch.plan.container import container_name, with_folder
from safelaunch.remote.parallel import together
from safelaunch.runtime.containers.image_probe import ContainerReport
from safelaunch.runtime.transfer import manifest
from safelaunch.start import container

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import Plan
    from safelaunch.remote.host_pool import Machine
    from safelaunch.remote.transfer import CodeFolder
    from safelaunch.start.preflight import MachineReport


def ask_images(
    plan: Plan,
    machines: Sequence[Machine],
    reports: Sequence[MachineReport],
    versions: Sequence[Mapping[str, str]],
    run_id: str,
) -> tuple[list[MachineReport], list[Mapping[str, str]]]:
    """Return the reports and versions of the nodes, those of containers by their images.

    The project must be there: a container of the question sees it. Raises HostError and Refused.
    """

    def ask(rank: int) -> MachineReport:
        node, report = plan.nodes[rank], reports[rank]
        if node.container is None:
            return report
        spec, arguments = container.probe_request(node, run_id, report.home, report.base)
        answer = machines[rank].agent.call(
            "containers.probe",
            spec=spec.to_json(),
            arguments=arguments,
            name=container_name(run_id, node.node_rank),
        )
        shown = ContainerReport.from_json(answer)
        return container.machine_report(node, shown, report.home, report.base)

    answers = together(ask, range(len(machines)))
    pairs = zip(answers, versions, strict=True)
    return answers, [
        own if report.container is None else container.gate_versions(report.container)
        for report, own in pairs
    ]


def with_place(plan: Plan, rank: int, code: CodeFolder) -> Plan:
    """Return the plan whose container sees the project's folder beside a run's own copy of it.

    The copy has links into that folder, and what the run makes moves there, by the manifests of
    both. Between two mounts nothing can be moved, so the container sees the folder of both.
    """
    node = plan.nodes[rank]
    if not code.tree or node.container is None:
        return plan
    container = with_folder(node.container, posixpath.dirname(code.place))
    container = with_folder(container, text(Slot.STORE, f"/{manifest.FOLDER}"))
    node = replace(node, container=container)
    return replace(plan, nodes=(*plan.nodes[:rank], node, *plan.nodes[rank + 1 :]))
