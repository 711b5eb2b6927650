"""A job that makes no progress: suspected, with stacks as evidence, and ended where it asks so.

And a supervisor whose own files are spoilt: it stays honest, and the job is not ended for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workspace import Place

# steps that are known soon, so that not the time of the start counts but silence after it
SOON = {"first_progress": "60s", "floor": "1s", "factor": 1}
STEPS = (
    "open('up.' + os.environ['RANK'], 'w').close()\n"
    "while not all(os.path.exists('up.%d' % rank) for rank in (0, 1)): time.sleep(0.01)\n"
    "for step in range(1, 6): print(f'step {step}/9 loss 0.5', flush=True); time.sleep(0.1)\n"
)
# rank 1 sleeps where rank 0 waits for it, as before a collective
STUCK = (
    "import os, time\n"
    "def wait_for_the_other():\n    while not os.path.exists('go'): time.sleep(0.05)\n"
    "def load_a_batch():\n    while not os.path.exists('go'): time.sleep(0.05)\n"
    + STEPS
    + "first = os.environ['SAFELAUNCH_ATTEMPT'] == '1'\n"
    "if first: wait_for_the_other() if os.environ['RANK'] == '0' else load_a_batch()\n"
    "print('on', flush=True)\n"
)


def stacks(place: Place, run: str) -> str:
    """Return what was written about the ranks' stacks."""
    hang = wait_for(lambda: (place.status(run).get("hang") or {}).get("folder"), "stacks")
    folder = place.node(run).__class__(hang)
    assert folder.is_relative_to(place.node(run))
    return "\n".join(p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file())


def test_a_hang_is_reported_with_the_stacks_of_all_ranks(
    place: Place, ranks_job: Callable[..., str]
) -> None:
    run = place.start(ranks_job(STUCK, hang=SOON))
    text = stacks(place, run)
    assert "wait_for_the_other" in text
    assert "load_a_batch" in text
    shown = place.cli("show", run).stdout
    assert "suspected: no output and no step" in shown
    assert os.path.basename(place.status(run)["hang"]["folder"]) in shown
    assert place.json("show", run)["state"] == "running"  # `report` ends nothing
    place.write("go", "")
    assert place.ended(run)["state"] == "succeeded"


def test_a_hang_can_stop_the_job(place: Place) -> None:
    shown = place.failed(place.ranks(STUCK, hang={**SOON, "action": "stop"}))
    assert shown["failure"]["class"] == "hang"
    assert "no output and no step for" in shown["failure"]["what"]
    assert processes.marked(shown["id"]) == {}
    assert "load_a_batch" in stacks(place, shown["id"])


# rank 0 waits for what a thread of its own was to bring
BEREFT = (
    """
import os, queue, threading, time
ready = queue.Queue()
def prefetch():
    raise OSError("corrupt shard train-0008.tar")
"""
    + STEPS
    + """
if os.environ["RANK"] == "0":
    threading.Thread(target=prefetch, daemon=True).start()
    ready.get()
while True: time.sleep(60)
"""
)


def test_a_hang_for_a_dead_thread_names_its_exception(place: Place) -> None:
    shown = place.failed(place.ranks(BEREFT, hang={**SOON, "action": "stop"}))
    failure = shown["failure"]
    assert "OSError: corrupt shard train-0008.tar in thread prefetch, job.py:5" in failure["proof"]
    assert (failure["class"], failure["frame"]["function"]) == ("hang", "prefetch")
    assert "job.py:5 in prefetch" in shown["screen"]


def test_a_hang_can_restart_the_job(place: Place, ranks_job: Callable[..., str]) -> None:
    job = ranks_job(STUCK, hang={**SOON, "action": "restart"}, recovery={"backoff": "0s"})
    place.cli("run", "--follow", job)
    shown = place.json("show")
    assert [a.get("class") for a in shown["attempts"]] == ["hang", None]


def test_a_job_that_goes_on_is_not_suspected(place: Place) -> None:
    steps = "for n in range(1, 6): print(f'step {n}/9 loss 0.5'); time.sleep(0.1)\n"
    lines = "for n in range(25):\n    print('line', n)\n    time.sleep(0.1)\n"
    hang = {**SOON, "floor": "1.5s", "action": "stop"}
    place.cli("run", "--follow", place.job("import time\n" + steps + lines, hang=hang))
    assert place.events(place.json("show")["id"], "hang-suspected") == []


# -- a supervisor's own files ----------------------------------------------------------------------

WAITS = (
    "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(.02)\n"
)


def up(place: Place) -> tuple[str, Path]:
    """Start a job that waits for `go`; return the run and its status file."""
    run = place.start(place.ranks(WAITS))
    place.wait_for_text(run, "[1] up")
    return run, place.node(run) / "status.json"


@pytest.mark.parametrize(
    "spoilt", [b'{"version": 1, "sta', b"", b"\0\0\0", b"[1, 2]", b'{"state": 7}', None], ids=str
)
def test_a_status_that_cannot_be_read_ends_nothing(place: Place, spoilt: bytes | None) -> None:
    run, status = up(place)
    if spoilt is None:
        status.unlink()
    else:
        status.write_bytes(spoilt)
    shown = place.json("show", run)
    assert shown["state"] == "running"
    assert place.json("ps")["runs"][0]["state"] == "running"
    place.cli("show", run)
    place.write("go", "")
    assert place.ended(run)["state"] == "succeeded"


def test_a_run_whose_status_cannot_be_read_can_be_stopped(place: Place) -> None:
    run, status = up(place)
    status.write_bytes(b"{half")
    shown = place.json("stop", run)
    assert (shown["state"], shown["alive"]) == ("stopped", 0)


def test_a_failure_is_told_though_the_disk_is_full(small: Place) -> None:
    fails = "if os.environ['RANK'] == '1': raise ValueError('bad batch')\n"
    run = small.start(small.ranks(WAITS + fails))
    small.wait_for_text(run, "[1] up")
    with contextlib.suppress(OSError), open(small.home / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert small.json("show", run)["state"] == "running"
    small.write("go", "")
    assert small.ended(run)["state"] == "failed"
    failure = small.json("show", run)["failure"]
    assert (failure["rank"], failure["what"]) == (1, "ValueError: bad batch")
    assert "ValueError: bad batch" in small.cli("show", run).stdout


@pytest.mark.parametrize("jump", [-1e6, 1e6], ids=["back", "ahead"])
def test_a_clock_that_was_set_lies_about_no_time_span(place: Place, jump: float) -> None:
    """As if the clock had been set since the start: what was recorded lies far off now."""
    run, path = up(place)
    status: dict[str, Any] = json.loads(path.read_text())
    for key in ("started_at", "created_at"):
        status[key] += jump
    path.write_text(json.dumps(status))
    output = place.cli("show", run).stdout + place.cli("ps").stdout
    assert re.search(r"\s-\d", output) is None, output
    place.write("go", "")
    ended = place.ended(run)
    assert ended["state"] == "succeeded"
    assert 0 <= ended["elapsed"] < time.monotonic()
