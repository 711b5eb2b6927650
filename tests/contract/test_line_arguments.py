"""What a newcomer types behind `run`, `check`, `remote`, `init`: a script, a line without `--`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from support.cli_process import safelaunch

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SMI = '#!/bin/sh\nfor i in {}; do echo "GPU $i: NVIDIA H100 (UUID: GPU-$i)"; done\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "train.sh").write_text("#!/bin/bash\npython train.py\n")
    return tmp_path


def argv(folder: Path, *words: str) -> list[str]:
    result = safelaunch(folder, "run", "--dry-run", "--json", *words)
    assert result.code == 0, result.err
    argv: list[str] = json.loads(result.out)["nodes"][0]["argv"]
    return argv


def fake_gpus(folder: Path, count: int) -> str:
    """Return a PATH on which nvidia-smi lists as many GPUs."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI.format(" ".join(map(str, range(count)))))
    (tools / "nvidia-smi").chmod(0o755)
    return f"{tools}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["bash", "train.sh", "--lr", "1 2"], ["bash", "train.sh", "--lr", "1 2"]),
        (["train.sh", "x"], ["bash", "train.sh", "x"]),
        (["--profile", "cpu", "sh", "train.sh"], ["sh", "train.sh"]),
    ],
)
def test_a_shell_script_needs_no_dashes_before_it(
    project: Path, words: list[str], line: list[str]
) -> None:
    assert argv(project, *words) == line


def test_a_launch_line_means_the_same_with_and_without_dashes(project: Path) -> None:
    line = ("torchrun", "--nproc_per_node", "2", "train.py", "--lr", "1e-3")
    assert argv(project, *line) == argv(project, "--", *line)


def test_variables_before_a_program_begin_a_line(project: Path) -> None:
    assert argv(project, "A=1", "python", "train.py")[1:] == ["train.py"]


def test_an_executable_script_runs_as_it_is_typed(project: Path) -> None:
    (project / "train.sh").chmod(0o755)
    assert argv(project, "./train.sh") == ["./train.sh"]


def test_an_option_behind_the_script_is_nobodys_until_it_is_said_whose(project: Path) -> None:
    result = safelaunch(project, "run", "train.sh", "--dry-run")
    assert result.code == 2
    assert "safelaunch run --dry-run -- bash train.sh\n" in result.err
    assert "safelaunch run -- bash train.sh --dry-run\n" in result.err


def test_an_option_behind_the_script_keeps_its_value(project: Path) -> None:
    words = ("train.sh", "a", "--profile", "cpu", "--set=name=x", "--lr", "1")
    err = safelaunch(project, "run", *words).err
    assert "safelaunch run --profile cpu --set=name=x -- bash train.sh a --lr 1\n" in err
    assert "safelaunch run -- bash train.sh a --profile cpu --set=name=x --lr 1\n" in err


def test_an_option_behind_a_python_file_is_offered_before_the_line(project: Path) -> None:
    err = safelaunch(project, "run", "train.py", "--profile", "cpu", "--lr", "1").err
    assert "safelaunch run --profile cpu -- python train.py --lr 1\n" in err


def test_options_may_still_follow_a_job_file(project: Path) -> None:
    (project / "job.yaml").write_text("launcher: python\nscript: train.py\n")
    assert safelaunch(project, "run", "job.yaml", "--dry-run").code == 0


@pytest.mark.parametrize(
    ("gpus", "lines"),
    [
        (0, ["run --profile cpu -- python train.py --lr 1",
             "run --profile cpu -- torchrun --nproc_per_node 2 train.py --lr 1"]),
        (1, ["run -- python train.py --lr 1"]),
        (4, ["run -- torchrun --nproc_per_node 4 train.py --lr 1",
             "run -- CUDA_VISIBLE_DEVICES=0 python train.py --lr 1"]),
    ],
)  # fmt: skip
def test_a_python_file_is_not_started_but_offered_the_lines_that_fit_the_gpus(
    project: Path, gpus: int, lines: list[str]
) -> None:
    path = fake_gpus(project, gpus)
    result = safelaunch(project, "run", "train.py", "--lr", "1", PATH=path)
    assert result.code == 2
    offered = [line.partition(": safelaunch ")[2] for line in result.err.splitlines()[1:]]
    assert offered == lines


def test_gpus_of_another_maker_are_left_to_the_launcher_to_count(project: Path) -> None:
    path = fake_gpus(project, 0)
    (project / "tools" / "nvidia-smi").rename(project / "tools" / "rocm-smi")
    err = safelaunch(project, "run", "train.py", PATH=path).err
    assert "safelaunch run -- torchrun --nproc_per_node gpu train.py\n" in err


@pytest.mark.parametrize("command", ["run", "check", "init"])
def test_the_offered_lines_work(project: Path, command: str) -> None:
    refused = safelaunch(project, command, "train.py", CUDA_VISIBLE_DEVICES="")
    line = refused.err.splitlines()[1].partition(": safelaunch ")[2].split()
    line[1:1] = ["--dry-run"] if command == "run" else []
    assert safelaunch(project, *line).code == 0


@pytest.mark.parametrize("word", ["none.py", "none.sh"])
def test_a_file_that_is_not_there_is_said(project: Path, word: str) -> None:
    result = safelaunch(project, "run", word)
    assert (result.code, result.err) == (2, f"error: {word}: no such file\n")


@pytest.mark.parametrize("words", [["run"], ["check"], ["remote", "--host", "gpu1"], ["init"]])
def test_a_config_of_another_program_is_recognised_by_each_command(
    project: Path, words: list[str]
) -> None:
    (project / "sft.yaml").write_text("model_name_or_path: x\ndataset_name: y\n")
    result = safelaunch(project, *words, "sft.yaml")
    assert result.code == 2
    assert "`safelaunch run -- trl sft --config sft.yaml`" in result.err


def test_check_looks_into_a_shell_script(project: Path) -> None:
    (project / "train.sh").write_text("torchrun --nproc_per_node 2 train.py\n  --lr 1e-3\n")
    result = safelaunch(project, "check", "--json", "bash", "train.sh")
    warnings = [r for r in json.loads(result.out)["results"] if r["id"] == "shell-script"]
    assert [(r["status"], r["evidence"][:14]) for r in warnings] == [("warn", "train.sh:2:3: ")]


def test_a_line_of_deepspeed_for_two_nodes_needs_a_hostfile(tmp_path: Path) -> None:
    line = "deepspeed --num_nodes 2 --num_gpus 8 --node_rank 0 train.py"
    result = safelaunch(tmp_path, "run", "--dry-run", "--", *line.split())
    assert result.code == ConfigError.exit_code
    assert "for 2 nodes, and deepspeed knows none but this machine" in result.err
    assert "`--hostfile FILE` lists them" in result.err


def test_a_line_for_two_nodes_says_how_to_number_them(tmp_path: Path) -> None:
    line = "torchrun --nnodes=2 --nproc_per_node 2 --master_addr 10.0.0.1 train.py"
    result = safelaunch(tmp_path, "run", "--dry-run", "--", *line.split())
    assert result.code == ConfigError.exit_code
    assert "does not say which of them this machine is" in result.err
    assert "--node_rank" in result.err
