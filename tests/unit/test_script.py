from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from support.project import PYTHON, TORCHRUN, Project, script

from safelaunch.model import Slot
from safelaunch.plan.build import bind
from safelaunch.script import paste_line

# stands where the interpreter would: tells its words, variables and folder
RECORDER = f"""#!{sys.executable} -IS
import json, os, sys
launched = {{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "launched.json"), "w") as file:
    json.dump(launched, file)
"""
HOSTILE = [
    "", " ", "a b", "'", '"', "it's", "$HOME", "${HOME}", "$(id)", "`id`", "\\", "\\n", "a\nb",
    "\t", "*", "?", "[a]", "{a,b}", "~", "!", "!!", "#", "a#b", ";", "&", "|", "<", ">", "(", ")",
    "--", "-n", "--lr=1", "=", "a=b", "%s", "é漢🚀", "\u00a0", "\u2028", "\x01", "\x7f", "EOF",
    "<port>", "'\\''", "$'a'", "x" * 9000,
]  # fmt: skip
SHELLS = [
    pytest.param(
        shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"no {shell} here")
    )
    for shell in ("bash", "zsh", "sh")
]


class Launched(NamedTuple):
    """Words, environment and folder that the recorder was started with."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "it's a project")
    recorder = project.folder / "bin" / "recorder"
    recorder.parent.mkdir()
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    return project


def job(text: str = "") -> str:
    start = "" if text.startswith("launcher:") else PYTHON
    return f"{start}{text}python: ./bin/recorder\n"


def run(project: Project, shell: str, text: str, env: dict[str, str]) -> Launched:
    """Run shell text with a small environment and return what the recorder was started with."""
    launched = project.folder / "bin" / "launched.json"
    launched.unlink(missing_ok=True)
    base = {"PATH": os.environ["PATH"], "HOME": "/", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [shell, "-c", text], env={**base, **env}, cwd="/", check=False, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return Launched(**json.loads(launched.read_text()))


def launch(project: Project, text: str = "", **env: str) -> Launched:
    """Run launch.sh of a job."""
    plan = bind(project.plan(job(text)), {Slot.THREADS: "3"})
    (project.folder / "launch.sh").write_bytes(script(plan).encode())
    return run(project, "bash", 'bash "$SCRIPT"', {"SCRIPT": f"{project.folder}/launch.sh", **env})


def pasted(project: Project, text: str = "", shell: str = "bash", **env: str) -> Launched:
    """Run the line that a dry-run prints."""
    plan = project.plan(job(text))
    return run(project, shell, paste_line(plan.nodes[0], plan.topology), env)


def yaml_text(value: object) -> str:
    """Return data as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=1 << 20)


# -- the text --------------------------------------------------------------------------------------


def test_the_script_has_unix_line_ends(project: Project) -> None:
    assert "\r" not in script(project.plan(job()))


def test_the_script_begins_with_a_shebang_and_no_byte_order_mark(project: Project) -> None:
    assert script(project.plan(job())).encode().startswith(b"#!/usr/bin/env bash\n")


def test_the_script_ends_with_a_line_end(project: Project) -> None:
    assert script(project.plan(job())).endswith("\n")


def test_the_paste_line_is_one_line(project: Project) -> None:
    plan = project.plan(job("setup: [true, 'false || true']\nenv: {A: b}\n"))
    assert "\n" not in paste_line(plan.nodes[0], plan.topology)


# -- words arrive unchanged ------------------------------------------------------------------------


def test_hostile_words_arrive_unchanged(project: Project) -> None:
    assert launch(project, f"args: {yaml_text(HOSTILE)}").argv == ["train.py", *HOSTILE]


def test_hostile_values_arrive_unchanged(project: Project) -> None:
    env = {f"V{i}": value for i, value in enumerate(HOSTILE)}
    launched = launch(project, f"env: {yaml_text(env)}")
    assert {name: launched.env.get(name) for name in env} == env


def test_the_job_runs_in_its_folder_whatever_its_name(project: Project) -> None:
    assert launch(project).cwd == str(project.folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_words_survive_pasting(shell: str, project: Project) -> None:
    launched = pasted(project, f"args: {yaml_text(HOSTILE)}", shell)
    assert launched.argv == ["train.py", *HOSTILE]


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_values_survive_pasting(shell: str, project: Project) -> None:
    env = {f"V{i}": value for i, value in enumerate(HOSTILE)}
    launched = pasted(project, f"env: {yaml_text(env)}", shell)
    assert {name: launched.env.get(name) for name in env} == env


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_goes_to_the_folder_first(shell: str, project: Project) -> None:
    assert pasted(project, "", shell).cwd == str(project.folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_puts_pythonpath_before_the_shells_own(shell: str, project: Project) -> None:
    assert pasted(project, "", shell, PYTHONPATH="/own").env["PYTHONPATH"] == (
        f"{project.folder}:/own"
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_works_out_the_threads(shell: str, project: Project) -> None:
    assert int(pasted(project, TORCHRUN, shell).env["OMP_NUM_THREADS"]) >= 1


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_removes_what_the_job_removes(shell: str, project: Project) -> None:
    assert "GONE" not in pasted(project, "env: {GONE: null}\n", shell, GONE="1").env


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_takes_secrets_from_the_shell(shell: str, project: Project) -> None:
    launched = pasted(project, "env_from: [HF_TOKEN]\n", shell, HF_TOKEN="a b$c")  # noqa: S106
    assert launched.env["HF_TOKEN"] == "a b$c"  # noqa: S105


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_writes_its_files_to_a_fresh_folder(shell: str, project: Project) -> None:
    text = "launcher: accelerate\nscript: train.py\nprocesses: 2\npython: ./bin/recorder\n"
    plan = project.plan(text)
    launched = run(project, shell, paste_line(plan.nodes[0], plan.topology), {})
    file = Path(launched.argv[launched.argv.index("--config_file") + 1])
    assert "num_processes: 2" in file.read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_runs_the_setup_first(shell: str, project: Project) -> None:
    assert pasted(project, "setup: [export A=1]\n", shell).env["A"] == "1"


# -- what is inherited -----------------------------------------------------------------------------


def test_all_else_is_inherited(project: Project) -> None:
    assert launch(project, MINE="1").env["MINE"] == "1"


def test_left_overs_of_other_jobs_are_not_inherited(project: Project) -> None:
    left = {"RANK": "3", "PET_NNODES": "2", "SLURM_NTASKS": "7", "MASTER_PORT": "1"}
    assert left.keys() & launch(project, **left).env.keys() == set()


def test_what_only_names_a_slurm_job_is_left_to_it(project: Project) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_TMPDIR": "/scratch/7", "SLURM_ARRAY_TASK_ID": "3"}
    env = launch(project, **job, SLURM_PROCID="1").env
    assert {name: value for name, value in env.items() if name.startswith("SLURM")} == job


def test_a_scrubbed_name_may_be_set_by_the_job(project: Project) -> None:
    assert launch(project, "env: {PMI_RANK: 1}\n", PMI_RANK="2").env["PMI_RANK"] == "1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("env_from: [SLURM_PROCID]", {"SLURM_PROCID"}),
        ("env_from: [GROUP_TOKEN, NNODES]", {"GROUP_TOKEN", "NNODES"}),
        ("inherit: [NNODES, GROUP_TOKEN]", {"GROUP_TOKEN", "NNODES"}),
        ("inherit: [SLURM_*]", {"SLURM_PROCID", "SLURM_NTASKS"}),
        ("inherit: [S*, PMI_*]", {"SLURM_PROCID", "SLURM_NTASKS"}),
        ("inherit: [SLURM_N*]\nenv_from: [NNODES]", {"SLURM_NTASKS", "NNODES"}),
    ],
)  # fmt: skip
def test_what_a_job_asks_for_is_handed_on(project: Project, text: str, names: set[str]) -> None:
    left = {"GROUP_TOKEN": "a b", "NNODES": "2", "SLURM_PROCID": "7", "SLURM_NTASKS": "8"}
    launched = launch(project, f"{text}\n", **left).env
    assert {name: launched[name] for name in left if name in launched} == {
        name: left[name] for name in names
    }


def test_nothing_else_is_inherited_with_none(project: Project) -> None:
    assert "MINE" not in launch(project, "inherit: none\n", MINE="1").env


def test_the_basics_are_inherited_with_none(project: Project) -> None:
    assert launch(project, "inherit: none\n").env["HOME"] == "/"


def test_named_variables_are_inherited(project: Project) -> None:
    assert launch(project, "inherit: [MINE]\n", MINE="1", OTHER="2").env["MINE"] == "1"


def test_variables_that_are_not_named_are_not_inherited(project: Project) -> None:
    assert "OTHER" not in launch(project, "inherit: [MINE]\n", MINE="1", OTHER="2").env


def test_a_prefix_may_be_inherited(project: Project) -> None:
    assert launch(project, "inherit: [WANDB_*]\n", WANDB_MODE="off").env["WANDB_MODE"] == "off"


def test_secrets_are_inherited_with_none(project: Project) -> None:
    text = "inherit: none\nenv_from: [HF_TOKEN]\n"
    assert launch(project, text, HF_TOKEN="x").env["HF_TOKEN"] == "x"  # noqa: S105, S106


def test_the_mark_of_the_supervisor_is_kept(project: Project) -> None:
    launched = launch(project, "inherit: none\n", SAFELAUNCH_RUN_ID="run")
    assert launched.env["SAFELAUNCH_RUN_ID"] == "run"


def test_a_null_removes_an_inherited_variable(project: Project) -> None:
    assert "GONE" not in launch(project, "env: {GONE: null}\n", GONE="1").env


def test_prepend_goes_before_the_inherited_value(project: Project) -> None:
    text = "env: {LD_LIBRARY_PATH: {prepend: /a}}\n"
    assert launch(project, text, LD_LIBRARY_PATH="/b").env["LD_LIBRARY_PATH"] == "/a:/b"


def test_prepend_to_nothing_adds_no_empty_entry(project: Project) -> None:
    assert launch(project, "env: {LD_LIBRARY_PATH: {prepend: /a}}\n").env["LD_LIBRARY_PATH"] == "/a"


def test_threads_of_the_target_are_kept(project: Project) -> None:
    assert launch(project, TORCHRUN, OMP_NUM_THREADS="5").env["OMP_NUM_THREADS"] == "5"


def test_threads_are_set_where_the_target_has_none(project: Project) -> None:
    assert launch(project, TORCHRUN).env["OMP_NUM_THREADS"] == "3"


def test_a_program_that_starts_ranks_itself_divides_the_cores(project: Project) -> None:
    assert "OMP_NUM_THREADS" not in launch(project).env


# -- the interpreter's environment -----------------------------------------------------------------


def test_the_folder_of_the_interpreter_is_first_on_path(project: Project) -> None:
    assert launch(project).env["PATH"].split(":")[0] == f"{project.folder}/bin"


def test_an_interpreter_without_environment_removes_the_callers(project: Project) -> None:
    launched = launch(project, VIRTUAL_ENV="/old", CONDA_PREFIX="/old", CONDA_DEFAULT_ENV="old")
    assert launched.env.keys() & {"VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"} == set()


def test_a_virtual_environment_is_recognised_by_its_config(project: Project) -> None:
    project.write("", "pyvenv.cfg")
    assert launch(project, CONDA_PREFIX="/old").env["VIRTUAL_ENV"] == str(project.folder)


def test_a_conda_environment_is_recognised_by_its_metadata(project: Project) -> None:
    (project.folder / "conda-meta").mkdir()
    assert launch(project, VIRTUAL_ENV="/old").env["CONDA_PREFIX"] == str(project.folder)


# -- proxies ---------------------------------------------------------------------------------------


def test_without_a_proxy_no_proxy_is_left_alone(project: Project) -> None:
    assert "no_proxy" not in launch(project).env


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_with_a_proxy_the_ranks_talk_directly(name: str, project: Project) -> None:
    assert launch(project, **{name: "http://p:1"}).env["no_proxy"] == "localhost,127.0.0.1,::1"


def test_no_proxy_of_the_target_is_kept(project: Project) -> None:
    launched = launch(project, http_proxy="http://p:1", no_proxy="intra.net")
    assert launched.env["no_proxy"] == "localhost,127.0.0.1,::1,intra.net"


def test_both_spellings_of_no_proxy_agree(project: Project) -> None:
    launched = launch(project, http_proxy="http://p:1", no_proxy="intra.net")
    assert launched.env["NO_PROXY"] == launched.env["no_proxy"]


def test_a_proxy_of_the_job_counts_too(project: Project) -> None:
    launched = launch(project, "env: {http_proxy: 'http://p:1'}\n")
    assert launched.env["no_proxy"] == "localhost,127.0.0.1,::1"


# -- setup -----------------------------------------------------------------------------------------


def test_setup_lines_run_verbatim_in_the_same_shell(project: Project) -> None:
    text = "setup: ['A=$((1 + 1))', 'export A B=\"$A x\"']\n"
    assert launch(project, text).env["B"] == "2 x"


def test_the_plan_beats_what_setup_exports(project: Project) -> None:
    assert launch(project, "setup: [export A=1]\nenv: {A: 2}\n").env["A"] == "2"


def test_setup_that_makes_the_shell_strict_does_no_harm(project: Project) -> None:
    text = "setup: ['set -euo pipefail']\nenv: {A: {prepend: /a}, B: null}\n"
    assert launch(project, text).env["A"] == "/a"


def test_setup_that_changes_the_folder_does_no_harm(project: Project) -> None:
    assert launch(project, "setup: [cd /tmp]\n").cwd == str(project.folder)


def test_a_folder_that_is_gone_ends_the_script(project: Project) -> None:
    text = "launcher: python\nmodule: x\npython: ./bin/recorder\nworkdir: gone\n"
    plan = bind(project.plan(text), {})
    done = subprocess.run(["bash", "-c", script(plan)], check=False, capture_output=True, cwd="/")
    assert (done.returncode, (project.folder / "bin" / "launched.json").exists()) == (1, False)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pasted_line_comes_back_to_the_folder_after_setup(shell: str, project: Project) -> None:
    assert pasted(project, "setup: [cd /]\n", shell).cwd == str(project.folder)


@pytest.mark.parametrize("shell", SHELLS)
def test_setup_of_several_lines_survives_pasting(shell: str, project: Project) -> None:
    text = "setup: ['if true; then', 'export A=1  # yes', 'fi', 'false']\n"
    assert pasted(project, text, shell).env["A"] == "1"
