"""The ports of services, where several supervisors choose some at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.runtime.preconditions.services import Services
from safelaunch.runtime.records import RunRecord, ServiceSpec

if TYPE_CHECKING:
    from pathlib import Path


def _ports(tmp_path: Path) -> tuple[int, ...]:
    run = RunRecord(services=[ServiceSpec(name="rollout"), ServiceSpec(name="reward")])
    services = Services(run, str(tmp_path), 0o022).services
    for service in services:
        service.choose_port()
    return tuple(service.port for service in services)


def test_supervisors_with_the_same_pid_in_their_containers_search_from_different_ports(
    tmp_path: Path,
) -> None:
    assert len({_ports(tmp_path) for _ in range(8)}) > 1


def test_the_services_of_one_run_have_different_ports(tmp_path: Path) -> None:
    first, second = _ports(tmp_path)
    assert first != second
