"""The truth about ranks that are started without a launcher, also where torchrun's own is wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.faults.kill_matrix import none_left
from support.faults.rank_failures import CASES, Case, run_case
from support.flight_dumps import recorders
from support.workspace import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place

pytestmark = pytest.mark.train
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_became_of_a_rank_is_told_and_nothing_is_left(case: Case, tmp_path: Path) -> None:
    assert run_case(case, str(tmp_path)) is None


FORKED = [
    case
    for case in CASES
    if case.name
    in (
        "segmentation fault",
        "an exception that the program's hook does not show",
        "an exception that nobody can see",
        "an exception in a thread",
    )
]


@pytest.mark.parametrize("case", FORKED, ids=str)
def test_it_is_told_of_a_rank_that_is_a_fork_too(case: Case, tmp_path: Path) -> None:
    case = case._replace(keys={**case.keys, "preload": ["decimal"]})
    assert run_case(case, str(tmp_path)) is None


@pytest.mark.parametrize("case", FORKED, ids=str)
def test_it_is_told_of_a_restart_that_keeps_its_imports_too(case: Case, tmp_path: Path) -> None:
    assert run_case(case, str(tmp_path), start="restart") is None


@pytest.mark.parametrize("moment", ["folder", "status", "rank"])
def test_a_stop_in_the_middle_of_a_start_leaves_nothing(place: Place, moment: str) -> None:
    client = place.popen("run", "--no-check", place.direct(FOREVER))
    runs = place.home / "runs"
    run = str(wait_for(lambda: runs.is_dir() and os.listdir(runs), "run")[0])
    awaited = {
        "folder": place.node(run),
        "status": place.node(run) / "status.json",
        "rank": place.logs(run) / "rank-0.log",
    }[moment]
    wait_for(awaited.exists, moment)
    place.cli("stop", run, code=None)
    client.communicate()
    place.cli("stop", run, code=None)  # the first one may have come before there was anything
    none_left(place, run)
    if place.node(run).exists():
        assert place.json("show", run)["state"] == "stopped"


def test_a_rank_that_cannot_be_run_is_told(place: Place) -> None:
    failure = place.failed(place.direct("", setup=["rm job.py"]))["failure"]
    assert failure["exit_code"] == 2
    assert "can't open file" in failure["what"]


def test_a_setup_that_fails_is_no_end_of_a_launcher(place: Place) -> None:
    shown = place.failed(place.direct("", setup=["echo no such module >&2; exit 3"]))
    failure = shown["failure"]
    what = "the starter of the ranks exited with code 3: no such module"
    assert (failure["rank"], failure["what"]) == (None, what)
    assert "launcher" not in shown["screen"].replace("--launcher", "")


# rank 0 writes what torch would write, once it is asked to, and waits for ever
ARMED = """
import os, time
if os.environ["RANK"] == "1":
    while not os.path.exists("waits"): time.sleep(0.01)
    {}["labels"]
stem = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
with open(stem + "0.pipe", opener=lambda path, _: os.open(path, os.O_RDWR)) as pipe:
    open("waits", "w").close()
    pipe.readline()
os.rename("flight-0", stem + "0")
open("dumped", "w").close()
while True: time.sleep(60)
"""


def test_ranks_that_go_on_after_a_failure_are_asked_what_they_wait_in(place: Place) -> None:
    recorders(2)[0].waits().write(place.project)
    shown = place.failed(place.direct(ARMED, peer_grace="2s"))
    failure = shown["failure"]
    assert (failure["rank"], failure["what"]) == (1, "KeyError: 'labels'")
    what = failure["collectives"]["what"]
    assert what.startswith("rank 0 waits in all_reduce 1 of default_pg")
    assert what.endswith("rank 1 left no dump")
    assert [event["ranks"] for event in place.events(shown["id"], "dumps-requested")] == [[0]]
