"""The results of a run on a host are fetched at its end, before its machine is turned off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import wait_for

if TYPE_CHECKING:
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
USER = "alice" if sshd.ROOT else None
SAVE = (
    "import pathlib\npathlib.Path('out').mkdir()\npathlib.Path('out/model').write_text('w' * 9)\n"
)


@pytest.fixture
def far(place: Place, server: Sshd) -> Place:
    """Return a place whose ~/.ssh/config knows the host as gpu1."""
    place.ssh_config(server.ssh_config("gpu1", USER))
    return place


def _ending(far: Place, run: str, state: str) -> dict[str, Any]:
    def report() -> dict[str, Any] | None:
        shown = far.json("show", run).get("ending") or {}
        return shown if shown.get("state") == state else None

    return dict(wait_for(report, f"{state} of the end of {run}"))


def _job(far: Place, program: str, **keys: object) -> str:
    shutdown = {"command": "echo off", "grace": "0s", "others": "ignore"}
    keys = {"pull": "out/*", "shutdown": shutdown, **keys}
    return far.job(program, name="far", python=None, **keys)


def test_results_are_fetched_by_the_client_that_follows_and_then_the_machine_goes(
    far: Place,
) -> None:
    far.cli("remote", "--host", "gpu1", "--no-check", "--follow", _job(far, SAVE))
    run = str(far.json("show")["id"])
    assert (far.project / run / "out" / "model").read_text() == "w" * 9
    steps = _ending(far, run, "done")["steps"]
    assert [step["name"] for step in steps] == ["shutdown"]


def test_the_machine_waits_for_a_client_that_fetches_the_results(far: Place) -> None:
    job = _job(far, SAVE, on_end="touch there")
    run = str(far.json("remote", "--host", "gpu1", "--no-check", job)["id"])
    assert "no client has fetched the files of `pull`" in _ending(far, run, "waiting")["what"]
    assert "stays on" in far.cli("ps").stdout
    done = far.cli("wait", run)
    assert "fetched 1 file" in done.stderr
    _ending(far, run, "done")
    assert (far.project / run / "out" / "model").exists()


def test_a_run_without_results_does_not_keep_its_machine_on(far: Place) -> None:
    done = far.cli(
        "remote",
        "--host",
        "gpu1",
        "--no-check",
        "--follow",
        _job(far, "raise SystemExit(3)"),
        code=1,
    )
    assert "no file matches `out/*`" in done.stderr
    _ending(far, str(far.json("show")["id"]), "done")
