from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from support import REPOSITORY
from support.project import Project

from safelaunch.analysis.arithmetic import (
    Problem,
    Subject,
    find_problems,
    named_configs,
    subject_of,
)
from safelaunch.analysis.arithmetic.option_values import options_from_words
from safelaunch.config.resolve import Flags, resolve_file, resolve_steps

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = [
    p for p in sorted((REPOSITORY / "examples").rglob("*.yaml")) if p.parent.name != "configs"
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def rule_ids(subject: Subject) -> list[str]:
    return [problem.id for problem in find_problems(subject)]


# jobs

LIGHTRFT = """
launcher: torchrun
script: train_colocate.py
processes: 8
args: {args}
"""


@pytest.fixture
def colocate(project: Project) -> Project:
    (project.folder / "train_colocate.py").write_text("")
    return project


@pytest.mark.parametrize(
    "args",
    [
        "{train_batch_size: 100, micro_train_batch_size: 4, rollout_batch_size: 128}",
        "{train-batch-size: 100, micro_train_batch_size: 4, rollout_batch_size: 128}",
        "[--train_batch_size, '100', --micro_train_batch_size=4, --rollout_batch_size, '128']",
    ],
)
def test_a_job_is_read_in_either_form_of_its_arguments(colocate: Project, args: str) -> None:
    job = colocate.resolve(LIGHTRFT.replace("{args}", args)).job
    [problem] = find_problems(subject_of(job))
    assert problem.id == "lightrft-batch"
    assert problem.severity == "fail"
    assert problem.origin == "job.yaml:5:7"


def test_processes_of_all_nodes_count(project: Project) -> None:
    text = (
        "launcher: torchrun\nmodule: trl.scripts.rloo\nprocesses: {n}\n"
        "args: {{per_device_train_batch_size: 1, num_generations: 4}}\n"
    )
    two = text.format(n=2) + "hosts: [a, b]\n"
    hosts = "hosts: {a: {address: 192.0.2.1}, b: {address: 192.0.2.2}}\n"
    path = project.write(hosts, "hosts.yaml")
    job = project.resolve(two, Flags(hosts_file=str(path))).job
    assert rule_ids(subject_of(job)) == []
    assert rule_ids(subject_of(project.resolve(text.format(n=2)).job)) == ["trl-rloo-generations"]


def test_without_a_number_of_processes_rules_about_them_are_silent(project: Project) -> None:
    for start in ("launcher: torchrun\ngpus: auto\nmodule:", "launcher: python\nmodule:"):
        job = project.resolve(
            f"{start} trl.scripts.rloo\nargs: {{per_device_train_batch_size: 1}}\n"
        ).job
        assert subject_of(job).processes is None
        assert rule_ids(subject_of(job)) == []


def test_swift_without_processes_is_one_process_over_all_gpus(project: Project) -> None:
    text = "launcher: swift\ncommand: [sft]\ngpus: [0, 1]\nargs: {deepspeed: zero3}\n"
    [problem] = find_problems(subject_of(project.resolve(text).job))
    assert problem.id == "swift-device-map"
    assert problem.fix == "set `processes` to 2"
    assert (problem.where, problem.origin) == ("gpus", "job.yaml:3:7")
    assert rule_ids(subject_of(project.resolve(text + "processes: 2\n").job)) == []


@pytest.mark.parametrize(("value", "count"), [("2", 2), ("two", None)])
def test_swift_takes_its_processes_from_the_variable_too(
    project: Project, value: str, count: int | None
) -> None:
    text = f"launcher: swift\ncommand: [sft]\nenv: {{NPROC_PER_NODE: {value}}}\n"
    assert subject_of(project.resolve(text).job).processes == count


def test_what_areal_is_told_of_the_job_beats_its_configuration(project: Project) -> None:
    (project.folder / "train.py").write_text("")
    text = (
        'launcher: areal\nversion: "0.3"\nscript: train.py\nlauncher_args: {scheduler: ray}\n'
        "args: {config: c.yaml, allocation_mode: 'sglang:d2p1t1+d2p1t1'}\n"
    )
    configs = {"c.yaml": {"cluster": {"n_nodes": 1, "n_gpus_per_node": 8}}}
    job = project.resolve(text).job
    assert rule_ids(subject_of(job, configs)) == ["areal-allocation-launcher"]
    job = project.resolve(text + "gpus: [0, 1, 2, 3]\n").job
    assert rule_ids(subject_of(job, configs)) == []


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("[trl, grpo, --config, c.yaml]", ("trl", "grpo")),
        (
            "[python, -m, verl.trainer.main_ppo, data.train_batch_size=60]",
            ("verl.trainer.main_ppo",),
        ),
        ("[/opt/env/bin/python3.11, train.py, --n, '1']", ("train.py",)),
        ("[vllm, serve, model, --tensor-parallel-size, '4']", ("vllm", "serve", "model")),
    ],
)
def test_the_program_of_a_command_is_found(
    project: Project, command: str, program: tuple[str, ...]
) -> None:
    job = project.resolve(f"launcher: command\ncommand: {command}\n").job
    assert subject_of(job).program == program


def test_a_command_with_overrides_is_judged(project: Project) -> None:
    words = "[python, -m, verl.trainer.main_ppo, data.train_batch_size=60]"
    job = project.resolve(f"launcher: command\ncommand: {words}\n").job
    result = {p.id: p for p in find_problems(subject_of(job, versions={"verl": "0.9.1"}))}
    assert result["verl-batch-gpus"].fix.startswith("set `data.train_batch_size` to 56 or 64")
    assert "verl-mini-batch" in result


def test_the_files_that_the_arguments_name_are_listed_for_the_caller(project: Project) -> None:
    (project.folder / "train.py").write_text("")
    text = (
        "launcher: accelerate\nscript: train.py\nprocesses: 2\n"
        "launcher_args: {config_file: acc.yaml}\n"
        "args: {config: c.yaml, deepspeed: ds.json, model_name_or_path: org/model}\n"
    )
    named = named_configs(subject_of(project.resolve(text).job))
    assert named == ("c.yaml", "ds.json", "acc.yaml", "org/model")


def test_a_positional_settings_file_hides_the_defaults_until_it_is_read(project: Project) -> None:
    text = "launcher: swift\ncommand: [rlhf]\nargs: [j.yaml, --rlhf_type, grpo]\nprocesses: 3\n"
    job = project.resolve(text).job
    assert named_configs(subject_of(job)) == ("j.yaml",)
    assert rule_ids(subject_of(job)) == []
    assert rule_ids(subject_of(job, {"j.yaml": {"num_generations": 4}})) == ["swift-generations"]
    assert rule_ids(subject_of(job, {"j.yaml": {"num_generations": 3}})) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_the_examples_of_real_systems_have_no_problem(path: Path, tmp_path: Path) -> None:
    for other in path.parent.glob("*.yaml"):
        (tmp_path / other.name).write_text(other.read_text("utf-8"))
    whole = "".join(other.read_text("utf-8") for other in tmp_path.glob("*.yaml"))
    for name in re.findall(r"^ *script: (\S+)", whole, re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    engine = "slurm" if path.stem == "slurm" else None
    flags = Flags(engine=engine)
    _, steps = resolve_steps(path.name, flags, str(tmp_path))
    jobs = [step.resolved.job for step in steps]
    for job in jobs or [resolve_file(path.name, flags, str(tmp_path)).job]:
        assert list(find_problems(subject_of(job))) == []


# formulas against the programs' own


def test_lightrft_is_warned_of_exactly_where_its_trainer_would_divide_by_zero() -> None:
    wrong = []
    for rows in (1, 16, 100, 120, 1000):
        for samples in (1, 2, 8):
            for total in (16, 128, 1024):
                for rollout in (16, 128):
                    steps = rows * samples // total * 1
                    rollouts = steps * total // 1 // rollout // samples
                    words = (
                        f"--max_samples {rows} --n_samples_per_prompt {samples} --max_epochs 1"
                        f" --train_batch_size {total} --rollout_batch_size {rollout}"
                    )
                    subject = Subject(("train_colocate.py",), options_from_words(words.split()))
                    if (rule_ids(subject) == ["lightrft-rollouts"]) is not (rollouts == 0):
                        wrong.append(words)
    assert wrong == []


@pytest.mark.parametrize("world", [1, 2, 3, 6, 8])
def test_deepspeed_is_refused_exactly_where_its_own_sums_refuse(world: int) -> None:
    """The three values, each given or not: deepspeed/runtime/config.py fills in and asserts."""
    wrong = []
    for total in (None, 6, 8, 48):
        for micro in (None, 1, 2, 3):
            for steps in (None, 1, 2):
                values = {
                    "train_batch_size": total,
                    "train_micro_batch_size_per_gpu": micro,
                    "gradient_accumulation_steps": steps,
                }
                configs = {"d.json": {k: v for k, v in values.items() if v is not None}}
                options = options_from_words(["--deepspeed", "d.json"])
                subject = Subject(("trl.scripts.sft",), options, configs=configs, processes=world)
                if bool(rule_ids(subject)) is not refused(total, micro, steps, world):
                    wrong.append((total, micro, steps, rule_ids(subject)))
    assert wrong == []


def refused(total: int | None, micro: int | None, steps: int | None, world: int) -> bool:
    """Whether DeepSpeed's assertion fails; False where it has nothing to compare."""
    if total is None:
        return False
    if micro is None and steps is None:
        micro, steps = total // world, 1
    elif steps is None:
        steps = total // (micro or 1) // world
    elif micro is None:
        micro = total // world // steps
    return not (micro and steps and total == micro * steps * world)


# bad input


HOSTILE: list[Any] = [
    None, 1, "text", [], [1, 2], {"a": []}, {1: 2}, {"train_batch_size": {"x": 1}},
    {"train_batch_size": 10**40}, {"train_batch_size": float("nan")}, {None: None},
]  # fmt: skip


@pytest.mark.parametrize("config", HOSTILE, ids=str)
def test_a_settings_file_with_anything_in_it_is_no_trouble(config: Any) -> None:
    words = ["--deepspeed", "f", "--config", "f", "--model", "f", "allocation_mode=d0"]
    for program in ("trl.scripts.grpo", "swift rlhf", "verl.trainer.main_ppo", "areal 0.2 ray x"):
        options = options_from_words(words)
        subject = Subject(tuple(program.split()), options, options, {"f": config}, processes=3)
        assert all(isinstance(p, Problem) for p in find_problems(subject))


def test_an_accelerate_configuration_that_names_itself_ends() -> None:
    configs = {"a.yaml": {"deepspeed_config": {"deepspeed_config_file": "a.yaml"}}}
    subject = Subject(
        ("t.py",), {}, options_from_words(["--config_file", "a.yaml"]), configs, processes=2
    )
    assert rule_ids(subject) == []
    assert named_configs(subject) == ("a.yaml",)


def test_large_numbers_take_no_time() -> None:
    words = "--train_batch_size 999999999999999 --micro_train_batch_size 999999999999998"
    options = options_from_words([*words.split(), "--rollout_batch_size", "9"])
    start = time.process_time()
    assert rule_ids(Subject(("train_colocate.py",), options, processes=8)) != []
    assert time.process_time() - start < 1


def test_the_rules_file_holds_no_value_that_loaders_read_differently() -> None:
    from safelaunch.lint.run import check  # noqa: PLC0415 - only this test

    for name in ("safelaunch/analysis/arithmetic/rules.yaml", "tests/data/arithmetic/samples.yaml"):
        assert list(check(name, (REPOSITORY / name).read_bytes()).findings) == []
