"""The ports of services: fixed ones that are in use, and programs that are given none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

JOB = "launcher: python\nscript: train.py\nprofile: cpu\nservices:\n  server: {launcher: command, "
FREE = {"free": True}
USED = {"free": False, "listens": True, "holders": [{"command": "sshd", "pid": 7, "user": "root"}]}
CLOSING = {"free": False, "listens": False, "holders": []}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


@pytest.mark.parametrize(
    ("keys", "port", "status", "evidence"),
    [
        ("command: [serve], port: 22", FREE, "ok", "port 22 of services can be bound"),
        (
            "command: [serve], port: 22",
            USED,
            "fail",
            "port 22 of service `server` is in use by `sshd` (pid 7 of root)",
        ),
        ("command: [serve], port: 22", CLOSING, None, ""),
        (
            "command: [serve]",
            FREE,
            "fail",
            "service `server` has to listen on a free port, and is given none",
        ),
        ("command: [serve], ready: {http: /health}", FREE, "fail", "is given none"),
        ("command: [serve], ready: {log: up}", FREE, None, ""),
        ("command: [serve, '{services.server.port}']", FREE, None, ""),
        ("command: [serve], env: {URL: '{services.server.url}'}", FREE, None, ""),
    ],
)
def test_a_port_that_a_service_cannot_have_or_does_not_get_is_found_before_the_start(
    project: Project, keys: str, port: dict[str, Any], status: str | None, evidence: str
) -> None:
    context = make_context(project, f"{JOB}{keys}}}\n", answers={("port", 22): port}, is_quick=True)
    results = results_of(context, "service-ports")
    assert [result.status for result in results] == [status] * (status is not None)
    assert all(evidence in result.evidence for result in results)
