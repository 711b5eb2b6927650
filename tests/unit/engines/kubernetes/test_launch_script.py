"""The launch script of pods, run by bash with a stand-in for the image's Python."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.project import Project, script

from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError
from safelaunch.plan.build import resume

if TYPE_CHECKING:
    from pathlib import Path

ON = Flags(engine="kubernetes", profile="cpu")
RANKS = "script: train.py\nnodes: 2\nprocesses: 2\n"
# prints the words of the launcher's line, its file, and the environment
PYTHON = """#!/bin/bash
printf 'word %s\\n' "$@"
for word in "$@"; do case $word in /tmp/*) printf 'file %s\\n' "$(cat "$word")" ;; esac; done
env -0 | tr '\\n\\0' ' \\n'
"""
CLUSTER = {
    "JOB_COMPLETION_INDEX": "1", "PET_NODE_RANK": "0", "MASTER_PORT": "tcp://10.0.0.7:80",
    "WORLD_SIZE": "9", "TOKEN": "t",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


class Pod:
    """What the script of a job did in one pod."""

    def __init__(self, project: Project, text: str, **environ: str) -> None:
        programs = project.folder / "programs" / "bin"
        programs.mkdir(parents=True)
        python = programs / "python3"
        python.write_text(PYTHON)
        python.chmod(0o755)
        block = f"kubernetes: {{image: a, workdir: '{project.folder}'"
        launch_sh = project.folder / "launch.sh"
        plan = project.plan(f"{text}\n{block}{environ.pop('block', '')}}}\n", ON)
        launch_sh.write_text(script(plan), encoding="utf-8")
        env = {"PATH": f"{programs}:{os.environ['PATH']}", **CLUSTER, **environ}
        done = subprocess.run(
            ["bash", launch_sh], env=env, capture_output=True, check=False, encoding="utf-8"
        )
        assert done.stderr == ""
        self.code = done.returncode
        self.lines = done.stdout.split("\n")
        self.prefix = str(programs.parent)

    def words(self) -> list[str]:
        return [line[5:] for line in self.lines if line.startswith("word ")]

    def variable(self, name: str) -> str | None:
        values = [line.partition("=")[2] for line in self.lines if line.startswith(f"{name}=")]
        return values[0] if values else None


def test_the_number_of_the_pod_is_the_rank_of_the_node(project: Project) -> None:
    pod = Pod(project, "name: A_b\nlauncher: torchrun\n" + RANKS)
    assert pod.words() == [
        "-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "2", "--node_rank", "1",
        "--master_addr", "a-b-0.a-b", "--master_port", "29500", "train.py",
    ]  # fmt: skip


def test_a_train_job_says_itself_where_the_first_node_is(project: Project) -> None:
    runtime = {"PET_MASTER_ADDR": "x-node-0-0.x", "PET_MASTER_PORT": "29501"}
    pod = Pod(project, "launcher: torchrun\n" + RANKS, block=", kind: trainjob", **runtime)
    meeting = " ".join(pod.words())
    assert "--master_addr x-node-0-0.x --master_port 29501 " in meeting


def test_where_the_first_node_is_may_be_said_by_hand(project: Project) -> None:
    own = {"SAFELAUNCH_MASTER_ADDR": "10.0.0.7", "SAFELAUNCH_MASTER_PORT": "4000"}
    pod = Pod(project, "launcher: torchrun\n" + RANKS, **own)
    assert "--master_addr 10.0.0.7 --master_port 4000 " in " ".join(pod.words())


def test_a_pod_without_a_number_says_what_is_missing(project: Project) -> None:
    with pytest.raises(AssertionError, match="JOB_COMPLETION_INDEX: is set in the pods"):
        Pod(project, "launcher: torchrun\n" + RANKS, JOB_COMPLETION_INDEX="")


def test_files_of_a_launcher_are_written_in_the_pod(project: Project) -> None:
    pod = Pod(project, "launcher: accelerate\n" + RANKS)
    (config,) = [line for line in pod.lines if line.startswith("file ")]
    assert "num_machines: 2, machine_rank: 1, mixed_precision" in config


def test_variables_that_only_the_pod_knows_have_its_values(project: Project) -> None:
    pod = Pod(project, "launcher: torchrun\nenv_from: [TOKEN]\n" + RANKS, block=", secret_name: s")
    with open("/proc/net/route", encoding="ascii") as file:
        cards = {line.split()[0] for line in file} | {"eth0"}
    assert pod.variable("GLOO_SOCKET_IFNAME") in cards
    assert int(pod.variable("OMP_NUM_THREADS") or 0) >= 1
    assert (pod.variable("PATH") or "").startswith(f"{pod.prefix}/bin:")
    assert (pod.variable("TOKEN"), pod.variable("PYTHONPATH")) == ("t", str(project.folder))


def test_threads_follow_from_the_cores_that_are_asked_for(project: Project) -> None:
    pod = Pod(project, "launcher: torchrun\n" + RANKS, block=", cpu: 9")
    assert pod.variable("OMP_NUM_THREADS") == "4"


def test_variables_of_the_cluster_do_not_reach_the_launcher(project: Project) -> None:
    pod = Pod(project, "launcher: torchrun\n" + RANKS)
    assert [pod.variable(n) for n in ("PET_NODE_RANK", "MASTER_PORT", "WORLD_SIZE")] == [None] * 3


VALUES = ["$(X)", "$$(X)", "a 'b' \"c\"", "two\nlines", "é\u2028`x`", "on", "010", "\\", " "]


def test_values_arrive_as_they_are_written(project: Project) -> None:
    values = ", ".join(f"{'ABCDEFGHI'[n]}{n}: {yaml_text(v)}" for n, v in enumerate(VALUES))
    words = ", ".join(map(yaml_text, VALUES))
    text = f"launcher: python\nscript: train.py\nenv: {{{values}}}\nargs: [{words}]\n"
    pod = Pod(project, text)
    arrived = [pod.variable(f"{'ABCDEFGHI'[n]}{n}") for n in range(len(VALUES))]
    assert arrived == [value.replace("\n", " ") for value in VALUES]
    assert "\n".join(f"word {value}" for value in VALUES) in "\n".join(pod.lines)


def yaml_text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'.replace("\u2028", "\\u2028")


# -- what a script cannot work out -----------------------------------------------------------------

RESUMES = 'recovery: {checkpoint: "out/*", resume_args: [--from, "{checkpoint}"]}\n'


def test_a_resume_from_a_checkpoint_that_is_looked_for_is_refused(project: Project) -> None:
    text = f"launcher: torchrun\n{RANKS}{RESUMES}kubernetes: {{image: a, workdir: /w}}\n"
    plan = project.plan(text, ON)
    with pytest.raises(ConfigError) as caught:
        script(resume(plan))
    error = caught.value
    assert (error.where, "{checkpoint}" in error.message) == ("job.yaml", True)
    assert "write the path into `args`" in (error.hint or "")
