"""What torch itself writes into a dump is understood: gloo has the recorder of NCCL."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.workspace import DEADLINE

from safelaunch.runtime.collectives import dumps, verdict
from safelaunch.runtime.failure import log_tails

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.train

TRAIN = """
import os, sys, threading, time
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

folder, late, store = sys.argv[1:]
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)

def dump():
    while len([n for n in os.listdir(folder) if n.startswith("ready")]) < 2:
        time.sleep(0.05)
    time.sleep(0.5)
    with open(os.path.join(folder, "part-%d" % rank), "wb") as file:
        file.write(_dump_fr_trace())
    os.rename(file.name, os.path.join(folder, "flight-%d" % rank))
    while len([n for n in os.listdir(folder) if n.startswith("flight")]) < 2:
        time.sleep(0.05)
    os._exit(0)

def step():
    dist.all_reduce(torch.ones(4))

def other():
    dist.broadcast(torch.ones(7), 0)

step()
dist.barrier()
threading.Thread(target=dump).start()
open(os.path.join(folder, "ready-%d" % rank), "w").close()
if rank == 0:
    step()
elif late == "desync":
    other()
time.sleep(600)
"""


def run(root: Path, late: str) -> dict[str, object]:
    """Let two ranks hang; return the verdict about the dumps that torch has written."""
    script, folder = root / "train.py", root / "dumps"
    script.write_text(TRAIN)
    folder.mkdir()
    words = [sys.executable, str(script), str(folder), late, str(root / "store")]
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    ranks = [subprocess.Popen(words, env={**env, "RANK": str(rank)}) for rank in range(2)]
    try:
        for rank in ranks:
            assert rank.wait(DEADLINE) == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    states = dumps.read_all(
        dumps.paths(str(folder)), lambda frames: log_tails.user_frame(frames, [str(root)])
    )
    return verdict.report(states).to_json()


def test_a_dump_of_torch_shows_a_rank_that_did_not_come(tmp_path: Path) -> None:
    report = run(tmp_path, "slow-rank")
    line = 1 + TRAIN[: TRAIN.index("    dist.all_reduce")].count("\n")
    assert (report["kind"], report["rank"]) == ("slow-rank", 1)
    assert f"rank 0 waits in all_reduce 3 of default_pg (train.py:{line})" in str(report["what"])


def test_a_dump_of_torch_shows_a_desync(tmp_path: Path) -> None:
    report = run(tmp_path, "desync")
    assert report["kind"] == "desync"
    assert "all_reduce [4] Float in rank 0" in str(report["what"])
    assert "broadcast [7] Float in rank 1" in str(report["what"])
