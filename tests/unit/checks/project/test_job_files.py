"""Checks of files: script, module, configurations, inputs, checkpoints, outputs, models, assets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import project_at, result_of, results_of
from support.facts.machine_cases import local_context, remote_context
from support.inputs.hf_packages import environment

from safelaunch.checks import run
from safelaunch.checks.project.outputs import shared_folders
from safelaunch.sync.checkout_id import checkout_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.project import Project

    from safelaunch.checks.context import CheckContext

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 2\n"
AREAL = "launcher: areal\nversion: '1'\nscript: train.py\n"
MODULE = "launcher: python\nmodule: pkg.train\n"
MISSING = {"kind": None, "why": "No such file or directory", "link": None}
FILE = {"kind": "file", "size": 1, "readable": True, "writable": True, "executable": False}
FOLDER = {**FILE, "kind": "folder", "empty": False}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def room(**more: Any) -> dict[str, Any]:
    answers = {
        "folder": "/d",
        "writable": True,
        "free": 1 << 40,
        "total": 1 << 41,
        "inodes": 1 << 20,
    }
    return {**answers, "device": 1, **more}


# -- script and module -----------------------------------------------------------------------------


def test_a_script_that_is_there_passes(project: Project) -> None:
    assert result_of(local_context(project, TORCHRUN), "script").status == "ok"


@pytest.mark.parametrize("file", [MISSING, FOLDER, {**FILE, "readable": False}])
def test_a_script_that_python_cannot_read_makes_the_start_impossible(
    project: Project, file: dict[str, Any]
) -> None:
    case = local_context(project, TORCHRUN, answers={("path", "train.py"): file})
    assert result_of(case, "script").status == "fail"


def test_a_script_of_the_project_travels_to_the_host(project: Project) -> None:
    assert result_of(remote_context(project, TORCHRUN), "script").status == "ok"


def test_a_script_of_the_hosts_own_is_looked_for_there(project: Project) -> None:
    job = TORCHRUN + "workdir: /srv/code\n"
    remote = {("path", "."): FOLDER}
    assert result_of(remote_context(project, job, remote), "script").status == "fail"
    remote[("path", "train.py")] = FILE
    assert result_of(remote_context(project, job, remote), "script").status == "ok"


def test_a_module_of_the_project_is_found_here_for_a_host(project: Project) -> None:
    project.write("", "pkg/train.py")
    assert (
        result_of(remote_context(project, MODULE), "module").evidence == "pkg.train is pkg/train.py"
    )
    assert result_of(local_context(project, MODULE), "module").status == "ok"


def test_a_package_whose_name_ends_its_file_s_name_is_named_whole(project: Project) -> None:
    project.write("", "main/__main__.py")
    result = result_of(remote_context(project, "launcher: python\nmodule: main\n"), "module")
    assert result.evidence == "main is main/__main__.py"


def test_a_module_below_pythonpath_is_found(project: Project) -> None:
    project.write("", "src/pkg/train.py")
    assert (
        result_of(remote_context(project, MODULE + "pythonpath: [src]\n"), "module").status == "ok"
    )


MISSED = {("module", "pkg"): {"found": False, "where": None}}


def test_a_module_that_nobody_has_makes_the_start_impossible(project: Project) -> None:
    assert result_of(remote_context(project, MODULE, MISSED), "module").status == "fail"


def test_a_missing_launcher_is_not_told_as_the_missing_module_too(project: Project) -> None:
    job = "launcher: torchrun\nprocesses: 1\nmodule: torch.tool\nprofile: cpu\n"
    missing = {("module", "torch"): {"found": False, "where": None}}
    case = remote_context(project, job, missing)
    assert [r.status for r in results_of(case, "launcher")] == ["fail"]
    assert results_of(case, "module") == []


@pytest.mark.parametrize("value", ["src", "/x:src/", "src:"])
def test_a_module_below_a_variable_s_path_is_found(project: Project, value: str) -> None:
    project.write("", "src/pkg/train.py")
    job = MODULE + f"env: {{PYTHONPATH: '{value}'}}\n"
    assert result_of(local_context(project, job, answers=MISSED), "module").status == "ok"


def test_a_module_of_another_environment_is_not_missed(project: Project) -> None:
    job = MODULE + "prefix: [conda, run, -n, other]\n"
    assert result_of(local_context(project, job), "module").status == "skip"
    project.write("", "pkg/train.py")
    assert result_of(local_context(project, job), "module").status == "ok"


def test_a_module_that_setup_may_bring_is_a_warning(project: Project) -> None:
    case = remote_context(project, MODULE + "setup: export PYTHONPATH=/x\n", MISSED)
    assert result_of(case, "module").status == "warn"


def test_an_installed_module_passes(project: Project) -> None:
    answers = {("module", "pkg"): {"found": True, "where": "/site/pkg/__init__.py"}}
    assert result_of(remote_context(project, MODULE, answers), "module").status == "ok"


def test_a_part_that_a_package_of_the_project_lacks_is_reported(project: Project) -> None:
    project.write("", "pkg/__init__.py")
    answers = {("module", "pkg"): {"found": True, "where": f"{project.folder}/pkg/__init__.py"}}
    assert result_of(local_context(project, MODULE, answers=answers), "module").status == "warn"
    project.write("", "pkg/trains.py")
    assert result_of(local_context(project, MODULE, answers=answers), "module").hint.startswith(
        "`module: pkg.trains`"
    )


def test_a_module_below_pythonpath_is_found_here(project: Project) -> None:
    project.write("", "src/pkg/train.py")
    answers = {("module", "pkg"): {"found": True, "where": f"{project.folder}/src/pkg/__init__.py"}}
    case = local_context(project, MODULE + "pythonpath: [src]\n", answers=answers)
    assert result_of(case, "module").status == "ok"


# -- the file of a command, and syntax -------------------------------------------------------------

COMMAND = "launcher: command\ncommand: [./run.sh]\n"


def test_the_file_of_a_command_must_be_there_and_executable(project: Project) -> None:
    assert result_of(local_context(project, COMMAND), "script").status == "fail"
    project.write("", "run.sh")
    answers = result_of(local_context(project, COMMAND), "script")
    assert (answers.status, answers.hint) == ("fail", f"`chmod a+x {project.folder}/run.sh`")
    (project.folder / "run.sh").chmod(0o755)
    assert result_of(local_context(project, COMMAND), "script").status == "ok"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("[bash, run.sh]", ["fail"]),
        ("[python3, x/run.py, a]", ["fail"]),
        ("[bash, -c, run.sh]", []),
        ("[bash, '$HOME/run.sh']", []),
        ("[vllm, serve, a/b.py]", []),
    ],
)
def test_the_script_of_a_shell_must_be_there(
    command: str, expected: list[str], project: Project
) -> None:
    case = local_context(project, f"launcher: command\ncommand: {command}\n")
    assert [each.status for each in results_of(case, "script")] == expected


def test_setup_may_write_the_file_of_a_command(project: Project) -> None:
    case = local_context(project, COMMAND + "setup: cp /x/run.sh .\n")
    assert result_of(case, "script").status == "warn"


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        ("3.8.10", "x = 1\n", "ok"),
        ("3.8.10", "def f(:\n", "warn"),
        ("3.99.0", "def f(:\n", "ok"),
        ("3.8.10", "def f():\n    x = = 1\n", "warn"),
    ],
)
def test_a_script_that_is_no_python_is_reported_unless_a_newer_one_runs_it(
    version: str, text: str, expected: str, project: Project
) -> None:
    project.write(text, "train.py")
    case = local_context(project, TORCHRUN, facts={"python": {"version": version}})
    assert result_of(case, "script").status == expected


# -- configurations --------------------------------------------------------------------------------


def test_a_configuration_that_is_not_there_is_a_warning(project: Project) -> None:
    job = TORCHRUN + "args: {config: conf/a.yaml, deepspeed: ds.json}\n"
    project.write("{}", "ds.json")
    results = {
        each.status: each.evidence for each in results_of(local_context(project, job), "configs")
    }
    assert results == {
        "warn": "`args` names conf/a.yaml, which does not exist",
        "ok": "ds.json exists",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from configs import loader\n", []),
        ("import os\nfolder = os.path.join('configs')\n", []),
        ("import os\nprint('configs/default.yaml')\n", ["warn"]),
    ],
)
def test_a_bare_name_in_a_folder_of_configurations_that_the_program_reads_is_no_warning(
    project: Project, text: str, expected: list[str]
) -> None:
    project.write(text, "train.py")
    project.write("{}", "configs/default.yaml")
    project.write("", "configs/__init__.py")
    project.write("from pathlib import Path\nHERE = Path(__file__).parent\n", "configs/loader.py")
    job = TORCHRUN + "args: [--config, default.yaml]\n"
    results = results_of(local_context(project, job), "configs")
    assert [result.status for result in results] == expected


def test_a_pattern_of_configurations_must_match(project: Project) -> None:
    project.write("{}", "in/a-0-of-2.json")
    job = TORCHRUN + "args: {config: 'in/a-*-of-2.json', other: 'in/b-*.json'}\n"
    results = {
        each.status: each.evidence for each in results_of(local_context(project, job), "configs")
    }
    assert results == {
        "warn": "`args` names in/b-*.json, which nothing matches",
        "ok": "in/a-*-of-2.json exists",
    }


def test_the_launchers_own_configuration_is_needed(project: Project) -> None:
    job = TORCHRUN.replace("torchrun", "accelerate") + "launcher_args: {config_file: a.yaml}\n"
    assert result_of(local_context(project, job, is_quick=True), "configs").status == "fail"
    assert (
        result_of(local_context(project, job + "setup: make a.yaml\n"), "configs").status == "warn"
    )
    project.write("{}", "a.yaml")
    assert result_of(local_context(project, job), "configs").status == "ok"


def test_a_name_that_is_nearly_right_is_corrected(project: Project) -> None:
    project.write("{}", "conf/base.yaml")
    job = TORCHRUN + "args: {config: conf/basse.yaml}\n"
    for case in (local_context(project, job), remote_context(project, job)):
        assert result_of(case, "configs").hint.startswith(
            "did you mean `conf/base.yaml`? else put it "
        )


def test_what_is_no_file_is_no_configuration(project: Project) -> None:
    assert (
        results_of(
            local_context(project, TORCHRUN + "args: {deepspeed: zero2, config: base}\n"), "configs"
        )
        == []
    )


# -- inputs ----------------------------------------------------------------------------------------

INPUTS = TORCHRUN + "inputs: ['data/*11.csv']\n"


@pytest.mark.parametrize(("files", "status"), [
    ([], "fail"), (["data/a_11.csv"], "ok"), (["data/a_11.csv", "data/b_11.csv"], "fail"),
])  # fmt: skip
def test_a_glob_matches_exactly_one(project: Project, files: list[str], status: str) -> None:
    for name in files:
        project.write("", name)
    assert result_of(local_context(project, INPUTS, is_quick=True), "inputs").status == status
    assert result_of(remote_context(project, INPUTS), "inputs").status == status


def test_all_that_fit_are_named_with_the_place_in_the_job_file(project: Project) -> None:
    for name in ("a", "b"):
        project.write("", f"data/{name}_11.csv")
    evidence = result_of(local_context(project, INPUTS), "inputs").evidence
    assert "job.yaml:4:" in evidence
    assert "2 paths match data/*11.csv: data/a_11.csv, data/b_11.csv" in evidence


@pytest.mark.parametrize("root", ["~/llm", "/srv/llm"])
def test_a_file_here_and_on_the_host_is_one(project: Project, root: str) -> None:
    project.write("", "data/a_11.csv")
    remote = root.replace("~", "/home/me")
    facts = [{"system": {"home": "/home/me"}}]
    answers = {("glob", "data/*11.csv"): {"count": 1, "found": [f"{remote}/data/a_11.csv"]}}
    assert (
        result_of(remote_context(project, INPUTS, answers, facts=facts, root=root), "inputs").status
        == "ok"
    )
    answers = {("glob", "data/*11.csv"): {"count": 1, "found": [f"{remote}/data/b_11.csv"]}}
    assert (
        result_of(remote_context(project, INPUTS, answers, facts=facts, root=root), "inputs").status
        == "fail"
    )


def test_a_file_that_parts_divide_is_missed_before_the_start(project: Project) -> None:
    job = "launcher: python\nscript: train.py\nargs: {in: '{shard.input}'}\n"
    job += "shards: {over: data/rows.csv, parts: 2}\n"
    for context in (local_context(project, job, is_quick=True), remote_context(project, job)):
        result = result_of(context, "inputs")
        assert result.status == "warn"
        assert "`shards.over` (job.yaml:4:9): there is no file data/rows.csv" in result.evidence
    project.write("", "data/rows.csv")
    assert results_of(local_context(project, job, is_quick=True), "inputs") == []


def test_a_path_of_the_host_is_looked_for_there(project: Project) -> None:
    job = TORCHRUN + "inputs: [/data/c4.bin]\n"
    result = result_of(remote_context(project, job), "inputs")
    assert (result.status, result.hint) == (
        "fail", "safelaunch push c4.bin --host gpu1 --to /data, or correct the path")  # fmt: skip
    assert (
        result_of(remote_context(project, job, {("path", "/data/c4.bin"): FILE}), "inputs").status
        == "ok"
    )


def test_an_input_that_is_an_asset_is_there_if_it_is_local(project: Project) -> None:
    project.write("", "models/base/config.json")
    job = TORCHRUN + "assets: {base: {path: models/base, to: /data/base}}\n"
    job += "inputs: [/data/base/config.json]\n"
    assert result_of(remote_context(project, job), "inputs").status == "ok"


def test_a_name_with_brackets_is_also_a_path(project: Project) -> None:
    project.write("", "data[1].csv")
    assert (
        result_of(local_context(project, TORCHRUN + "inputs: ['data[1].csv']\n"), "inputs").status
        == "ok"
    )


def test_only_a_like_name_is_taken_for_the_one_that_was_meant(project: Project) -> None:
    project.write("", "data/b-1.jsonl")
    case = local_context(
        project, TORCHRUN + "inputs: [data/d.jsonl, data/c-*.jsonl, data/bb-1.jsonl]\n"
    )
    first, second, third = results_of(case, "inputs")
    assert "did you mean" not in first.hint + second.hint
    assert "did you mean `data/b-1.jsonl`?" in third.hint


# -- checkpoints -----------------------------------------------------------------------------------

RESUME = TORCHRUN + "args: {resume_from_checkpoint: out/checkpoint-500}\n"


def checkpoint(project: Project, *files: str) -> Any:
    (project.folder / "out" / "checkpoint-500").mkdir(parents=True)
    for name in files:
        text = "{}" if name.endswith(".json") else "global_step500"
        project.write(text, f"out/checkpoint-500/{name}")
    return result_of(local_context(project, RESUME), "resume")


@pytest.mark.parametrize("files", [
    ("trainer_state.json", "model.safetensors"), ("latest", "global_step500/mp_rank_00.pt"),
    (".metadata", "__0_0.distcp"), ("optimizer.bin", "random_states_0.pkl", "model.safetensors"),
])  # fmt: skip
def test_whole_checkpoints_are_known(project: Project, files: tuple[str, ...]) -> None:
    assert checkpoint(project, *files).status == "ok"


@pytest.mark.parametrize(
    "files",
    [
        (),
        ("README.md",),
        ("latest", "trainer_state.json"),
        ("model.safetensors", "config.json"),
        ("training_args.bin", "optimizer.pt", "model.safetensors"),  # still being written
    ],
)
def test_what_is_no_checkpoint_is_a_warning(project: Project, files: tuple[str, ...]) -> None:
    assert checkpoint(project, *files).status == "warn"


def test_a_checkpoint_that_is_missing_is_a_warning(project: Project) -> None:
    assert result_of(local_context(project, RESUME), "resume").status == "warn"


def test_a_folder_of_checkpoints_names_the_newest(project: Project) -> None:
    for step in (500, 1000):
        project.write("", f"out/checkpoint-{step}/trainer_state.json")
    job = TORCHRUN + "args: {resume_from_checkpoint: out}\n"
    assert (
        result_of(local_context(project, job), "resume").hint
        == "name one of them: out/checkpoint-1000"
    )


HF_PARSER = (
    "from transformers import HfArgumentParser, TrainingArguments\n"
    "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)
OWN_PARSER = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs', type=int)\n"
    "p.add_argument('--resume_from_checkpoint')\np.parse_args()\n"
)
SWITCH = "{resume_from_checkpoint: true}"
PATH = '{checkpoint: out/c*, resume_args: {resume_from_checkpoint: "{checkpoint}"}}'


@pytest.mark.parametrize(
    ("script", "keys", "evidence"),
    [
        (HF_PARSER, f"args: {SWITCH}", "is a path in transformers' options"),
        (HF_PARSER, f"recovery: {{resume_args: {SWITCH}}}", "is a path in transformers' options"),
        (HF_PARSER, f"recovery: {PATH}", None),
        (OWN_PARSER, f"recovery: {{resume_args: {SWITCH}}}", "takes a value, got none"),
        (OWN_PARSER, f"recovery: {PATH}", None),
        (OWN_PARSER, "smoke: {args: {epochs: 0.1}}", "`--epochs 0.1` is not a whole number"),
        (OWN_PARSER, "args: {epoch: 1}\nsmoke: {args: {epoch: null, epochs: 1}}", None),
    ],
)
def test_arguments_of_later_and_of_short_runs_are_checked_too(
    project: Project, script: str, keys: str, evidence: str | None
) -> None:
    project.write(script, "train.py")
    results = results_of(local_context(project, TORCHRUN + keys + "\n"), "flags")
    warnings = [result.evidence for result in results if result.status == "warn"]
    assert len(warnings) == (evidence is not None)
    assert evidence is None or evidence in warnings[0]


TRL_PROGRAM = (
    "from trl import ScriptArguments, SFTConfig, TrlParser\n"
    "parser = TrlParser((ScriptArguments, SFTConfig))\n"
    "a, b = parser.parse_args_and_config()\n"
)


@pytest.mark.parametrize(
    ("keys", "evidence"),
    [
        ("args: {dataset_name: a, max_lengthh: 3}", "no option `--max_lengthh` (train.py:2)"),
        (
            "args: {dataset_name: a}\nsmoke: {args: {max_steps: few}}",
            "`--max_steps few` is not a whole number (transformers/training_args.py:",
        ),
        (
            "args: {dataset_name: a}\nrecovery: {resume_args: {resume_frm: last}}",
            "no option `--resume_frm`",
        ),
        ("args: {config: c.yaml}", "c.yaml:2: the script has no setting `max_step`"),
        (f"args: {{dataset_name: a, {SWITCH[1:-1]}}}", "is a path in transformers' options"),
        ("args: {dataset_name: a, max_length: none, bf16: 'true'}", None),
    ],
)
def test_options_of_installed_libraries_are_checked(
    project: Project, tmp_path: Path, keys: str, evidence: str | None
) -> None:
    python = environment(tmp_path / "env")
    project.write(TRL_PROGRAM, "train.py")
    project.write("dataset_name: a\nmax_step: 3\n", "c.yaml")
    context = local_context(project, f"{TORCHRUN}python: {python}\n{keys}\n")
    (result,) = results_of(context, "flags")
    assert result.status == ("ok" if evidence is None else "warn")
    assert evidence is None or evidence in result.evidence


@pytest.mark.parametrize(
    "job",
    [
        "launcher: torchrun\nmodule: trl.scripts.sft\nprocesses: 2\n",
        "launcher: accelerate\nmodule: trl.scripts.sft\nprocesses: 2\n",
        "launcher: trl\ncommand: [sft]\nprocesses: 2\n",
    ],
)
def test_options_of_a_program_in_a_library_are_checked(
    project: Project, tmp_path: Path, job: str
) -> None:
    python = environment(tmp_path / "env")
    context = local_context(project, f"{job}python: {python}\nargs: {{max_lengthh: 3}}\n")
    hints = [result.hint for result in results_of(context, "flags")]
    assert hints == [
        "did you mean `--max_length`? (job.yaml:5:7)",
        "add `dataset_name:` with its value (job.yaml:5:7)",
    ]


@pytest.mark.parametrize("name", ["ALLOW_EXTRA_ARGS", "USE_MCA"])
def test_a_variable_that_selects_other_options_leaves_them_open(
    project: Project, name: str
) -> None:
    job = f"launcher: llamafactory\ncommand: [train]\nprocesses: 2\nenv: {{{name}: '1'}}\n"
    (result,) = results_of(local_context(project, f"{job}args: [c.yaml]\n"), "flags")
    assert (result.status, result.evidence) == (
        "skip",
        f"`{name}` is set: it may select other options",
    )


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("launcher: torchrun\nmodule: swift.cli.sft\nprocesses: 2\n", "RAY_SWIFT_ARGS"),
        ("launcher: torchrun\nscript: swift/cli/sft.py\nprocesses: 2\n", "RAY_SWIFT_ARGS"),
        (TORCHRUN, "USE_MCA"),
    ],
)
def test_a_program_of_a_framework_is_known_by_what_it_runs(
    project: Project, job: str, name: str
) -> None:
    project.write("from llamafactory.train.tuner import run_exp\nrun_exp()\n", "train.py")
    project.write("", "swift/cli/sft.py")
    job += f"env: {{{name}: '1'}}\n"
    (result,) = results_of(local_context(project, job), "flags")
    assert result.evidence == f"`{name}` is set: it may select other options"


def test_libraries_of_a_host_are_not_read_here(project: Project, tmp_path: Path) -> None:
    environment(tmp_path / "env")
    project.write(TRL_PROGRAM, "train.py")
    job = f"{TORCHRUN}python: {tmp_path}/env/bin/python\nargs: {{max_lengthh: 3}}\n"
    assert [result.status for result in results_of(remote_context(project, job), "flags")] == [
        "skip"
    ]


LAST = TORCHRUN + "args: {resume_from_checkpoint: true, output_dir: out}\n"


def test_the_newest_checkpoint_is_looked_for(project: Project) -> None:
    assert result_of(local_context(project, LAST), "resume").status == "warn"
    project.write("{}", "out/checkpoint-5/trainer_state.json")
    project.write("x", "out/checkpoint-5/model.safetensors")
    assert result_of(local_context(project, LAST), "resume").status == "ok"


@pytest.mark.parametrize(
    ("call", "complaints"),
    [
        ("Trainer().train(resume_from_checkpoint=args.resume_from_checkpoint)", 2),
        ("Trainer().train(**vars(args))", 2),
        ("library.run(args)", 2),
        ("Trainer().train(resume_from_checkpoint=any(checkpoints))", 0),
        ("Trainer().train()", 0),
    ],
)
def test_a_switch_to_resume_that_the_program_never_reads_is_no_complaint(
    project: Project, call: str, complaints: int
) -> None:
    project.write(f"{HF_PARSER}{call}\n", "train.py")
    context = local_context(project, LAST)
    results = [*results_of(context, "resume"), *results_of(context, "flags")]
    assert [result.status for result in results].count("warn") == complaints


@pytest.mark.parametrize(
    "files",
    [
        ("trainer_state.json",),
        ("trainer_state.json", "config.json", "tokenizer.model"),
        ("trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state_0.pth"),
    ],
)
def test_a_checkpoint_without_a_model_is_a_warning(
    project: Project, files: tuple[str, ...]
) -> None:
    for name in files:
        project.write("{}", f"out/checkpoint-9/{name}")
    job = TORCHRUN + "args: {resume_from_checkpoint: out/checkpoint-9}\n"
    for case in (LAST, job):
        result = result_of(local_context(project, case), "resume")
        assert (result.status, "no file of a model" in result.evidence) == ("warn", True)


@pytest.mark.parametrize(
    "file",
    ["adapter_model.bin", "model.safetensors.index.json", "global_step9/x.pt", "weights.gguf"],
)
def test_a_checkpoint_with_something_that_may_be_a_model_passes(
    project: Project, file: str
) -> None:
    project.write("{}", "out/checkpoint-9/trainer_state.json")
    project.write('{"weight_map": {}}', f"out/checkpoint-9/{file}")
    assert result_of(local_context(project, LAST), "resume").status == "ok"


def test_a_job_that_begins_anew_hears_nothing_of_checkpoints(project: Project) -> None:
    assert (
        results_of(local_context(project, TORCHRUN + "args: {output_dir: out}\n"), "resume") == []
    )


@pytest.mark.parametrize("options", ["load: ckpt, save: ckpt", "load: ./ckpt, save: ckpt/"])
def test_a_checkpoint_that_the_job_itself_saves_later_may_be_missing(
    project: Project, options: str
) -> None:
    """Megatron: it starts anew where there is none."""
    result = result_of(local_context(project, TORCHRUN + f"args: {{{options}}}\n"), "resume")
    assert (result.status, "starts anew" in result.evidence) == ("ok", True)


def test_a_checkpoint_of_transformers_must_exist_wherever_the_job_saves(project: Project) -> None:
    job = TORCHRUN + "args: {resume_from_checkpoint: out, output_dir: out}\n"
    assert result_of(local_context(project, job), "resume").status == "warn"


# -- outputs ---------------------------------------------------------------------------------------

OUT = TORCHRUN + "args: {output_dir: /d/out}\n"


@pytest.mark.parametrize(("disk", "status"), [
    (room(), "ok"),
    (room(inodes=None), "ok"),
    (room(writable=False), "warn"),
    ({"folder": "/d/out", "is_file": True, "writable": False}, "warn"),
    (room(free=1 << 20), "warn"),
    (room(inodes=12), "warn"),
])  # fmt: skip
def test_folders_of_results_can_be_written_and_have_room(
    project: Project, disk: dict[str, Any], status: str
) -> None:
    assert (
        result_of(remote_context(project, OUT, {("room", "/d/out"): disk}), "outputs").status
        == status
    )


REASONS = {
    "permission": (room(writable=False), "no permission in /d"),
    "read-only": (room(writable=False, why="is on a read-only x"), "/d is on a read-only x"),
    "a full disk": (room(free=0), "the disk is full"),
    "an almost full disk": (room(free=1 << 20), "1MiB are free"),
}


@pytest.mark.parametrize(("disk", "why"), REASONS.values(), ids=REASONS)
def test_the_reason_why_results_cannot_be_written_is_the_right_one(
    project: Project, disk: dict[str, Any], why: str
) -> None:
    result = result_of(remote_context(project, OUT, {("room", "/d/out"): disk}), "outputs")
    assert (result.status, why in result.evidence) == ("warn", True)


def test_a_file_system_that_counts_no_bytes_is_not_full(project: Project) -> None:
    disk = room(free=None, total=None)
    result = result_of(remote_context(project, OUT, {("room", "/d/out"): disk}), "outputs")
    assert (result.status, result.evidence) == ("ok", "/d/out")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_folder_in_proc_cannot_be_created_by_anyone(project: Project) -> None:
    job = TORCHRUN + "args: {output_dir: /proc/out}\n"
    result = result_of(local_context(project, job), "outputs")
    assert result.evidence == "/proc/out cannot be written: /proc is on proc, which keeps no files"


def test_a_link_that_leads_nowhere_is_no_folder_for_results(project: Project) -> None:
    (project.folder / "out").symlink_to("/mnt/gone")
    job = TORCHRUN + "args: {output_dir: out}\n"
    result = result_of(local_context(project, job), "outputs")
    assert (result.status, "a link to /mnt/gone" in result.evidence) == ("warn", True)


def test_the_folder_of_runs_must_be_writable(project: Project) -> None:
    answers = {("home",): room(path="/d/runs", writable=False)}
    assert result_of(remote_context(project, TORCHRUN, answers), "run-folder").status == "fail"
    answers = {("home",): room(path="/d/runs")}
    assert result_of(remote_context(project, TORCHRUN, answers), "run-folder").status == "ok"


@pytest.mark.parametrize(
    ("user", "more", "status"),
    [
        ("me", {"free": 0}, "fail"),
        ("root", {"free": 0}, "warn"),
        ("root", {"inodes": 0}, "fail"),
        ("me", {"free": 1 << 20}, "warn"),
    ],
)
def test_a_start_needs_room_for_its_run(
    user: str, more: dict[str, int], status: str, project: Project
) -> None:
    answers = {("home",): room(path="/d/runs", **more)}
    case = local_context(project, TORCHRUN, answers=answers, facts={"system": {"user": user}})
    assert result_of(case, "run-folder").status == status


def test_another_folder_for_results_is_written_out(project: Project) -> None:
    answers = {("room", "/srv/out"): room(writable=False)}
    facts = {"system": {"home": "/home/me"}}
    case = local_context(
        project, TORCHRUN + "args: {output_dir: /srv/out}\n", answers=answers, facts=facts
    )
    assert result_of(case, "outputs").hint == "name a folder of your own, such as /home/me/out"


@pytest.mark.parametrize(("log", "status"), [
    ("logs/{name}.log", "fail"), ("logs/{name}-{time}.log", "ok"), ("logs/new.log", "ok"),
    ("train.py/x.log", "fail"),
])  # fmt: skip
def test_a_log_that_the_start_would_refuse_is_refused(
    project: Project, log: str, status: str
) -> None:
    project.write("", "logs/job.log")
    assert result_of(local_context(project, TORCHRUN + f"log: '{log}'\n"), "log").status == status


def test_a_job_without_a_log_hears_nothing(project: Project) -> None:
    assert results_of(local_context(project, TORCHRUN), "log") == []


USED = TORCHRUN + "args: {output_dir: out%s}\n"


def test_a_script_that_refuses_a_full_folder_is_warned_of(project: Project) -> None:
    project.write("parser.add_argument('--overwrite_output_dir')", "train.py")
    assert result_of(local_context(project, USED % ""), "output-used").status == "ok"
    project.write("", "out/notes.txt")
    result = result_of(local_context(project, USED % ""), "output-used")
    assert result.status == "warn"
    assert result.hint.startswith("args: {overwrite_output_dir: true}")
    assert (
        results_of(local_context(project, USED % ", overwrite_output_dir: true"), "output-used")
        == []
    )


def test_an_output_folder_without_a_name_is_none(project: Project) -> None:
    project.write(
        "if os.listdir(args.output_dir) and not args.overwrite_output_dir: ...", "train.py"
    )
    context = local_context(project, TORCHRUN + "args: {output_dir: ''}\n")
    assert results_of(context, "output-used") == []


def test_other_scripts_may_write_where_something_is(project: Project) -> None:
    project.write("", "out/notes.txt")
    assert results_of(local_context(project, USED % ""), "output-used") == []


LEFT = {
    "MiniOneRec": ("launcher: command\ncommand: [bash, evaluate.sh]\n", "temp/x/0.json"),
    "a shard": (
        "launcher: python\nscript: train.py\nargs: {result_json_data: temp/0.json}\n",
        "temp/0.json",
    ),
    "AReaL": (
        "launcher: command\ncommand: [python, eval_and_aggregate.py, --output_path, res]\n",
        "res/aime24.json",
    ),
}


@pytest.mark.parametrize(("job", "file"), LEFT.values(), ids=LEFT)
def test_results_of_an_earlier_evaluation_are_said(project: Project, job: str, file: str) -> None:
    assert result_of(local_context(project, job), "leftovers").status == "ok"
    project.write("{}", file)
    assert result_of(local_context(project, job), "leftovers").status == "warn"


def test_training_has_no_leftovers(project: Project) -> None:
    assert results_of(local_context(project, OUT), "leftovers") == []


# -- live runs -------------------------------------------------------------------------------------


def live_runs(argv: Sequence[str], cwd: str, name: str = "other") -> dict[tuple[Any, ...], Any]:
    plan = {"nodes": [{"cwd": cwd, "argv": list(argv)}]}
    return {("runs",): {"live": [{"id": "r-1", "node": "node-0", "name": name, "plan": plan}]}}


@pytest.mark.parametrize(("argv", "cwd", "status"), [
    (["python", "x.py", "--output_dir", "/d/out"], "/x", "fail"),
    (["python", "x.py", "--output-dir=out"], "/d", "fail"),
    (["python", "x.py", "--output_dir", "/d/out2"], "/x", "ok"),
    (["python", "x.py"], "/x", "ok"),
])  # fmt: skip
def test_a_start_into_the_folder_of_a_run_that_lives_is_refused(
    project: Project, argv: list[str], cwd: str, status: str
) -> None:
    result = result_of(remote_context(project, OUT, live_runs(argv, cwd)), "live-runs")
    assert result.status == status
    if status == "fail":
        assert result.hint.startswith("safelaunch stop r-1")


@pytest.mark.parametrize(("is_own", "status"), [(True, "fail"), (False, "ok")])
def test_folders_in_the_project_are_of_one_checkout(
    project: Project, tmp_path: Path, *, is_own: bool, status: str
) -> None:
    home = str(tmp_path / "home")
    checkout = checkout_id(home, str(project.folder)) if is_own else "another"
    place = "/srv/llm-1a2b3c" if is_own else "/srv/llm"  # where the plain name was taken
    answers = live_runs(["x.py", "--output_dir", "out"], place)
    answers["runs",]["live"][0] |= {"place": place, "checkout": checkout}
    job = TORCHRUN + "args: {output_dir: out}\n"
    environ = {"SAFELAUNCH_HOME": home}
    case = remote_context(project, job, answers, root="/srv/llm", environ=environ)
    assert result_of(case, "live-runs").status == status


def test_a_run_with_the_same_experiment_names_is_named(project: Project) -> None:
    job = AREAL + "args: [experiment_name=e, trial_name=t]\n"
    same = live_runs(["python", "x.py", "experiment_name=e", "trial_name=t"], "/x")
    assert result_of(remote_context(project, job, same), "live-runs").status == "fail"
    other = live_runs(["python", "x.py", "experiment_name=e", "trial_name=u"], "/x")
    assert result_of(remote_context(project, job, other), "live-runs").status == "ok"


def test_the_same_job_a_second_time_is_named(project: Project) -> None:
    case = remote_context(project, TORCHRUN, root="/srv/llm")
    words = [str(word) for word in case.hosts[0].plan.argv]
    assert (
        result_of(
            remote_context(project, TORCHRUN, live_runs(words, "/srv/llm", "job"), root="/srv/llm"),
            "live-runs",
        ).status
        == "warn"
    )


def test_a_run_is_looked_for_before_each_start(project: Project) -> None:
    case = remote_context(
        project, OUT, live_runs(["x.py", "--output_dir", "/d/out"], "/x"), is_quick=True
    )
    assert result_of(case, "live-runs").status == "fail"


def test_a_folder_in_a_settings_file_counts(project: Project) -> None:
    project.write("output_dir: out/sft\n", "conf.yaml")
    case = local_context(
        project, TORCHRUN + "args: {config: conf.yaml}\n", answers=live_runs([], "")
    )
    cwd = case.hosts[0].cwd
    for argv, status in (
        (["x.py", "--config", "conf.yaml"], "fail"),
        (["x.py", "--save_path", "out/sft"], "fail"),
        (["x.py", "--config", "other.yaml"], "ok"),
    ):
        answers = live_runs(argv, cwd)
        case = local_context(project, TORCHRUN + "args: {config: conf.yaml}\n", answers=answers)
        assert result_of(case, "live-runs").status == status


def test_the_folder_of_a_variable_and_the_glob_of_the_checkpoints_count(project: Project) -> None:
    answers = live_runs(["x.py"], "/x")
    run = answers[("runs",)]["live"][0]["plan"]
    run["nodes"][0]["env"] = {"OUTPUT_DIR": {"value": "/d/out"}}
    run["checkpoint"] = "/d/c/checkpoint-*"
    for keys in ("env: {OUTPUT_DIR: /d/out}", "recovery: {checkpoint: /d/c/checkpoint-*}"):
        case = local_context(project, TORCHRUN + keys + "\n", answers=answers)
        assert result_of(case, "live-runs").status == "fail"


@pytest.mark.parametrize(("log", "status"), [("out/t.log", "fail"), ("out/{id}.log", "ok")])
def test_a_log_that_a_live_run_writes_counts(project: Project, log: str, status: str) -> None:
    answers = live_runs(["x.py"], "/x")
    job = TORCHRUN + f"log: {log}\n"
    cwd = local_context(project, job).hosts[0].cwd
    answers["runs",]["live"][0]["log"] = f"{cwd}/{log}"
    assert result_of(local_context(project, job, answers=answers), "live-runs").status == status


def test_runs_may_share_a_folder_of_logs(project: Project) -> None:
    job = TORCHRUN + "args: {logging_dir: /d/tb}\n"
    other = live_runs(["x.py", "--logging_dir", "/d/tb"], "/x")
    assert result_of(remote_context(project, job, other), "live-runs").status == "ok"


def test_no_run_passes(project: Project) -> None:
    assert (
        result_of(remote_context(project, OUT, {("runs",): {"live": []}}), "live-runs").status
        == "ok"
    )


# -- shared folders --------------------------------------------------------------------------------


def shared(project: Project, job: str, groups: Sequence[Sequence[int]] | None) -> CheckContext:
    case = remote_context(project, job + "nodes: 2\n", hosts=("a", "b"))
    results = {} if groups is None else dict.fromkeys(shared_folders(case), groups)
    return run.with_hosts(replace(case, shared=results), case.hosts)


SHARDED = TORCHRUN + "args: {output_dir: /d/out, deepspeed: ds.json}\n"


@pytest.mark.parametrize(("job", "groups", "status"), [
    (SHARDED, [[0, 1]], "ok"),
    (SHARDED, [[0], [1]], "warn"),
    (OUT, [[0], [1]], "ok"),
    (SHARDED, None, "skip"),
])  # fmt: skip
def test_folders_that_all_nodes_must_see_are_shared(
    project: Project, job: str, groups: Sequence[Sequence[int]] | None, status: str
) -> None:
    assert result_of(shared(project, job, groups), "shared-folders").status == status


@pytest.mark.parametrize(("folder", "nodes", "statuses"), [
    ("/tmp/areal", 2, ["warn"]), ("/storage/areal", 2, ["ok"]), ("/tmp/areal", 1, []),
])  # fmt: skip
def test_areals_workers_meet_on_shared_storage(
    project: Project, folder: str, nodes: int, statuses: list[str]
) -> None:
    job = AREAL + f"args: [cluster.fileroot={folder}, cluster.n_nodes={nodes}]\n"
    assert [
        each.status for each in results_of(local_context(project, job), "areal-folders")
    ] == statuses


def test_one_machine_shares_with_nobody(project: Project) -> None:
    assert results_of(local_context(project, SHARDED), "shared-folders") == []


# -- models ----------------------------------------------------------------------------------------

MODEL = TORCHRUN + "args: {model_name_or_path: ./m}\n"


def weights(project: Project, **files: str) -> Any:
    for name, text in files.items():
        project.write(text, f"m/{name.replace('__', '.').replace('_', '-')}")
    return result_of(local_context(project, MODEL), "models")


WHOLE = {"config__json": "{}", "model__safetensors": "x" * 2000, "tokenizer__json": "{}"}


def test_a_whole_model_passes(project: Project) -> None:
    assert weights(project, **WHOLE).status == "ok"


def test_pointers_of_git_lfs_are_no_weights(project: Project) -> None:
    result = weights(project, **{**WHOLE, "model__safetensors": POINTER})
    assert result.status == "warn"
    assert result.hint == f"git -C {project.folder}/m lfs pull"


@pytest.mark.parametrize("without", ["config__json", "model__safetensors", "tokenizer__json"])
def test_what_a_model_lacks_is_said(project: Project, without: str) -> None:
    files = {name: text for name, text in WHOLE.items() if name != without}
    assert weights(project, **files).status == "warn"


def test_parts_that_the_index_names_are_missed(project: Project) -> None:
    index = json.dumps({"weight_map": {"a": "model.safetensors", "b": "other.safetensors"}})
    result = weights(project, **WHOLE, model__safetensors__index__json=index)
    assert (result.status, "other.safetensors" in result.evidence) == ("warn", True)


CUT_OFF = "\x40" + "\0" * 7 + '{"a": {"data_offsets": [0, 9000]}}' + " " * 30


@pytest.mark.parametrize(("text", "why"), [("", "is empty"), (CUT_OFF, "is cut off")])
def test_weights_that_are_not_whole_are_no_weights(project: Project, text: str, why: str) -> None:
    result = weights(project, **{**WHOLE, "model__safetensors": text})
    assert (result.status, result.evidence) == ("warn", f"./m: model.safetensors {why}")


@pytest.mark.parametrize("name", ["config__json", "model__safetensors__index__json"])
def test_a_text_of_a_model_that_is_cut_off_is_named(project: Project, name: str) -> None:
    result = weights(project, **{**WHOLE, name: '{"weight_map": '})
    assert (result.status, "is cut off" in result.evidence) == ("warn", True)


def test_an_adapter_needs_no_config_json(project: Project) -> None:
    assert weights(project, adapter_config__json="{}").status == "warn"  # no weights: a name apart
    project.write("{}", "m/adapter_config.json")
    assert result_of(local_context(project, MODEL), "models").status == "ok"


def test_a_model_that_is_missing_is_a_warning_and_an_id_is_none(project: Project) -> None:
    assert result_of(local_context(project, MODEL), "models").status == "warn"
    job = TORCHRUN + "args: {model_name_or_path: org/name}\n"
    assert results_of(local_context(project, job), "models") == []


@pytest.mark.parametrize(("option", "statuses"), [("model", []), ("model_path", ["warn"])])
def test_the_folder_of_a_kind_of_model_need_not_be_one(
    project: Project, option: str, statuses: list[str]
) -> None:
    project.write("", "llava/__init__.py")
    job = TORCHRUN + f"args: {{{option}: llava}}\n"
    results = results_of(local_context(project, job), "models")
    assert [result.status for result in results] == statuses
    assert all("write `llava`" not in result.hint for result in results)


def test_a_model_that_travels_is_looked_at_here(project: Project) -> None:
    for name, text in WHOLE.items():
        project.write(text, f"m/{name.replace('__', '.')}")
    assert result_of(remote_context(project, MODEL), "models").status == "ok"
    project.write(POINTER, "m/model.safetensors")
    result = result_of(remote_context(project, MODEL), "models")
    assert result.hint.startswith(f"git -C {project.folder}/m lfs pull, then `safelaunch push`")


# -- the hub ---------------------------------------------------------------------------------------

HUB = TORCHRUN + "args: {model_name_or_path: org/name, dataset_name: org/data}\n"
OFFLINE = "env: {HF_HUB_OFFLINE: '1'}\n"
MODEL_ID, DATA_ID = ("hub", "models", "org/name"), ("hub", "datasets", "org/data")


def cached(*questions: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    return {each: {"cached": each in questions, "folder": "/c"} for each in (MODEL_ID, DATA_ID)}


def test_an_id_offline_must_be_in_the_cache(project: Project) -> None:
    results = results_of(remote_context(project, HUB + OFFLINE, cached(MODEL_ID)), "hub")
    assert [each.status for each in results] == ["warn", "ok"]
    assert "data set org/data is not in the cache" in results[0].evidence
    assert "safelaunch push data --host gpu1" in results[0].hint


CHOSEN = """
import argparse
SIZES = {f"org/{name}": name for name in ("name",)}
parser = argparse.ArgumentParser()
parser.add_argument("--model_name_or_path", choices=list(SIZES))
parser.add_argument("--dataset_name")
args = parser.parse_args()
"""


def test_one_of_a_fixed_set_is_no_id(project: Project) -> None:
    project.write(CHOSEN, "train.py")
    [result] = results_of(remote_context(project, HUB + OFFLINE, cached()), "hub")
    assert "data set org/data is not in the cache" in result.evidence


def test_online_an_id_is_fetched(project: Project) -> None:
    assert results_of(remote_context(project, HUB, cached()), "hub") == []
    assert (
        results_of(remote_context(project, HUB + "env: {HF_HUB_OFFLINE: '0'}\n", cached()), "hub")
        == []
    )


def test_a_host_that_is_offline_says_so_in_its_entry(project: Project) -> None:
    project.write("hosts: {gpu1: {hub: offline}}\n", "hosts.yaml")
    results = results_of(remote_context(project, HUB, cached(), hosts_file="hosts.yaml"), "hub")
    assert [each.status for each in results] == ["warn", "warn"]
    assert "HF_HUB_OFFLINE=1" in results[0].evidence


def test_a_folder_of_that_name_is_no_id(project: Project) -> None:
    project.write("{}", "org/name/config.json")
    results = results_of(remote_context(project, HUB + OFFLINE, cached(DATA_ID)), "hub")
    assert [each.status for each in results] == ["ok"]


def test_the_cache_of_the_job_is_asked(project: Project) -> None:
    job = HUB + "env: {HF_HUB_OFFLINE: '1', HF_HOME: /h}\n"
    answers = {
        (*each, "HF_HOME=/h"): {"cached": True, "folder": "/h"} for each in (MODEL_ID, DATA_ID)
    }
    assert result_of(remote_context(project, job, answers), "hub").status == "ok"


def test_swift_takes_its_models_from_another_hub(project: Project) -> None:
    job = "launcher: swift\ncommand: [sft]\nargs: {model: org/name}\n" + OFFLINE
    assert results_of(remote_context(project, job, cached()), "hub") == []


# -- assets ----------------------------------------------------------------------------------------

ASSETS = TORCHRUN + "assets: {base: {path: base.bin, to: /data/base.bin}}\n"


def test_an_asset_that_is_not_here_makes_the_start_impossible(project: Project) -> None:
    for case in (local_context(project, ASSETS), remote_context(project, ASSETS)):
        assert result_of(case, "assets").status == "fail"
    project.write("12345", "base.bin")
    for case in (local_context(project, ASSETS), remote_context(project, ASSETS)):
        assert result_of(case, "assets").status == "ok"


@pytest.mark.parametrize(("free", "existing", "count"), [(9, 0, 0), (4, 0, 1), (4, 5, 0)])
def test_there_is_room_for_what_is_not_there_yet(
    project: Project, free: int, existing: int, count: int
) -> None:
    project.write("12345", "base.bin")
    answers = {("room", "/data/base.bin"): room(free=free),
            ("size", "/data/base.bin"): {"bytes": existing, "files": 1, "whole": True}}  # fmt: skip
    results = [
        each
        for each in results_of(remote_context(project, ASSETS, answers), "assets")
        if each.status == "warn"
    ]
    assert len(results) == count


# -- bad input -------------------------------------------------------------------------------------

NAMES = ("output_dir", "model_name_or_path", "resume_from_checkpoint", "config", "dataset_name",
         "vllm_server_host", "vllm_server_port", "remote_rm_url", "result_json_data")  # fmt: skip
STRANGE = ["\\x00", "$HOME/x", "{a}", "[", "~", "~nobody/x", "/", "..", "a" * 300, "*?[", "ä ö",
           "http://x:99999/", "//", "-1", "%s%d"]  # fmt: skip


@pytest.mark.parametrize("value", STRANGE)
def test_no_word_of_a_job_makes_a_check_fail_by_itself(project: Project, value: str) -> None:
    words = json.dumps(value)
    args = ", ".join(f"{name}: {words}" for name in NAMES)
    job = f"{TORCHRUN}args: {{{args}}}\n"
    if not value.startswith("~"):  # which `env` refuses
        job += f"env: {{NCCL_SOCKET_IFNAME: {words}, HF_HUB_OFFLINE: '1'}}\n"
        job += f"inputs: [{words}]\n"
    environ = {"http_proxy": value, "no_proxy": value}
    for case in (local_context(project, job, environ=environ), remote_context(project, job)):
        broken = [each for each in run.run(case) if "the check itself failed" in each.evidence
                  and each.family in ("network", "project")]  # fmt: skip
        assert broken == []
