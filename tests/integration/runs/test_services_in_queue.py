"""Cards of a job and of its services: waited for together in the queue, or named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.cards.pretended import PretendedCards
from support.workspace import Place, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# it says its cards, and goes on until a file of its name is there
WAITS = "echo cards=$CUDA_VISIBLE_DEVICES; while [ ! -e $0.end ]; do sleep 0.05; done"


@pytest.fixture
def lab(place: Place, tmp_path: Path) -> Iterator[Place]:
    """Yield a place on a machine with four pretended cards."""
    place.env |= PretendedCards(tmp_path, 4).environ()
    yield place
    for name in ("first", "second"):
        place.write(f"{name}.end", "")


def _program(name: str, **keys: Any) -> dict[str, Any]:
    return {"launcher": "command", "command": ["bash", "-c", WAITS, name], **keys}


def _service(name: str, **keys: Any) -> dict[str, Any]:
    return _program(name, ready={"log": "^cards="}, **keys)


def _job(lab: Place, name: str, **keys: Any) -> str:
    return lab.job("", name, script=None, **_program(name, **keys))


def _cards_of(lab: Place) -> list[str]:
    """Return the run that has each card, "" for none."""
    (machine,) = lab.json("gpus")["hosts"]
    runs = [[user["run"] for user in card.get("runs", ())] for card in machine["cards"]]
    return ["".join(dict.fromkeys(names)) for names in runs]


def _line(lab: Place, run: str, *words: str) -> str:
    return lab.cli("logs", run, *words).stdout.splitlines()[0]


def test_a_job_and_its_services_wait_for_all_their_cards(lab: Place) -> None:
    first = lab.start(_job(lab, "first", gpus=2, queue=True))
    wait_for(lambda: lab.status(first)["state"] == "running", "a run with two cards")
    services = {"server": _service("server", gpus=1), "reward": _service("reward")}
    second = lab.start(_job(lab, "second", gpus=2, queue=True, services=services))
    wait_for(lambda: "3 free cards" in str(lab.status(second).get("waits_for")), "a run that waits")
    lab.write("first.end", "")
    wait_for(lambda: lab.status(second)["state"] == "running", "a run in its turn")
    assert _line(lab, second, "--service", "server") == "cards=2"
    assert _line(lab, second, "--service", "reward") == "cards="
    assert "cards=0,1" in lab.cli("logs", second).stdout
    record = json.loads((lab.node(second) / "run.json").read_text())
    assert record["gpus"] == ["0", "1"]
    assert _cards_of(lab) == [second, second, second, ""]
    lab.write("second.end", "")
    assert lab.json("wait", second)["state"] == "succeeded"
    assert _cards_of(lab) == [""] * 4


def test_cards_that_a_service_names_are_those_of_its_run_for_the_queue(lab: Place) -> None:
    services = {"server": _service("server", gpus=[2]), "reward": _service("reward")}
    first = lab.start(_job(lab, "first", gpus=[0], services=services))
    wait_for(lambda: lab.status(first)["state"] == "running", "a run with its service")
    assert _cards_of(lab) == [first, "", first, ""]
    second = lab.start(_job(lab, "second", gpus=3, queue=True))
    wait_for(
        lambda: f"{first} has 0, 2" in str(lab.status(second).get("waits_for")), "who has them"
    )
    lab.write("first.end", "")
    wait_for(lambda: lab.status(second)["state"] == "running", "a run in its turn")
    lab.write("second.end", "")
    assert lab.json("wait", second)["state"] == "succeeded"


def test_a_start_is_told_of_cards_that_services_of_live_runs_have(lab: Place) -> None:
    services = {"server": _service("server", gpus=[2])}
    first = lab.start(_job(lab, "first", gpus=[0], services=services))
    wait_for(lambda: lab.status(first)["state"] == "running", "a run with its service")
    services = {"server": _service("server", gpus=[3]), "reward": _service("reward", gpus=[2])}
    warning = lab.cli("run", _job(lab, "second", gpus=[1], services=services)).stderr
    text = " ".join(warning.split())
    assert (
        f"this job and its services use GPUs 1, 2, 3, and the live run `first` ({first}) has 2"
        in text
    )


def test_a_dry_run_says_how_many_cards_the_queue_has_to_give(lab: Place) -> None:
    services = {"server": _service("server", gpus=1)}
    job = _job(lab, "first", gpus=2, queue=True, services=services)
    assert "waits for 3 free cards of the machine" in lab.cli("run", "--dry-run", job).stdout


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({"gpus": [2]}, "`queue` and `gpus: [2]`: the queue chooses the cards"),
        ({"queue": True, "gpus": 1}, "`queue` of a service"),
        (
            {"env": {"CUDA_VISIBLE_DEVICES": "2"}},
            "`CUDA_VISIBLE_DEVICES` of a service and `queue`, which chooses the cards",
        ),
    ],
)
def test_cards_of_a_service_that_the_queue_cannot_give_are_refused(
    lab: Place, service: dict[str, Any], message: str
) -> None:
    job = _job(lab, "first", gpus=2, queue=True, services={"server": _service("server", **service)})
    assert message in lab.cli("run", "--dry-run", job, code=2).stderr
