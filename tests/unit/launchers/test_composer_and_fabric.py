from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from support.pasted_line import argv_of, assert_same_job, keys_of, plan_of
from support.project import Project

from safelaunch.errors import ConfigError
from safelaunch.launchers import load as load_launcher

if TYPE_CHECKING:
    from pathlib import Path

COMPOSER = "<python> -m composer.cli"
FABRIC = "<python> -m lightning.fabric.cli"
MEETING = "--master_addr 127.0.0.1 --master_port <port>"
MAIN = "--main-address 127.0.0.1 --main-port <port>"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


MEANS: dict[str, tuple[dict[str, object], str]] = {
    "composer -n 8 train.py --a": (
        {"launcher": "composer", "processes": "8", "args": ["--a"]},
        f"{COMPOSER} --nproc 8 {MEETING} train.py --a",
    ),
    "composer train.py": (
        {"launcher": "composer", "gpus": "auto"}, f"{COMPOSER} --nproc <gpus> {MEETING} train.py",
    ),
    "python -m composer.cli --nproc=2 --world_size 2 --node_rank 0 --stdout x{rank} train.py": (
        {"launcher": "composer", "processes": "2", "launcher_args": ["--stdout", "x{rank}"]},
        f"{COMPOSER} --nproc 2 {MEETING} --stdout x{{rank}} train.py",
    ),
    "composer -n2 --master_port 1234 -v train.py": (
        {"launcher": "composer", "processes": "2",
         "launcher_args": ["--master_port", "1234", "--verbose"]},
        f"{COMPOSER} --nproc 2 --master_addr 127.0.0.1 --master_port 1234 --verbose train.py",
    ),
    "fabric run --accelerator=cuda --devices=4 --strategy ddp train.py --x 1": (
        {"launcher": "fabric", "processes": "4", "args": ["--x", "1"],
         "launcher_args": ["--accelerator", "cuda", "--strategy", "ddp"]},
        f"{FABRIC} --devices 4 {MAIN} --accelerator cuda --strategy ddp -- train.py --x 1",
    ),
    "fabric run train.py --devices 2 --lr 1 --precision=bf16-mixed -devices 3": (
        {"launcher": "fabric", "processes": "2", "args": ["--lr", "1", "-devices", "3"],
         "launcher_args": ["--precision", "bf16-mixed"]},
        f"{FABRIC} --devices 2 {MAIN} --precision bf16-mixed -- train.py --lr 1 -devices 3",
    ),
    "fabric run train.py --x -- --devices 2": (
        {"launcher": "fabric", "processes": "1", "args": ["--x", "--devices", "2"]},
        f"{FABRIC} --devices 1 {MAIN} -- train.py --x --devices 2",
    ),
    "lightning run model --devices 0,2 train.py": (
        {"launcher": "fabric", "processes": "2", "launcher_args": ["--devices", "0,2"]},
        f"{FABRIC} {MAIN} --devices 0,2 -- train.py",
    ),
    "fabric run --devices -1 train.py": (
        {"launcher": "fabric", "gpus": "auto"}, f"{FABRIC} --devices <gpus> {MAIN} -- train.py",
    ),
    "fabric run --devices auto train.py": (
        {"launcher": "fabric", "processes": "1", "launcher_args": ["--devices", "auto"]},
        f"{FABRIC} {MAIN} --devices auto -- train.py",
    ),
    "fabric run --strategy dp --devices 4 train.py": (
        {"launcher": "fabric", "processes": "1",
         "launcher_args": ["--strategy", "dp", "--devices", "4"]},
        f"{FABRIC} {MAIN} --strategy dp --devices 4 -- train.py",
    ),
    "python -m lightning_fabric.cli --devices 2 train.py": (
        {"launcher": "fabric", "version": "lightning_fabric", "processes": "2"},
        f"<python> -m lightning_fabric.cli --devices 2 {MAIN} -- train.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", MEANS)
def test_a_line_becomes_keys_of_a_job(line: str) -> None:
    assert keys_of(line) == {"script": "train.py", **MEANS[line][0]}


@pytest.mark.parametrize("line", MEANS)
def test_the_launcher_gets_the_flags_of_the_line(line: str, project: Project) -> None:
    assert argv_of(project, line) == MEANS[line][1]


@pytest.mark.parametrize("line", [*MEANS, "composer -m -n 2 pkg.train x"])
def test_the_written_job_starts_what_the_line_starts(line: str, project: Project) -> None:
    assert_same_job(project, shlex.split(line))


def test_a_module_of_composer_stands_behind_its_switch(project: Project) -> None:
    assert argv_of(project, "composer -m -n 2 pkg.train x").endswith("--module_mode pkg.train x")


# line: the launcher's words, and where the nodes meet
BY_HAND = {
    "composer -n 8 --world_size 16 --node_rank 1 --master_addr a train.py": (
        "--nproc 8 --world_size 16 --node_rank 1 --master_port 29500 --master_addr a train.py",
        "1 of 2, rendezvous a:29500",
    ),
    "WORLD_SIZE=16 NODE_RANK=1 MASTER_ADDR=a MASTER_PORT=1 composer -n 8 train.py": (
        "--nproc 8 --world_size 16 --node_rank 1 --master_addr a --master_port 1 train.py",
        "1 of 2, rendezvous a:1",
    ),
    "composer -n 8 --world_size 16 --base_rank 8 --master_addr a --master_port 1 train.py": (
        "--nproc 8 --world_size 16 --node_rank 1 --master_addr a --master_port 1 train.py",
        "1 of 2, rendezvous a:1",
    ),
    "fabric run --devices 2 --num-nodes 3 --node-rank 2 --main-address a train.py": (
        "--devices 2 --num-nodes 3 --node-rank 2 --main-port 29400 --main_address a -- train.py",
        "2 of 3, rendezvous a:29400",
    ),
}


@pytest.mark.parametrize("line", BY_HAND)
def test_a_node_by_hand_meets_the_others_where_the_launcher_itself_would(
    line: str, project: Project
) -> None:
    plan = plan_of(project, line)
    assert (" ".join(map(str, plan.nodes[0].argv[3:])), str(plan.manual_node)) == BY_HAND[line]
    assert_same_job(project, shlex.split(line))


def test_flags_of_composer_beat_the_variables_that_stand_for_them() -> None:
    line = "LOCAL_WORLD_SIZE=8 WORLD_SIZE=8 MASTER_ADDR=a composer -n 8 --master_port 1 train.py"
    assert keys_of(line) == {
        "launcher": "composer", "script": "train.py", "processes": "8",
        "launcher_args": ["--master_addr", "a", "--master_port", "1"],
    }  # fmt: skip


def test_a_world_size_that_nodes_cannot_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="no multiple of --nproc 8"):
        keys_of("composer -n 8 --world_size 12 train.py")


NODES = "script: train.py\nprocesses: 2\nhosts: [gpu1, gpu2]\n"


@pytest.mark.parametrize(
    ("launcher", "flags"),
    [
        ("composer", "--world_size 4 --node_rank 1 --master_addr <master-addr>"),
        ("fabric", "--num-nodes 2 --node-rank 1 --main-address <master-addr>"),
    ],
)
def test_each_node_has_its_number(launcher: str, flags: str, project: Project) -> None:
    node = project.plan(f"launcher: {launcher}\n{NODES}").nodes[1]
    assert flags in " ".join(map(str, node.argv))


def test_fabric_on_the_cpu_is_told_so(project: Project) -> None:
    node = project.node("launcher: fabric\nscript: train.py\nprocesses: 2\nprofile: cpu\n")
    assert "--accelerator cpu" in " ".join(map(str, node.argv))


def test_devices_that_are_not_as_many_as_the_processes_are_refused(project: Project) -> None:
    text = "launcher: fabric\nscript: train.py\nprocesses: 2\nlauncher_args: {devices: '0,1,2'}\n"
    assert "`--devices 0,1,2` and `processes: 2`" in project.refused(text).message


@pytest.mark.parametrize(
    ("flags", "expected"), [("accelerator: cpu", False), ("accelerator: cuda", True)]
)
def test_ranks_of_fabric_take_a_gpu_unless_they_compute_on_the_cpu(
    flags: str, expected: bool, project: Project
) -> None:
    text = f"launcher: fabric\nscript: train.py\nprocesses: 2\nlauncher_args: {{{flags}}}\n"
    assert load_launcher("fabric").binds_gpus(project.resolve(text).job) is expected
