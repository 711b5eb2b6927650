"""The config file of accelerate: in a pasted line, behind one, and in a job file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.pasted_line import plain
from support.project import Project, shown

from safelaunch.config.resolve import Flags
from safelaunch.config.write_job import job_yaml
from safelaunch.errors import ConfigError
from safelaunch.launchers.accelerate.config_file import default_path
from safelaunch.plan.launch_line.parse import parse_line
from safelaunch.plan.launch_line.shell import Shell

if TYPE_CHECKING:
    from safelaunch.config.yaml_io.node import Node

ZERO3 = """\
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 2
deepspeed_config:
  zero_stage: 3
"""
FILE_ONLY = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {ignored_modules: head}\n"
JOB = "launcher: accelerate\nscript: train.py\nlauncher_args: {config_file: z3.yaml}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project")
    project.write(ZERO3, "z3.yaml")
    return project


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose default config file says ZeRO 3."""
    environ = {"HF_HOME": str(tmp_path / "hf")}
    file = Path(default_path(environ))
    file.parent.mkdir(parents=True)
    file.write_text(ZERO3)
    return environ


def parse(project: Project, line: str, environ: dict[str, str] | None = None) -> Node:
    return parse_line(line.split(), Shell(str(project.folder), environ or {}))


def written(project: Project, line: str, environ: dict[str, str] | None = None) -> str:
    """Return the job file of a line on one line, without launcher and script."""
    lines = job_yaml(parse(project, line, environ), None).split("\n")[:-1]
    left_out = ("launcher: accelerate", "script: train.py")
    return ", ".join(line.strip() for line in lines if line not in left_out)


def refused(project: Project, line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(project, line)
    return f"{caught.value.where}: {caught.value.message} | {caught.value.hint}"


EMBEDDED = "launcher_args:, use_deepspeed: true, zero_stage: 3"
NAMED = "launcher_args:, config_file: z3.yaml"
MEANS = {
    "accelerate launch train.py": f"processes: 2, mixed_precision: bf16, {EMBEDDED}",
    "accelerate launch --num_processes 4 train.py": (
        f"processes: 4, mixed_precision: bf16, {EMBEDDED}"
    ),
    "accelerate launch --config_file z3.yaml train.py": (
        f"processes: 2, mixed_precision: bf16, {NAMED}"
    ),
    "accelerate launch --config_file=z3.yaml --mixed_precision fp16 train.py": (
        f"processes: 2, mixed_precision: fp16, {NAMED}"
    ),
    "accelerate launch --config_file z3.yaml --multi_gpu train.py": (
        "processes: 2, mixed_precision: bf16"
    ),
    "accelerate launch --cpu train.py": "profile: cpu, processes: 1",
    "accelerate launch --cpu --num_processes 2 train.py": "profile: cpu, processes: 2",
    "accelerate launch --cpu --config_file z3.yaml train.py": (
        "profile: cpu, processes: 1, mixed_precision: bf16"
    ),
    "python -m accelerate.commands.launch train.py": (
        f"processes: 2, mixed_precision: bf16, {EMBEDDED}"
    ),
    "HF_HOME=/nowhere accelerate launch train.py": "gpus: auto, env:, HF_HOME: /nowhere",
}


@pytest.mark.parametrize("line", MEANS)
def test_a_line_takes_from_the_file_what_it_leaves_open(
    line: str, project: Project, home: dict[str, str]
) -> None:
    assert written(project, line, home) == MEANS[line]


def test_without_a_default_file_a_line_means_what_it_says(project: Project) -> None:
    assert written(project, "accelerate launch train.py") == "gpus: auto"


def test_a_config_file_outside_of_the_project_becomes_flags(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(ZERO3)
    line = "accelerate launch --config_file ../c.yaml train.py"
    assert EMBEDDED in written(project, line)


def test_a_file_of_the_project_named_from_the_root_becomes_flags(project: Project) -> None:
    line = f"accelerate launch --config_file {project.folder}/z3.yaml train.py"
    assert EMBEDDED in written(project, line)


def test_a_setting_without_a_flag_needs_the_file_in_the_project(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(FILE_ONLY)
    message = refused(project, "accelerate launch --config_file ../c.yaml train.py")
    assert message.startswith("../c.yaml:3:32: `fsdp_ignored_modules` can be set only in a config")
    assert "copy the file into the project" in message


def test_a_setting_without_a_flag_stays_in_a_file_of_the_project(project: Project) -> None:
    project.write(FILE_ONLY, "c.yaml")
    line = "accelerate launch --config_file c.yaml train.py"
    assert written(project, line) == "processes: 2, launcher_args:, config_file: c.yaml"


def test_a_node_that_is_started_by_hand_takes_the_address_from_the_file(project: Project) -> None:
    more = "num_machines: 2\nmain_process_ip: a\nmain_process_port: 5\n"
    project.write("distributed_type: MULTI_GPU\nnum_processes: 4\n" + more, "c.yaml")
    line = "accelerate launch --config_file c.yaml --machine_rank 1 train.py"
    assert written(project, line) == (
        "processes: 2, nodes: 2, node_rank: 1, launcher_args:, config_file: c.yaml, "
        "main_process_port: 5, main_process_ip: a"
    )


@pytest.mark.parametrize("flag", ["--gpu_ids all", "--machine_rank 0"])
def test_a_flag_that_the_file_does_not_contradict_leaves_it_named(
    flag: str, project: Project
) -> None:
    line = f"accelerate launch --config_file z3.yaml {flag} train.py"
    assert written(project, line).endswith(NAMED)


def test_several_processes_of_the_line_are_refused_where_the_file_allows_one(
    project: Project,
) -> None:
    project.write("distributed_type: 'NO'\nnum_processes: 8\n", "c.yaml")
    message = refused(project, "accelerate launch --config_file c.yaml --num_processes 4 train.py")
    assert message.startswith("c.yaml:1:19: accelerate starts one process")
    assert "add --multi_gpu to the line for 4" in message


def test_each_value_has_its_place_in_the_file(project: Project) -> None:
    tree = parse(project, "accelerate launch --config_file z3.yaml train.py")
    origins = {key.text: str(value.origin) for key, value in tree.items}
    assert origins["processes"] == "z3.yaml:3:16"
    assert origins["script"] == "command line"


def test_a_file_that_is_not_there_is_left_to_accelerate_where_the_count_is_clear(
    project: Project,
) -> None:
    line = "accelerate launch --config_file no.yaml --num_processes 2 train.py"
    assert written(project, line) == "processes: 2, launcher_args:, config_file: no.yaml"


def test_a_file_that_is_not_there_and_alone_has_the_count_is_missed(project: Project) -> None:
    message = refused(project, "accelerate launch --config_file no.yaml train.py")
    assert message.startswith("command line: `--config_file no.yaml`: no such file")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "c.yaml:1:1: the file is empty"),
        ("- a\n", "c.yaml:1:1: expected `key: value` lines"),
        ("a: [1\n", "c.yaml:2:1: did not find expected"),
        ("num_processes: 2\n", "c.yaml:1:1: accelerate refuses the config file: no `distributed"),
        ("distributed_type: FSDP\nnum_proc: 2\n", "c.yaml:2:1: accelerate refuses the config file"),
        (
            "distributed_type: FSDP\nfsdp_config: 3\nnum_processes: 2\n",
            "c.yaml:2:14: accelerate fa",
        ),
        ("distributed_type: XLA\n", "c.yaml:1:19: `distributed_type: XLA`: safelaunch starts jobs"),
        ("compute_environment: AMAZON_SAGEMAKER\n", "c.yaml:1:22: the config is for Amazon"),
        ("distributed_type: FSDP\nnum_processes: [2]\n", "c.yaml:2:16: `num_processes` is one"),
        ("distributed_type: FSDP\nnum_processes: 2\nnum_machines: x\n", "c.yaml:3:15: `num_mach"),
        (
            "distributed_type: MULTI_CPU\nnum_processes: 2\nmpirun_config: {mpirun_hostfile: h}\n",
            "c.yaml:3:34: accelerate would start mpirun",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_place_and_a_way_out(
    text: str, start: str, project: Project
) -> None:
    project.write(text, "c.yaml")
    message = refused(project, "accelerate launch --config_file c.yaml train.py")
    assert message.startswith(start)
    assert not message.endswith("| None")


def test_a_job_file_takes_the_count_from_the_config_file_of_the_project(project: Project) -> None:
    words = shown(project.plan(JOB))
    assert words[3:9] == [
        "--num_machines", "1", "--num_processes", "2", "--main_process_port", "<port>",
    ]  # fmt: skip


def test_the_count_of_a_job_file_beats_its_config_file(project: Project) -> None:
    assert project.plan(JOB + "processes: 4\n").topology.processes == 4


def test_the_count_of_a_config_file_has_its_place(project: Project) -> None:
    assert str(project.resolve(JOB).job.origin("processes")) == "z3.yaml:3:16"


def test_a_job_file_reads_no_config_file_outside_of_the_project(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(ZERO3)
    job = JOB.replace("z3.yaml", "../c.yaml")
    assert "number of processes missing" in project.refused(job).message


def test_a_line_on_the_cpu_takes_the_profile_that_the_user_names(project: Project) -> None:
    tree = parse(project, "accelerate launch --cpu train.py")
    job = job_yaml(tree, None)
    assert project.resolve(job, Flags(profile="cpu")).job.topology.processes == 1


def test_init_writes_the_profile_once(project: Project) -> None:
    tree = parse(project, "accelerate launch --cpu train.py")
    assert job_yaml(tree, "cpu").count("profile:") == 1


def text_of(project: Project, text: str) -> dict[str, object]:
    tree = parse_line(["bash", "-c", text], Shell(str(project.folder), {}))
    return plain(tree)  # type: ignore[return-value]


def test_a_file_is_looked_up_where_the_line_goes_to(project: Project) -> None:
    project.write(ZERO3.replace("num_processes: 2", "num_processes: 6"), "src/z3.yaml")
    keys = text_of(project, "cd src && accelerate launch --config_file z3.yaml train.py")
    assert (keys["processes"], keys["workdir"]) == ("6", "src")
    assert keys["launcher_args"] == ["--config_file", "z3.yaml"]


def test_a_file_that_is_only_where_the_line_begins_is_missed_with_its_folder(
    project: Project,
) -> None:
    (project.folder / "src").mkdir()
    with pytest.raises(ConfigError, match=r"`--config_file src/z3.yaml`: no such file"):
        text_of(project, "cd src && accelerate launch --config_file z3.yaml train.py")


TWO_MACHINES = "num_machines: 2\nmachine_rank: 1\nnum_processes: 4\nmain_process_port: 29500\n"
FRAMEWORKS = (
    "trl sft --config two.yaml",
    "trl sft --model_name_or_path m --accelerate_config two.yaml",
    "axolotl train x.yml --launcher accelerate -- --config_file=two.yaml",
)


@pytest.mark.parametrize("line", FRAMEWORKS)
def test_a_framework_whose_file_says_several_machines_runs_word_for_word(
    line: str, project: Project
) -> None:
    project.write(TWO_MACHINES, "two.yaml")
    assert plain(parse(project, line)) == {"launcher": "command", "command": line.split()}


def test_so_it_does_where_the_user_s_own_file_says_so(
    project: Project, home: dict[str, str]
) -> None:
    Path(default_path(home)).write_text(TWO_MACHINES)
    line = "trl sft --model_name_or_path m"
    assert plain(parse(project, line, home)) == {"launcher": "command", "command": line.split()}
    project.write("num_machines: 1\n", "own.yaml")
    own = plain(parse(project, f"{line} --accelerate_config own.yaml", home))
    assert own["launcher"] == "trl"  # type: ignore[index]


def test_the_processes_in_the_file_of_trl_are_those_of_the_job(project: Project) -> None:
    project.write("num_processes: 4\nlearning_rate: 1e-5\n", "sft.yaml")
    assert plain(parse(project, "trl sft --config sft.yaml")) == {
        "launcher": "trl", "command": ["sft"], "args": ["--config", "sft.yaml"], "processes": "4",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["[1", "- a", "num_machines: [2]", "x: {y: 1}", ""])
def test_a_file_of_a_framework_that_cannot_be_read_is_left_to_it(
    text: str, project: Project
) -> None:
    project.write(text, "sft.yaml")
    assert plain(parse(project, "trl sft --config sft.yaml"))["gpus"] == "auto"  # type: ignore[index]
