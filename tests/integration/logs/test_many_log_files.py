"""Jobs that write a great deal: chatty logs, and more log files than are followed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.workspace import Place

# a new file for each step, as a framework does that starts a worker for each
FILES = (
    "import os, time\nos.makedirs('out')\n"
    "for n in range(1, 241):\n"
    "    with open(f'out/w-{n:03}.log', 'w') as log: print(f'step {n}/240 loss 0.5', file=log)\n"
    "    time.sleep(0.036)\n"
)
CHATTY = (
    "import time\n"
    "for n in range(1, 101):\n"
    "    print(('x' * 109 + '\\n') * 180 + f'step {n}/100 loss 0.5', flush=True)\n"
    "    time.sleep(0.03)\n"
)


def test_a_job_that_writes_ever_new_files_is_followed_to_its_end(place: Place) -> None:
    # 64 files are followed at once: the rest is written for longer than the job may be silent
    hang = {"action": "stop", "floor": "5s", "first_progress": "60s", "factor": 2}
    run = place.start(place.job(FILES, logs=["out/*.log"], hang=hang, success={"min_steps": 240}))
    status = place.ended(run)
    assert (status["state"], status.get("reason")) == ("succeeded", None), place.events(run)
    merged = (place.logs(run) / "combined.log").read_text()
    assert [n for n in range(1, 241) if f"step {n}/240 " not in merged] == []
    assert place.events(run, "hang-suspected") == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_steps_of_a_chatty_job_are_all_counted(place: Place, ranks: int) -> None:
    success = {"min_steps": 100}
    job = place.ranks(CHATTY, ranks, success=success) if ranks > 1 else ""
    run = place.start(job or place.job(CHATTY, success=success))
    status = place.ended(run)
    assert (status["state"], status.get("reason")) == ("succeeded", None)
