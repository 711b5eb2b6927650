"""Runs that wait for free cards of hosts, and the host of a group that has room first."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from support.cards.pretended import PretendedCards
from support.ssh import sshd
from support.ssh.sshd import Sshd
from support.workspace import Place, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing())),
    pytest.mark.skipif(not sshd.ROOT, reason="each host has cards of its own: only root may say"),
]
HOSTS = "hosts:\n  gpu1: {}\n  gpu2: {}\n  away: {}\ngroups:\n  lab: [away, gpu1, gpu2]\n"
WAITS = "echo cards=$CUDA_VISIBLE_DEVICES; while [ ! -e ENDS/$0 ]; do sleep 0.05; done"


@pytest.fixture
def lab(place: Place) -> Iterator[Place]:
    """Yield a place that knows two hosts with a card each, and one that does not answer."""
    with contextlib.ExitStack() as stack:
        config = ["Host away\n  HostName 127.0.0.1\n  Port 9\n"]
        for name in ("gpu1", "gpu2"):
            folder = place.root / name
            folder.mkdir()
            environ = PretendedCards(folder, 1).environ()
            variables = " ".join(f"{key}={value}" for key, value in environ.items())
            server = stack.enter_context(Sshd({"SetEnv": variables}))
            config.append(server.ssh_config(name))
        place.ssh_config("\n".join(config))
        place.home.mkdir(exist_ok=True)
        (place.home / "hosts.yaml").write_text(HOSTS)
        yield place
        for name in "abc":
            (place.root / name).touch()
        for run in place.json("ps")["runs"]:
            place.cli("wait", run["id"], code=None)


def start(lab: Place, name: str) -> tuple[str, str]:
    """Start a job on the host of the group that has room first; return its run and host."""
    command = ["bash", "-c", WAITS.replace("ENDS", str(lab.root)), name]
    job = lab.job("", name, launcher="command", command=command, script=None, gpus=1, python=None)
    shown = lab.json("remote", "--group", "lab", "--queue", "--no-check", "--yes", job)
    return shown["id"], shown["host"]


def test_a_group_gives_the_host_with_room_or_else_the_shortest_queue(lab: Place) -> None:
    first, second = start(lab, "a"), start(lab, "b")
    assert (first[1], second[1]) == ("gpu1", "gpu2")
    third, host = start(lab, "c")
    assert host == "gpu1"
    wait_for(
        lambda: f"{first[0]} has 0" in str(lab.json("show", third).get("waits_for")),
        "a run that waits on a host",
    )
    (machine,) = lab.json("gpus", "--host", "gpu1")["hosts"]
    assert [waiter["run"] for waiter in machine["queue"]] == [third]
    assert [user["run"] for user in machine["cards"][0]["runs"]] == [first[0]]
    assert "waits for 1 free card" in lab.cli("ps").stdout
    shown = lab.cli("gpus", "--host", "lab", code=4)
    assert "away" in shown.stderr
    assert second[0] in shown.stdout
    (lab.root / "a").touch()
    wait_for(lambda: lab.json("show", third)["state"] == "running", "a run in its turn")
    (lab.root / "c").touch()
    assert lab.json("wait", third)["state"] == "succeeded"
    assert "cards=0" in lab.cli("logs", third).stdout


def test_the_cards_of_services_count_for_a_group_and_for_the_queue_of_a_host(lab: Place) -> None:
    server = {"launcher": "command", "command": ["sleep", "600"], "ready": {"log": "up"}}
    words = ("--no-check", "--queue", lab.job("", gpus=1, python=None, services={
        "server": {**server, "gpus": 1}}))  # fmt: skip
    assert (
        "no host of `lab` has 2 cards" in lab.cli("remote", "--group", "lab", *words, code=2).stderr
    )
    run = lab.json("remote", "--host", "gpu1", *words)["id"]
    failure = lab.json("wait", run, code=1)["failure"]
    assert failure["class"] == "cards"
    assert failure["what"] == "it waits for 2 free cards, but this machine has 1 card"


def test_a_group_that_cannot_be_used_is_refused(lab: Place) -> None:
    job = lab.job("", gpus=2, python=None)
    for words, message in (
        (("--group", "lab"), "`--group` without `--queue`"),
        (("--group", "nowhere", "--queue"), "no group `nowhere`"),
        (("--group", "lab", "--host", "gpu1", "--queue"), "`--group` and `--host` together"),
        (("--group", "lab", "--queue"), "no host of `lab` has 2 cards"),
    ):
        assert message in lab.cli("remote", *words, job, code=2).stderr
    shown = lab.cli("remote", "--group", "lab", "--queue", "--dry-run", job)
    assert "as for the first host of lab" in shown.stderr
    assert os.listdir(lab.home) == ["hosts.yaml"]
