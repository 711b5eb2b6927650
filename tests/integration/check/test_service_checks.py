"""`check` of a job with services: each is checked as a job, by its own interpreter and script."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd
    from support.workspace import Place

USER = "alice" if sshd.ROOT else None
PARSER = (
    "import argparse\n"
    "parser = argparse.ArgumentParser()\n"
    "parser.add_argument('--port', type=int)\n"
    "parser.add_argument('--model')\n"
    "args = parser.parse_args()\n"
)


def _job(place: Place, **services: dict[str, Any]) -> str:
    place.write("server.py", PARSER)
    return place.job("print('up')\n", profile="cpu", python=None, services=services)


def _server(name: str, **keys: Any) -> dict[str, Any]:
    port = f"{{services.{name}.port}}"
    return {"launcher": "python", "script": "server.py", "args": {"port": port}, **keys}


def test_what_keeps_a_service_from_starting_is_found(place: Place) -> None:
    job = _job(
        place,
        good=_server("good"),
        option=_server("option", args={"port": "{services.option.port}", "modell": "x"}),
        script=_server("script", script="sever.py"),
        python=_server("python", python="/no/such/python"),
    )
    results = place.json("check", job, code=3)["results"]
    problems = {
        (result.get("service"), result["id"], result["status"])
        for result in results
        if result["status"] in ("warn", "fail")
    }
    assert problems == {
        ("option", "flags", "warn"),
        ("script", "script", "fail"),
        ("python", "interpreter", "fail"),
    }
    shown = place.cli("check", job, code=3).stdout
    lines = shown.splitlines()
    assert [line for line in lines if line.startswith("service ")] == [
        "service option",
        "service script",
        "service python",
    ]
    assert lines[-1].startswith("job on this machine: 2 errors, 1 warning")


def test_a_start_is_refused_for_a_port_that_is_taken(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = place.cli("run", _job(place, server=_server("server", port=port)), code=3)
    assert f"port {port} of service `server` is in use" in refused.stderr


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_the_services_of_a_job_are_checked_on_its_host(place: Place, server: Sshd) -> None:
    place.ssh_config(server.ssh_config("gpu1", USER))
    with socket.create_server(("127.0.0.1", 0)) as other:  # the host has this network too
        port = other.getsockname()[1]
        job = _job(
            place,
            good=_server("good"),
            taken=_server("taken", port=port),
            python=_server("python", python="/no/such/python"),
            script=_server("script", script="sever.py"),
        )
        results = place.json("check", "--host", "gpu1", job, code=3)["results"]
    failures = {
        (result.get("service"), result["id"]): (result["host"], result["evidence"])
        for result in results
        if result["status"] == "fail"
    }
    assert failures.keys() == {
        (None, "service-ports"),
        ("python", "interpreter"),
        ("script", "script"),
    }
    host, evidence = failures[None, "service-ports"]
    assert host == "gpu1"
    assert evidence.startswith(f"port {port} of service `taken` is in use")
    assert "/no/such/python" in failures["python", "interpreter"][1]
