"""The truth about ranks that are started without a launcher, also where torchrun's own is wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.faults.kill_matrix import none_left
from support.faults.rank_failures import CASES, Case, run_case
from support.workspace import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place

pytestmark = pytest.mark.train
FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_became_of_a_rank_is_told_and_nothing_is_left(case: Case, tmp_path: Path) -> None:
    assert run_case(case, str(tmp_path)) is None


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
