"""What torch itself writes into a dump is understood: gloo has the recorder of NCCL."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.workspace import DEADLINE

from safelaunch.runtime.collectives import dumps, verdict
from safelaunch.runtime.failure import log_tails

pytestmark = pytest.mark.train(share=True)

TRAIN = """
import os, pickle, sys, threading, time
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

store, folder, *others = sys.argv[1:]
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)

def calls():
    return len(pickle.loads(_dump_fr_trace())["entries"])

def await_files(name):
    while not all(os.path.exists(name % rank) for rank in range(2)):
        time.sleep(0.05)

def dump(folder, least):
    while calls() < least:
        time.sleep(0.05)
    with open(os.path.join(folder, "part-%d" % rank), "wb") as file:
        file.write(_dump_fr_trace())
    os.rename(file.name, os.path.join(folder, "flight-%d" % rank))
    await_files(os.path.join(folder, "flight-%d"))

def step():
    dist.all_reduce(torch.ones(4))

def other():
    dist.broadcast(torch.ones(7), 0)

def hang():
    step() if rank == 0 else other()

step()
dist.barrier()
before = calls()
if rank == 0:
    threading.Thread(target=hang, daemon=True).start()
dump(folder, before + (rank == 0))
if rank == 1:
    threading.Thread(target=hang, daemon=True).start()
dump(others[0], before + 1)
os._exit(0)
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], ...]:
    """Let two ranks hang; return the verdicts about torch's dumps before and after one more call.

    Both of one run: importing torch takes seconds.
    """
    root = tmp_path_factory.mktemp("ranks")
    script, folders = root / "train.py", [root / "late", root / "other"]
    script.write_text(TRAIN)
    for folder in folders:
        folder.mkdir()
    words = [sys.executable, str(script), str(root / "store"), *map(str, folders)]
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    ranks = [subprocess.Popen(words, env={**env, "RANK": str(rank)}) for rank in range(2)]
    try:
        for rank in ranks:
            assert rank.wait(DEADLINE) == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return tuple(
        verdict.report(
            dumps.read_all(
                dumps.paths(str(folder)), lambda frames: log_tails.user_frame(frames, [str(root)])
            )
        ).to_json()
        for folder in folders
    )


def test_a_dump_of_torch_shows_a_rank_that_did_not_come(
    reports: tuple[dict[str, object], ...],
) -> None:
    report = reports[0]
    line = 1 + TRAIN[: TRAIN.index("    dist.all_reduce")].count("\n")
    assert (report["kind"], report["rank"]) == ("slow-rank", 1)
    assert f"rank 0 waits in all_reduce 3 of default_pg (train.py:{line})" in str(report["what"])


def test_a_dump_of_torch_shows_a_desync(reports: tuple[dict[str, object], ...]) -> None:
    report = reports[1]
    assert report["kind"] == "desync"
    assert "all_reduce [4] Float in rank 0" in str(report["what"])
    assert "broadcast [7] Float in rank 1" in str(report["what"])
