"""What a run records of its collectives, from a rank to what `show` prints."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from support.flight_dumps import recorders

if TYPE_CHECKING:
    from support.workspace import Place

# a program that writes what NCCL and torch write, into the files that they would write
RANK = """
import os, sys
path = os.environ["NCCL_DEBUG_FILE"].replace("%p", str(os.getpid()))
with open(path, "w") as file:
    file.write(
        "h:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\\n"
        "h:1:2 [0] NCCL INFO 4 coll channels, 4 collnet channels, 0 nvls channels\\n"
        "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\\n"
    )
"""
TIMEOUT = """
for rank in (0, 1):
    os.rename("flight-%d" % rank, os.path.join(os.path.dirname(path), "flight-%d" % rank))
print(
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for "
    "600026 milliseconds before timing out.", flush=True
)
os.abort()
"""


def test_show_says_what_nccl_chose(place: Place) -> None:
    run = place.start(place.ranks(RANK))
    assert place.ended(run)["state"] == "succeeded"
    lines = place.cli("show", run).stdout.splitlines()
    assert "  nccl      2.27.3+cuda12.9, 4 channels, P2P/CUMEM" in lines


def test_the_failure_of_a_timeout_names_the_slow_rank(place: Place) -> None:
    for rank in [rank.call() for rank in recorders(2)]:
        recorder = rank if rank.rank else rank.waits()
        recorder.write(place.project)
    place.write("train.py", RANK + TIMEOUT)
    run = place.start(place.shell("exec python train.py"))
    place.ended(run)
    shown = " ".join(place.cli("show", run).stdout.split())
    assert "slow-rank: rank 1 has not come: rank 0 waits in all_reduce 2 of default_pg" in shown
    report = place.json("show", run)["failure"]["collectives"]
    assert (report["kind"], report["rank"]) == ("slow-rank", 1)


def test_a_report_has_the_log_of_nccl_and_no_pickle(place: Place) -> None:
    for recorder in recorders(2):
        recorder.waits().write(place.project)
    place.write("train.py", RANK + TIMEOUT)
    run = place.start(place.shell("exec python train.py"))
    place.ended(run)
    place.cli("report", run, "--output", "report.zip")
    with zipfile.ZipFile(place.project / "report.zip") as archive:
        names = archive.namelist()
    assert any(name.startswith("nccl/attempt-1/rank-0.") for name in names), names
    assert not any("flight" in name for name in names)
