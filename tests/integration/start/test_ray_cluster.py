"""A job with a Ray of its own, where Ray cannot be brought up: its own words, and nothing left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

# as Ray 2.60 ends where another program has its port
TAKEN = """
import sys
print("Local node IP: 10.0.0.1", flush=True)
raise ConnectionError("Ray is trying to start at 127.0.0.1:6379, but is already running at it")
"""


def job(place: Place, ray: str) -> str:
    """Write a job, and a stand-in for the program `ray` that its interpreter imports."""
    for name in ("ray/__init__.py", "ray/scripts/__init__.py"):
        place.write(name, "")
    place.write("ray/scripts/scripts.py", ray)
    return place.job("print('trained')", ray_cluster=True, pythonpath=["."])


def test_a_ray_that_does_not_start_fails_the_run_with_what_it_said(place: Place) -> None:
    shown = place.failed(job(place, TAKEN), "--no-check")
    failure = shown["failure"]
    assert failure["class"] == "port-in-use"
    assert failure["what"].startswith(
        "Ray does not start: `ray start` exited with code 1: ConnectionError: Ray is trying"
    )
    assert "trained" not in place.cli("logs").stdout
    assert (place.node(shown["id"]) / "ray/attempt-1/ray-start.log").exists()
    assert processes.marked(shown["id"]) == {}


def test_a_start_is_refused_where_the_interpreter_has_no_ray(place: Place) -> None:
    name = place.job("", ray_cluster=True)
    assert "no `ray`" in place.cli("run", name, code=3).stderr
