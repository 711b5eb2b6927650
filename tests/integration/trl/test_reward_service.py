"""TRL's GRPO with its rewards from a service over HTTP: the example really trains on CPU."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from support.workspace import Place

EXAMPLE = REPOSITORY / "examples" / "trl"
VENV = os.environ.get("SAFELAUNCH_TRL_VENV") or str(REPOSITORY / ".venv-trl")
PYTHON = os.path.join(VENV, "bin", "python")
LIMIT = 300.0  # seconds: torch, TRL and accelerate take 20 of them to import on an idle machine
pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(not os.path.exists(PYTHON), reason="no TRL here: scripts/trl installs it"),
]


@pytest.fixture
def example(place: Place) -> Place:
    """Return a place whose project is the example."""
    shutil.copytree(EXAMPLE, place.project, dirs_exist_ok=True)
    return place


def start(place: Place) -> str:
    return place.start("grpo.yaml", "--set", f"python={PYTHON}")


def rewards(log: str) -> list[list[float]]:
    """Return the rewards in a log, of each call."""
    # a progress bar may stand before it in the line
    return [json.loads(row) for row in re.findall(r"rewards (\[.*?\])", log)]


def test_the_trainer_gets_its_rewards_from_the_service_over_http(example: Place) -> None:
    run = start(example)
    shown = example.json("wait", run, timeout=LIMIT)
    assert (shown["state"], shown["proof"]) == ("succeeded", "wait")
    served = rewards(example.cli("logs", run, "--service", "reward").stdout)
    log = example.cli("logs", run).stdout
    assert [len(row) for row in served] == [4, 4]  # a call for each step
    assert rewards(log) == served
    assert "'train_runtime'" in log
    assert [(service["name"], service["state"]) for service in shown["services"]] == [
        ("reward", "stopped")
    ]
    assert not processes.marked(run)


def test_a_reward_service_that_dies_between_two_steps_is_the_cause_of_the_end(
    example: Place,
) -> None:
    server = example.project / "scripts" / "reward_server.py"
    score = "def score(text: str) -> float:\n"
    limit = (
        "scored = []\n"
        f"{score}    scored.append(text)\n"
        "    if len(scored) > 4:\n        raise MemoryError('no memory left')\n"
    )
    server.write_text(server.read_text().replace(score, limit))
    run = start(example)
    failure = example.json("wait", run, code=1, timeout=LIMIT)["failure"]
    assert failure["service"] == "reward"
    assert "service reward has ended" in failure["what"]
    assert "MemoryError: no memory left" in json.dumps(failure)
    assert len(rewards(example.cli("logs", run).stdout)) == 1
    assert "service reward" in example.cli("show", run).stdout
    assert not processes.marked(run)
