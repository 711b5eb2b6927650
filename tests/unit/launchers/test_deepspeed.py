from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from support.pasted_line import argv_of, assert_same_job, keys_of, plan_of
from support.project import Project

from safelaunch.launchers import deepspeed
from safelaunch.launchers import load as load_launcher

if TYPE_CHECKING:
    from pathlib import Path

RUNNER = "<python> -m deepspeed.launcher.runner"
ALONE = f"{RUNNER} --hostfile /dev/null"
JOB = "launcher: deepspeed\nscript: train.py\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


MEANS: dict[str, tuple[dict[str, object], str]] = {
    "deepspeed --num_gpus 2 train.py --deepspeed ds.json": (
        {"processes": "2", "args": ["--deepspeed", "ds.json"]},
        f"{ALONE} --num_gpus 2 --master_port <port> train.py --deepspeed ds.json",
    ),
    "deepspeed train.py": (
        {"gpus": "auto"}, f"{ALONE} --master_port <port> train.py",
    ),
    "python -m deepspeed.launcher.runner --num_nodes=1 --num_accelerators=2 train.py": (
        {"processes": "2"}, f"{ALONE} --num_gpus 2 --master_port <port> train.py",
    ),
    "deepspeed -i localhost:0,3 --master_port=1234 --no_local_rank -q train.py": (
        {"gpus": ["0", "3"],
         "launcher_args": ["--master_port", "1234", "--no_local_rank", "--quiet"]},
        f"{ALONE} --include localhost:0,3 --master_port 1234 --no_local_rank --quiet train.py",
    ),
    "deepspeed --include localhost --bind_cores_to_rank train.py": (
        {"gpus": "auto", "launcher_args": ["--bind_cores_to_rank"]},
        f"{ALONE} --master_port <port> --bind_cores_to_rank train.py",
    ),
    "CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py": (
        {"gpus": ["2", "3"], "processes": "2"},
        f"{ALONE} --include localhost:2,3 --master_port <port> train.py",
    ),
    "deepspeed --exclude localhost:1 train.py": (
        {"gpus": "auto", "launcher_args": ["--exclude", "localhost:1"]},
        f"{ALONE} --master_port <port> --exclude localhost:1 train.py",
    ),
    "deepspeed --num_gpus=2 --autotuning run --no_python train.py": (
        {"processes": "2", "launcher_args": ["--autotuning", "run", "--no_python"]},
        f"{ALONE} --num_gpus 2 --master_port <port> --autotuning run --no_python train.py",
    ),
    "deepspeed -H hosts --num_nodes 2 --num_gpus 8 --master_addr a train.py": (
        {"processes": "8",
         "launcher_args": ["--hostfile", "hosts", "--num_nodes", "2", "--master_addr", "a"]},
        f"{RUNNER} --num_gpus 8 --hostfile hosts --num_nodes 2 --master_addr a train.py",
    ),
    "deepspeed --hostfile hosts --include a:0,1@b:2 train.py": (
        {"gpus": "auto",
         "launcher_args": ["--hostfile", "hosts", "--include", "a:0,1@b:2"]},
        f"{RUNNER} --hostfile hosts --include a:0,1@b:2 train.py",
    ),
    "deepspeed -i gpu-a:0,1 train.py": (
        {"gpus": "auto",
         "launcher_args": ["--include", "gpu-a:0,1", "--hostfile", "/job/hostfile"]},
        f"{RUNNER} --include gpu-a:0,1 --hostfile /job/hostfile train.py",
    ),
    "deepspeed --exclude gpu-b@gpu-c:3 --num_gpus 4 train.py": (
        {"processes": "4",
         "launcher_args": ["--exclude", "gpu-b@gpu-c:3", "--hostfile", "/job/hostfile"]},
        f"{RUNNER} --num_gpus 4 --exclude gpu-b@gpu-c:3 --hostfile /job/hostfile train.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", MEANS)
def test_a_line_becomes_keys_of_a_job(line: str) -> None:
    keys = {"launcher": "deepspeed", "script": "train.py"}
    assert keys_of(line) == {**keys, **MEANS[line][0]}


@pytest.mark.parametrize("line", MEANS)
def test_deepspeed_gets_the_flags_of_the_line(line: str, project: Project) -> None:
    assert argv_of(project, line) == MEANS[line][1]


@pytest.mark.parametrize("line", [*MEANS, "deepspeed --num_gpus 1 --module train --x"])
def test_the_written_job_starts_what_the_line_starts(line: str, project: Project) -> None:
    assert_same_job(project, shlex.split(line))


def test_a_variable_that_names_gpus_is_not_passed_over(project: Project) -> None:
    node = project.node(f"{JOB}processes: 2\nenv: {{CUDA_VISIBLE_DEVICES: '4,5,6'}}\n")
    assert "--include localhost:4,5 " in " ".join(map(str, node.argv))


def test_the_plan_shows_which_gpus_deepspeed_takes_where_they_are_counted(
    project: Project,
) -> None:
    env = project.env(f"{JOB}processes: 2\n")
    assert env["CUDA_VISIBLE_DEVICES"].value == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in project.env(f"{JOB}gpus: auto\n")


def test_a_module_stands_behind_its_flag(project: Project) -> None:
    line = "deepspeed --module --num_gpus 1 pkg.train --x"
    assert argv_of(project, line).endswith("--master_port <port> --module pkg.train --x")


def test_visible_gpus_that_deepspeed_itself_would_pass_over_are_named(project: Project) -> None:
    plan = plan_of(project, "CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py")
    assert [warning.id for warning in plan.warnings] == ["gpus-named"]
    assert plan_of(project, "CUDA_VISIBLE_DEVICES=2,3 deepspeed train.py").warnings == ()


TWO = f"{JOB}processes: 2\nhosts: [gpu1, gpu2]\n"


def test_each_node_of_several_starts_its_ranks_without_ssh(project: Project) -> None:
    node = project.plan(TWO).nodes[1]
    words = " ".join(map(str, node.argv))
    assert (
        "--hostfile <run-dir>/hostfile --no_ssh --node_rank 1 --master_addr <master-addr>" in words
    )
    assert node.files == (("hostfile", "node-0 slots=2\nnode-1 slots=2\n"),)


def test_gpus_of_several_nodes_are_named_for_each(project: Project) -> None:
    node = project.plan(f"{JOB}gpus: [1, 3]\nhosts: [gpu1, gpu2]\n").nodes[0]
    assert "--include node-0:1,3@node-1:1,3" in " ".join(map(str, node.argv))
    assert node.files == (("hostfile", "node-0 slots=4\nnode-1 slots=4\n"),)


def test_a_node_by_hand_meets_the_others_at_the_port_of_deepspeed(project: Project) -> None:
    keys = "processes: 2\nnodes: 2\nnode_rank: 1\nlauncher_args: {master_addr: gpu1}\n"
    plan = project.plan(JOB + keys)
    words = " ".join(map(str, plan.nodes[0].argv))
    assert "--no_ssh --node_rank 1 --master_port 29500 --master_addr gpu1 train.py" in words
    assert str(plan.manual_node) == "1 of 2, rendezvous gpu1:29500"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{JOB}processes: 2\nlauncher_args: {{include: 'localhost:0'}}\n", "`--include` is not"),
        (f"{JOB}gpus: [0]\nlauncher_args: {{exclude: 'localhost:1'}}\n", "takes no `--exclude`"),
        (f"{JOB}gpus: [GPU-12]\n", "takes GPUs by number"),
        (f"{TWO}launcher_args: {{hostfile: x}}\n", "`--hostfile` of deepspeed together with"),
        (f"{JOB}gpus: auto\nhosts: [gpu1, gpu2]\n", "`gpus: auto` on several nodes"),
        (f"{JOB}processes: 2\nlauncher_args: {{no_local_ranks: true}}\n", "has no flag"),
    ],
)
def test_what_deepspeed_would_refuse_later_is_refused(
    text: str, message: str, project: Project
) -> None:
    assert message in project.refused(text).message


def test_on_the_cpu_deepspeed_is_told_so(project: Project) -> None:
    assert project.env(f"{JOB}profile: cpu\nprocesses: 2\n")["DS_ACCELERATOR"].value == "cpu"


@pytest.mark.parametrize("flag", ["hostfile: x", "autotuning: run", "exclude: 'localhost:1'"])
def test_ranks_are_not_counted_where_deepspeed_decides(flag: str, project: Project) -> None:
    job = project.resolve(f"{JOB}gpus: auto\nlauncher_args: {{{flag}}}\n").job
    assert deepspeed.ranks_per_node(job) is None


def test_a_port_of_a_hostfile_is_not_one_of_this_machine(project: Project) -> None:
    flags = "{master_port: 1234}", "{master_port: 1234, hostfile: x}"
    jobs = [project.resolve(f"{JOB}processes: 1\nlauncher_args: {text}\n").job for text in flags]
    ports = [load_launcher("deepspeed").rendezvous(job, {}).ports for job in jobs]
    assert [[fixed.port for fixed in of_job] for of_job in ports] == [[1234], []]
