"""Runs that wait for free cards, on a machine with pretended ones: `--queue` and `gpus`."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from support.cards.pretended import PretendedCards
from support.cards.queue_trial import machine
from support.faults.queue_kills import QueueCase, run_case
from support.workspace import Place, wait_for

from safelaunch.runtime.card_claims import claims

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# it says its cards, and goes on until a file of its name is there
WAITS = "echo cards=$CUDA_VISIBLE_DEVICES; while [ ! -e $0.end ]; do sleep 0.05; done"


@pytest.fixture
def cards(tmp_path: Path) -> PretendedCards:
    return PretendedCards(tmp_path, 4)


@pytest.fixture
def lab(place: Place, cards: PretendedCards) -> Iterator[Place]:
    place.env |= cards.environ()
    yield place
    for name in "abcdefgh":
        place.write(f"{name}.end", "")


def job(lab: Place, name: str, gpus: object, **keys: Any) -> str:
    """Write a job that has so many cards until `end`; return its file."""
    command = ["bash", "-c", WAITS, name]
    queue = keys.pop("queue", True)
    return lab.job("", name, launcher="command", command=command, script=None, gpus=gpus,
                   queue=queue, **keys)  # fmt: skip


def end(lab: Place, name: str) -> None:
    lab.write(f"{name}.end", "")


def running(lab: Place, run: str) -> list[str]:
    """Wait until a run has its cards; return them."""
    wait_for(lambda: lab.status(run)["state"] == "running", f"{run} that runs")
    words: list[str] = json.loads((lab.node(run) / "run.json").read_text())["gpus"]
    return words


def waiting(lab: Place, run: str, text: str) -> str:
    """Wait until a run says that it waits for something."""
    wait_for(lambda: text in str(lab.status(run).get("waits_for")), f"{run} that waits: {text}")
    return str(lab.status(run)["waits_for"])


def queue(lab: Place) -> list[str]:
    """Return the runs in the queue, in order."""
    (machine,) = lab.json("gpus")["hosts"]
    return [waiter["run"] for waiter in machine["queue"]]


def test_a_run_waits_for_its_cards_and_takes_them_in_its_turn(lab: Place) -> None:
    first = lab.start(job(lab, "a", 3))
    assert running(lab, first) == ["0", "1", "2"]
    four = lab.start(job(lab, "b", 4))
    text = waiting(lab, four, "4 free cards (place 1)")
    assert f"{first} has 0, 1, 2" in text
    small = lab.start(job(lab, "c", 1))  # a card is free, but who came before it would starve
    waiting(lab, small, "1 free card (place 2)")
    urgent = lab.start(job(lab, "d", 1, queue={"priority": 10}))
    assert running(lab, urgent) == ["3"]
    assert queue(lab) == [four, small]
    assert "waits for 4 free cards" in lab.cli("ps").stdout
    end(lab, "a")
    end(lab, "d")
    assert running(lab, four) == ["0", "1", "2", "3"]
    assert lab.status(small)["state"] == "pending"
    end(lab, "b")
    end(lab, "c")
    assert lab.json("wait", small)["state"] == "succeeded"
    assert "cards=0,1,2,3" in lab.cli("logs", four).stdout
    assert queue(lab) == []


def test_what_else_uses_cards_is_seen_and_named(lab: Place, cards: PretendedCards) -> None:
    named = lab.start(job(lab, "a", [1], queue=None))
    running(lab, named)
    cards.use(os.getpid(), 3)
    pair = lab.start(job(lab, "b", 2))
    assert running(lab, pair) == ["0", "2"]
    last = lab.start(job(lab, "c", 1))
    text = waiting(lab, last, "place 1")
    assert f"{named} has 1" in text
    assert f"python3 (pid {os.getpid()}" in text
    states = [card["state"] for card in lab.json("gpus")["hosts"][0]["cards"]]
    assert states == ["reserved", "reserved", "reserved", "busy"]
    cards.use(os.getpid())
    assert running(lab, last) == ["3"]
    warning = lab.cli("run", job(lab, "d", [1], queue=None)).stderr
    assert named in warning


@pytest.mark.parametrize("who", ["holder", "waiter"])
def test_a_supervisor_that_is_killed_gives_its_cards_or_its_place_to_the_next(
    who: str, lab: Place, cards: PretendedCards
) -> None:
    first, second, third = (lab.start(job(lab, name, 4)) for name in "abc")
    running(lab, first)
    waiting(lab, third, "place 2")
    killed = first if who == "holder" else second
    os.kill(lab.status(killed)["supervisor"]["pid"], signal.SIGKILL)
    end(lab, "a")
    running(lab, second if who == "holder" else third)
    wait_for(lambda: lab.status(killed)["state"] == "lost", "a run that is lost")
    lives = [claim.file.run for claim in claims.live(str(cards.claims))]
    assert killed not in lives


def test_a_run_stays_in_the_queue_whatever_becomes_of_its_client(tmp_path: Path) -> None:
    assert run_case(QueueCase("KILL", "client"), str(tmp_path)) is None


def test_stop_takes_a_run_out_of_the_queue(lab: Place) -> None:
    first, second, third = (lab.start(job(lab, name, 4)) for name in "abc")
    running(lab, first)
    waiting(lab, third, "place 2")
    lab.cli("stop", second)
    shown = lab.json("show", second)
    assert (shown["state"], shown["attempts"], shown["proof"]) == ("stopped", [], "wait")
    assert queue(lab) == [third]
    lab.cli("stop", first)
    running(lab, third)


def test_a_run_keeps_its_cards_over_its_restarts(lab: Place, cards: PretendedCards) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES >>seen; [ -e once ] || { touch once; kill -9 $$; }"
    cards.use(os.getpid(), 0)
    file = lab.shell(script, gpus=2, queue=True, recovery={"max_restarts": 2, "backoff": "1s"})
    lab.json("wait", lab.start(file))
    assert (lab.project / "seen").read_text().split() == ["1,2", "1,2"]


def test_more_cards_than_the_machine_has_are_a_failure_at_once(lab: Place) -> None:
    shown = lab.json("wait", lab.start(job(lab, "a", 5)), code=1)
    assert (shown["failure"]["class"], shown["attempts"]) == ("cards", [])
    assert "this machine has 4 cards" in shown["failure"]["what"]
    assert queue(lab) == []


def test_of_the_cards_of_a_machine_the_environment_of_the_start_leaves_some(lab: Place) -> None:
    lab.env["CUDA_VISIBLE_DEVICES"] = "2,3"
    first, second = lab.start(job(lab, "a", 2)), lab.start(job(lab, "b", 1))
    assert running(lab, first) == ["2", "3"]
    waiting(lab, second, "place 1")
    del lab.env["CUDA_VISIBLE_DEVICES"]
    third = lab.start(job(lab, "c", 2))  # the one before it has no use for these
    assert running(lab, third) == ["0", "1"]


def test_two_users_at_once_are_never_given_the_same_card() -> None:
    with machine(2) as shared:
        outcome = shared.trial(8, kills=1, seed=1)
    assert outcome.wrong == []
    assert outcome.succeeded + outcome.killed == 8
    assert max(outcome.handovers, default=0.0) < 30.0  # scripts/bench queue measures it
