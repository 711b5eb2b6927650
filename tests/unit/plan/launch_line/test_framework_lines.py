"""Pasted lines of training frameworks: no word is lost, and the job file means the same."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.framework_lines import LINES
from support.pasted_line import assert_same_job
from support.project import Project, shown

from safelaunch.errors import ConfigError
from safelaunch.plan.launch_line.read import read_line
from safelaunch.plan.launch_line.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("line", LINES)
def test_a_written_job_runs_the_same_script_as_the_line(line: str, project: Project) -> None:
    assert_same_job(project, shlex.split(line))


# what stands before the words of a program, and where those begin in the plan
BEFORE = {
    "swift sft": 4,
    "NPROC_PER_NODE=2 swift rlhf": 4,
    "swift deploy": 4,
    "NPROC_PER_NODE=2 megatron pt": 4,
    "megatron export": 4,
    "llamafactory-cli train": 4,
    "FORCE_TORCHRUN=1 NPROC_PER_NODE=2 llamafactory-cli train": 4,
    "llamafactory-cli api": 4,
    "tune run recipe": 5,
    "tune run --nproc_per_node 2 recipe": 9,
    "NPROC_PER_NODE=2 xtuner train": 4,
    "xtuner chat": 4,
    "trl sft": 4,
    "CUDA_VISIBLE_DEVICES=0,1 trl grpo": 4,
    "trl vllm-serve": 4,
    "axolotl train": 4,
    "axolotl evaluate --launcher torchrun": 6,
    "axolotl inference --launcher=python": 5,
    "axolotl preprocess": 4,
    "python -m verl.trainer.main_ppo": 3,
    "ray job submit -- python -m openrlhf.cli.train_ppo_ray": 9,
    "ray job submit --no-wait -- bash": 8,
}
WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0\r$", max_codepoint=0x2000),
               max_size=12) | st.sampled_from(
    ["", "-", "--a", "--a=b", "-1", "null", "true", "1e-3", "017", "a: b", "[", "{x: 1}", "'", '"',
     "\\", "\n", "x.yaml", "key=value", "+a.b=[1,2]", "--nodes", "2", "local_rank_x"]
)  # fmt: skip


@settings(
    max_examples=300,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(sorted(BEFORE)), st.lists(WORD, max_size=6))
def test_any_words_reach_the_program(project: Project, before: str, words: list[str]) -> None:
    plan = assert_same_job(project, [*before.split(" "), *words])
    start = BEFORE[before]
    assert shown(plan)[start : start + len(words)] == words


COUNTS = {
    "NPROC_PER_NODE=4 swift sft": 4,
    "NNODES=1 swift sft": 1,
    "NPROC_PER_NODE=04 NNODES=1 megatron sft": 4,
    "llamafactory-cli train x.yaml": None,
    "NPROC_PER_NODE=2 llamafactory-cli train x.yaml": 2,
    "CUDA_VISIBLE_DEVICES=0,1,2 llamafactory-cli train x.yaml": 3,
    "trl sft --num_processes 3": 3,
    "trl sft --num_processes 3 --num-processes=5": 5,
    "trl sft --num_machines 1 --machine_rank 0 --num_processes 2": 2,
    "CUDA_VISIBLE_DEVICES=0,1 trl sft": 2,
    "axolotl train c.yml --num-processes 2": 2,
    "axolotl train c.yml -- --num_machines 1 --use_fsdp --num_processes 2 --multi_gpu": 2,
    "axolotl train c.yml --launcher torchrun": 1,
    "axolotl train c.yml --launcher=torchrun -- --nproc-per-node 4": 4,
}


@pytest.mark.parametrize("line", COUNTS)
def test_a_line_says_how_many_ranks_there_are(line: str, project: Project) -> None:
    assert assert_same_job(project, line.split(" ")).topology.processes == COUNTS[line]


VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "NPROC_PER_NODE",
    "NNODES",
    "NODE_RANK",
    "MASTER_ADDR",
    "MIN_NNODES",
)


@pytest.mark.parametrize(
    "line",
    [
        "NPROC_PER_NODE= swift sft",
        "NPROC_PER_NODE=gpu swift sft",
        "NPROC_PER_NODE=0 megatron sft",
        "NPROC_PER_NODE=" + "9" * 5000 + " swift sft",
        "NPROC_PER_NODE=4 NNODES=2 swift sft",
        "NNODES=2 NODE_RANK=2 MASTER_ADDR=a swift sft",
        "NNODES=2 NODE_RANK=x MASTER_ADDR=a swift sft",
        "NNODES=1:4 llamafactory-cli train x.yaml",
        "MIN_NNODES=1 llamafactory-cli train x.yaml",
        "trl sft --num_processes",
        "trl sft --num_processes many",
        "trl sft --num_machines 2 --num_processes 8",
        "WORLD_SIZE=8 swift sft",
        "NODE_RANK=1 swift sft",
        "RANK=1 WORLD_SIZE=2 trl sft --num_processes 1",
        "RANK=1 swift deploy",
        "NODE_RANK=1 llamafactory-cli export x.yaml",
        "trl --help",
        "axolotl train c.yml -- --machine_rank 1",
        "axolotl train c.yml --launcher other",
        "axolotl fetch examples",
        "axolotl",
        "llamafactory-cli",
        "ray job submit --",
        "ray job submit python train.py",
        "ray job logs x",
    ],
)
def test_a_line_that_means_more_runs_word_for_word(line: str, project: Project) -> None:
    words = line.split(" ")
    variables = [word for word in words if re.match(r"[A-Z_]+=", word)]
    plan = assert_same_job(project, words)
    assert plan.launcher == "command"
    assert shown(plan) == words[len(variables) :]
    assert [f"{name}={plan.nodes[0].env[name].value}" for name in VARIABLES
            if name in plan.nodes[0].env] == variables  # fmt: skip


@pytest.mark.parametrize("program", ["swift sft", "megatron pt", "llamafactory-cli train x.yaml"])
def test_a_line_of_one_of_several_nodes_starts_that_one(program: str, project: Project) -> None:
    line = f"NNODES=2 NODE_RANK=1 MASTER_ADDR=10.0.0.5 NPROC_PER_NODE=4 {program}"
    plan = assert_same_job(project, line.split(" "))
    assert (plan.topology.nodes, plan.topology.processes, plan.topology.node_rank) == (2, 4, 1)
    assert str(plan.manual_node) == "1 of 2, rendezvous 10.0.0.5:29500"


@pytest.mark.parametrize(
    ("program", "exported", "processes"),
    [
        ("swift sft", {"NPROC_PER_NODE": "4"}, 4),
        ("llamafactory-cli train x.yaml", {"NPROC_PER_NODE": "2", "FORCE_TORCHRUN": "1"}, 2),
        ("trl sft --num_processes 2", {"NPROC_PER_NODE": "4"}, 2),
    ],
)
def test_what_the_shell_has_exported_counts(
    program: str, exported: dict[str, str], processes: int, project: Project
) -> None:
    line = read_line(program.split(" "), Shell(str(project.folder), exported))
    assert project.line(line.tree).topology.processes == processes


def job(launcher: str, rest: str) -> str:
    return f"launcher: {launcher}\n{rest}\n"


REFUSED = {
    job("llamafactory", "command: [trian]\ngpus: 1"): "has no subcommand `trian`",
    job("trl", "command: [sfft]\ngpus: 1"): "has no subcommand `sfft`",
    job("axolotl", "command: [trian]\ngpus: 1"): "has no subcommand `trian`",
    job("megatron", "command: [deploy]"): "has no subcommand `deploy`",
    job("trl", "command: [sft]"): "number of processes missing",
    job("llamafactory", "command: [train]"): "number of processes missing",
    job("trl", "command: [vllm-serve]\nprocesses: 2"): "starts one process",
    job("llamafactory", "command: [export]\nprocesses: 2"): "starts one process",
    job("axolotl", "command: [preprocess]\nlauncher_args: [--x]"): "takes no `launcher_args`",
    job("axolotl", "command: [preprocess]\nprocesses: 2"): "starts one process",
    job("axolotl", "command: [train]\nprocesses: 2\nargs: [c.yml, --launcher, x]"): "no launcher",
    job("axolotl", "command: [train]\nprocesses: 2\nargs: [c.yml, --, --x]"): "`--` in the arg",
    job("axolotl", "command: [train]\nprocesses: 2\nlauncher_args: {use_fsdpp: true}"): "no flag",
    job("axolotl", "command: [train]\nprocesses: 2\nlauncher_args: {num_processes: 2}"):
        "is not for `launcher_args`",
    job("axolotl", "command: [merge_lora]"): "has no subcommand",
    job("trl", "command: [vllm_serve]\ngpus: 1"): "has no subcommand",
    job("trl", "command: [sft]\nprocesses: 1\nlauncher_args: [--x]"): "takes no `launcher_args`",
    job("llamafactory", "command: [train]\nprocesses: 1\nlauncher_args: [--x]"): "takes no",
    job("trl", "command: [sft]\nprocesses: 2\nargs: {num_processes: 4}"): "is not for `args`",
    job("axolotl", "command: [train]\nprocesses: 2\nlauncher_args: {num_machines: 2}"):
        "is not for `launcher_args`",
    job("trl", "command: [sft]\nprocesses: 2\nhosts: [a, b]"): "reaches one machine",
    job("ray", "command: [start, --head]"): "runs no job",
    job("ray", "module: verl.trainer.main_ppo\nprocesses: 2"): "starts one process",
    job("ray", "module: verl.trainer.main_ppo\nlauncher_args: [-u]"): "takes no `launcher_args`",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_a_job_that_does_not_fit_is_refused(text: str, project: Project) -> None:
    with pytest.raises(ConfigError, match=REFUSED[text]) as caught:
        project.plan(text)
    assert (caught.value.where, caught.value.hint) != (None, None)


def test_a_file_of_settings_keeps_its_timeout(project: Project) -> None:
    with_file, without = (assert_same_job(project, f"swift sft {word} --x 1".split(" "))
                          for word in ("s.yaml", "--y"))  # fmt: skip
    assert ("--ddp_timeout" in shown(with_file), "--ddp_timeout" in shown(without)) == (False, True)


def test_gpus_without_a_count_leave_the_count_to_accelerate(project: Project) -> None:
    """Since a file of settings may say another one."""
    plan = assert_same_job(
        project, ["CUDA_VISIBLE_DEVICES=0,1", "trl", "grpo", "--config", "x.yaml"]
    )
    assert "--num_processes" not in shown(plan)


def test_several_ranks_on_the_cpu_are_asked_of_accelerate(project: Project) -> None:
    for text, added in (("processes: 2", True), ("processes: 1", False),
                        ("processes: 2\nargs: {use_deepspeed: true}", False)):  # fmt: skip
        plan = project.plan(job("trl", f"profile: cpu\ncommand: [sft]\n{text}"))
        assert ("--multi_gpu" in shown(plan)) is added


@pytest.mark.parametrize(
    ("line", "share"),
    [
        ("NPROC_PER_NODE=2 swift sft", True),
        ("swift rollout", False),
        ("swift web_ui", False),
        ("NPROC_PER_NODE=2 swift sft x.yaml", True),
        ("swift sft x.yaml", False),  # its ENV: may start torchrun
        ("llamafactory-cli train x.yaml", True),
        ("USE_RAY=1 llamafactory-cli train x.yaml", False),
        ("USE_RAY=1 FORCE_TORCHRUN=1 llamafactory-cli train x.yaml", True),
        ("llamafactory-cli api x.yaml", False),
        ("trl vllm-serve", False),
        ("axolotl train c.yml", True),
        ("axolotl train c.yml --use-ray", False),
        ("python -m openrlhf.cli.train_ppo_ray", False),
    ],
)
def test_ranks_share_the_cores_and_workers_are_left_alone(
    line: str, *, share: bool, project: Project
) -> None:
    plan = assert_same_job(project, line.split(" "))
    assert ("OMP_NUM_THREADS" in plan.nodes[0].env) is share


@pytest.mark.parametrize(
    ("line", "single"),
    [
        ("swift sft", "child"),
        ("NPROC_PER_NODE=1 swift sft", None),
        ("CUDA_VISIBLE_DEVICES=0 llamafactory-cli train x.yaml", "main"),
        ("CUDA_VISIBLE_DEVICES=0 FORCE_TORCHRUN=1 llamafactory-cli train x.yaml", None),
        ("llamafactory-cli train x.yaml", None),
        ("CUDA_VISIBLE_DEVICES=0 trl sft", "child"),
        ("trl sft", "child"),
        ("trl sft --num_processes 2", None),
        ("CUDA_VISIBLE_DEVICES=0 trl sft --accelerate_config zero2", None),
        ("trl vllm-serve", "main"),
        ("axolotl train c.yml --num-processes 1", "child"),
        ("axolotl train c.yml --num-processes 1 --sweep s.yml", None),
        ("axolotl evaluate c.yml --num-processes 1", None),
        ("axolotl train c.yml --launcher python", "main"),
        ("python -m verl.trainer.main_ppo", "main"),
    ],
)
def test_the_only_process_of_a_job_is_known(
    line: str, single: str | None, project: Project
) -> None:
    assert assert_same_job(project, line.split(" ")).nodes[0].single == single
