"""The launch script of a manifest, run as two pods would run it: beside each other, with torch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from support.project import Project

from safelaunch.config.resolve import Flags
from safelaunch.plan.serialize import plan_json

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 120  # seconds
RANKS = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total.item()}", flush=True)
dist.destroy_process_group()
"""
JOB = """
launcher: torchrun
script: train.py
nodes: 2
processes: 1
env: {{GLOO_SOCKET_IFNAME: lo}}  # both pods are this machine
kubernetes: {{image: a, workdir: '{workdir}', cpu: 1}}
"""


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.mark.train
def test_two_pods_become_the_ranks_of_one_job(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "train.py").write_text(RANKS)
    plan = project.plan(JOB.format(workdir=tmp_path), Flags(engine="kubernetes", profile="cpu"))
    manifest = yaml.safe_load_all(plan_json(plan)["engine"]["manifest"])
    launch_sh = tmp_path / "launch.sh"
    launch_sh.write_text(next(manifest)["data"]["launch.sh"], encoding="utf-8")
    env = {
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        "SAFELAUNCH_MASTER_ADDR": "127.0.0.1",
        "SAFELAUNCH_MASTER_PORT": free_port(),
    }
    pods = [
        subprocess.Popen(
            ["bash", launch_sh],
            env={**env, "JOB_COMPLETION_INDEX": number},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in ("1", "0")
    ]
    try:
        logs = [pod.communicate(timeout=LIMIT)[0] for pod in pods]
    finally:
        for pod in pods:  # torchrun ends its ranks
            pod.terminate()
            pod.wait()
    assert [pod.returncode for pod in pods] == [0, 0], logs
    assert ["rank 1 of 2 sum 3" in logs[0], "rank 0 of 2 sum 3" in logs[1]] == [True, True], logs
