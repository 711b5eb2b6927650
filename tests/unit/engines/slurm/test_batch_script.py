"""The batch script of a plan for Slurm, run by bash with stubs in place of Slurm's programs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.project import TORCHRUN, Project

from safelaunch.config.resolve import Flags
from safelaunch.engines.slurm.batch_script import sbatch_script, submit_line
from safelaunch.engines.slurm.directives import directives
from safelaunch.engines.slurm.trial import trial_request
from safelaunch.engines.submission import Submission
from safelaunch.runtime.engines.exit_codes import REQUEUE
from safelaunch.script import quote_directive

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Plan

SLURM = Flags(engine="slurm")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def options(plan: Plan) -> dict[str, str]:
    """Return the directives of a plan: words and origin."""
    return {" ".join(d.words): str(d.origin) for d in directives(plan, Submission())}


def starting(plan: Plan, *names: str) -> list[str]:
    return [words for words in options(plan) if words.startswith(names)]


# -- directives ------------------------------------------------------------------------------------

RESOURCES = {
    "gpus: 4\nslurm: {gpu_type: h100, cpus_per_gpu: 12, mem_per_gpu: 60GiB}": [
        "--gpus-per-node=h100:4", "--cpus-per-task=48", "--mem-per-gpu=60G",
    ],
    "gpus: 2\nslurm: {gres: true, gpu_type: a}": ["--gres=gpu:a:2"],
    "gpus: 2\nslurm: {gres: true, mem: 1.5GiB}": ["--gres=gpu:2", "--mem=1536M"],
    "slurm: {cpus_per_task: 8, mem_per_cpu: 2GiB}": ["--cpus-per-task=8", "--mem-per-cpu=2G"],
    "slurm: {cpus_per_gpu: 8, mem_per_gpu: 2GiB, gpu_type: a}": [],
    "gpus: auto\nslurm: {gpus_per_node: 8}": ["--gpus-per-node=8", "--exclusive"],
}  # fmt: skip


@pytest.mark.parametrize("text", RESOURCES)
def test_resources_are_asked_for_each_node(text: str, project: Project) -> None:
    plan = project.plan(TORCHRUN + text + "\n", SLURM)
    kinds = ("--gpus", "--gres", "--cpus", "--mem", "--exclusive")
    assert starting(plan, *kinds) == RESOURCES[text]


@pytest.mark.parametrize(
    ("written", "time"),
    [
        ("90s", "00:01:30"),
        ("24h", "1-00:00:00"),
        ("2d3h5m", "2-03:05:00"),
        ("0.5s", "00:00:01"),
    ],
)
def test_a_time_limit_is_written_as_slurm_reads_it(
    written: str, time: str, project: Project
) -> None:
    plan = project.plan(f"{TORCHRUN}slurm: {{time: {written}}}\n", SLURM)
    assert starting(plan, "--time") == [f"--time={time}"]


def test_each_directive_has_the_place_that_it_comes_from(project: Project) -> None:
    project.write("hosts: {localhost: {slurm: {partition: gpu, exclude: [n1, 'n[3-4]']}}}\n", "h")
    text = "name: sft\n" + TORCHRUN + "gpus: 2\nnodes: 2\nmax_duration: 1h\n"
    text += "slurm: {requeue: false, options: [-H, --mail-user, me]}\n"
    plan = project.plan(text, Flags(engine="slurm", hosts_file="h"))
    assert options(plan) == {
        "--job-name=sft": "job.yaml:1:7",
        "--comment=safelaunch:<run-id>": "built-in",
        "--nodes=2": "job.yaml:6:8",
        "--ntasks-per-node=1": "built-in",
        "--gpus-per-node=2": "job.yaml:5:7",
        "--partition=gpu": "h:1:40",
        "--exclude=n1,n[3-4]": "h:1:54",
        "--time=01:05:00": "job.yaml:7:15",
        "--signal=B:USR2@120": "built-in",
        "--no-requeue": "job.yaml:8:18",
        "--chdir=<run-folder>": "built-in",
        "--output=<run-folder>/slurm.log": "built-in",
        "--open-mode=append": "built-in",
        "--export=HOME,LANG,LC_ALL,LC_CTYPE,LOGNAME,PATH,SHELL,TZ,USER": "built-in",
        "-H": "job.yaml:8:35",
        "--mail-user me": "job.yaml:8:39",
    }


@pytest.mark.parametrize(
    ("time", "signals"), [("3m", []), ("181s", ["--signal=B:USR2@120"])], ids=["short", "long"]
)
def test_the_default_signal_is_left_out_where_it_would_end_the_ranks_as_they_start(
    project: Project, time: str, signals: list[str]
) -> None:
    plan = project.plan(TORCHRUN + f"slurm: {{time: {time}}}\n", SLURM)
    assert starting(plan, "--signal") == signals


def test_ranks_are_not_told_of_the_limit_where_the_job_says_so(project: Project) -> None:
    plan = project.plan(TORCHRUN + "slurm: {signal: 0s}\n", SLURM)
    assert starting(plan, "--signal") == []


def test_the_folder_of_a_run_is_no_pattern_of_slurm(project: Project) -> None:
    plan = project.plan(TORCHRUN, SLURM)
    script = sbatch_script(plan, Submission("r1", "/100%j it's", "/usr/bin/python3"))
    assert '#SBATCH "--chdir=/100%j it\\\'s"' in script
    assert '#SBATCH "--output=/100%%j it\\\'s/slurm.log"' in script


@pytest.mark.parametrize("word", ["--a=b c", "--a='b\"", "--a=\\", "#b", "--a=b#c", "--a=$x`y`"])
def test_a_directive_is_one_word_for_sbatch(word: str) -> None:
    # sbatch takes both kinds of quotes, and a backslash as an escape everywhere
    quoted = quote_directive(word)
    inner = re.fullmatch(r'"((?:[^"\'\\]|\\.)*)"', quoted)
    plain = re.fullmatch(r"[^\s\"'\\#]+", quoted)
    assert (re.sub(r"\\(.)", r"\1", inner[1]) if inner else quoted) == word
    assert inner or plain


# -- the script ------------------------------------------------------------------------------------


class Ran:
    """What the script of a plan did with stubs in place of Slurm's programs."""

    def __init__(self, folder: Path, plan: Plan, code: int = 0, *, requeues: bool = True) -> None:
        self.calls = folder / "calls"
        programs = {"srun": code, "scontrol": 0 if requeues else 1}
        for name, ends in programs.items():
            stub = folder / name
            stub.write_text(
                f'#!/bin/bash\nprintf "%q " {name} "$@" >> {self.calls}\n'
                f"echo >> {self.calls}\nexit {ends}\n",
                encoding="utf-8",
            )
            stub.chmod(0o755)
        self.run = folder / "it's 1"
        self.run.mkdir()
        submission = Submission("r1", str(self.run), "/opt/python 3")
        script = sbatch_script(plan, submission)
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
        done = subprocess.run(
            ["bash"], input=script, text=True, check=False, env={**env, "SLURM_CPUS_PER_TASK": "8"}
        )
        self.code = done.returncode
        self.words = [shlex.split(line) for line in self.calls.read_text("utf-8").splitlines()]


def test_one_supervisor_is_started_on_each_node(project: Project, tmp_path: Path) -> None:
    plan = project.plan(TORCHRUN + "gpus: 2\nnodes: 3\n", SLURM)
    ran = Ran(tmp_path, plan)
    (srun,) = ran.words
    python = srun.index("/opt/python 3")
    assert srun[1:python] == [
        "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0",
        "--export=ALL", "--mpi=none", "--gpu-bind=none", "--cpus-per-task=8",
    ]  # fmt: skip
    join = str(ran.run / "node-0/runtime/safelaunch/runtime/engines/join.py")
    assert srun[python + 1 :] == ["-I", "-S", "-B", join, str(ran.run)]


@pytest.mark.parametrize("code", [0, 1, 143])
def test_slurm_sees_the_worst_end_of_the_nodes(code: int, project: Project, tmp_path: Path) -> None:
    ran = Ran(tmp_path, project.plan(TORCHRUN, SLURM), code)
    assert (ran.code, len(ran.words)) == (code, 1)


def test_a_warning_of_the_time_limit_is_left_in_the_folder_of_the_run(
    project: Project, tmp_path: Path
) -> None:
    script = sbatch_script(
        project.plan(TORCHRUN, SLURM), Submission("r1", str(tmp_path / "it's 1"))
    )
    lines = script.replace("\n{\n", "\nsrun() { kill -USR2 $$; return 3; }\n{\n")
    (tmp_path / "it's 1").mkdir()
    done = subprocess.run(["bash"], input=lines, text=True, check=False)
    names = sorted(path.name for path in (tmp_path / "it's 1").iterdir())
    assert (done.returncode, names) == (3, ["srun.0", "time-limit.0"])


@pytest.mark.parametrize("requeues", [True, False])
def test_a_run_that_asks_for_another_life_is_requeued(
    requeues: bool, project: Project, tmp_path: Path
) -> None:
    ran = Ran(tmp_path, project.plan(TORCHRUN, SLURM), REQUEUE, requeues=requeues)
    assert (ran.code, ran.words[1]) == (REQUEUE, ["scontrol", "requeue", "7"])


def test_a_setup_that_ends_at_each_failure_hides_no_end(project: Project, tmp_path: Path) -> None:
    plan = project.plan(TORCHRUN + "slurm: {setup: 'set -euo pipefail'}\n", SLURM)
    assert Ran(tmp_path, plan, REQUEUE).words[1:] == [["scontrol", "requeue", "7"]]


def test_a_job_that_is_not_to_be_requeued_ends(project: Project, tmp_path: Path) -> None:
    plan = project.plan(TORCHRUN + "slurm: {requeue: false}\n", SLURM)
    ran = Ran(tmp_path, plan, REQUEUE)
    assert (ran.code, len(ran.words)) == (REQUEUE, 1)


def test_the_setup_of_the_site_runs_before_srun(project: Project, tmp_path: Path) -> None:
    plan = project.plan(TORCHRUN + "slurm: {setup: 'srun() { command srun \"a b\"; }'}\n", SLURM)
    assert Ran(tmp_path, plan).words == [["srun", "a b"]]


def test_a_comment_of_the_setup_is_no_directive(project: Project) -> None:
    plan = project.plan(TORCHRUN + "slurm: {setup: '#SBATCH --nodes=9'}\n", SLURM)
    head, _, _ = sbatch_script(plan).partition("\ntrap ")
    assert "--nodes=9" not in head


def test_the_script_has_no_values_of_the_job(project: Project) -> None:
    text = TORCHRUN + "env: {WANDB_MODE: offline}\nenv_from: [HF_TOKEN]\n"
    script = sbatch_script(project.plan(text, SLURM))
    assert not re.search("WANDB|HF_TOKEN|offline", script)
    assert "\r" not in script


# -- the submission --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("", ["sbatch", "--parsable", "b.sh"]),
        ("prefix: [ssh, login2]", ["ssh", "login2", "sbatch", "--parsable", "b.sh"]),
        (
            "options: [--dependency=afterok:3]",
            ["sbatch", "--parsable", "--kill-on-invalid-dep=yes", "b.sh"],
        ),
        (
            "options: [-Hd, 'afterok:3']",
            ["sbatch", "--parsable", "--kill-on-invalid-dep=yes", "b.sh"],
        ),
    ],
)
def test_the_line_that_submits_a_script(keys: str, words: list[str], project: Project) -> None:
    plan = project.plan(f"{TORCHRUN}slurm: {{{keys}}}\n", SLURM)
    assert list(submit_line(plan, "b.sh")) == words
    assert list(submit_line(plan, "b.sh", test_only=True)) == [*words[:-1], "--test-only", "b.sh"]


def test_slurm_is_asked_about_a_job_without_what_it_waits_for(project: Project) -> None:
    # --test-only: "Job dependency problem", also of one that will be met (22.05)
    block = 'slurm: {options: ["--dependency=afterok:7", "--mail-type=END", -d, "afterok:8"]}\n'
    request = trial_request(project.plan(TORCHRUN + block, SLURM))
    text = " ".join([*request["submit"], request["script"]])
    assert ("afterok" in text, "invalid-dep" in text, "--mail-type=END" in text) == (
        False,
        False,
        True,
    )
