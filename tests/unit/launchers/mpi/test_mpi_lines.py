from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from support.pasted_line import argv_of, assert_same_job, keys_of, plan_of
from support.project import Project, script

from safelaunch.environ import is_removed
from safelaunch.launchers import load as load_launcher

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import NodePlan

PY = "<python> -u"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# line: keys beside `launcher`, and the command
MEANS: dict[str, tuple[dict[str, object], str]] = {
    "srun python train.py": ({"script": "train.py"}, f"srun {PY} train.py"),
    "srun --ntasks=8 --gpus-per-node=8 python -u train.py --x": (
        {"script": "train.py", "args": ["--x"], "processes": "8",
         "launcher_args": ["--gpus-per-node=8"]},
        f"srun --ntasks 8 --gpus-per-node=8 {PY} train.py --x",
    ),
    "srun -n2 -p gpu -lu -K --pty python3.11 -m pkg.train -x": (
        {"command": ["python3.11", "-m", "pkg.train", "-x"], "processes": "2",
         "launcher_args": ["-p", "gpu", "-lu", "-K", "--pty"]},
        "srun --ntasks 2 -p gpu -lu -K --pty python3.11 -m pkg.train -x",
    ),
    "srun -ln8 -K1 -- /env/bin/python train.py": (
        {"script": "train.py", "python": "/env/bin/python", "processes": "8",
         "launcher_args": ["-ln8", "-K1"]},
        "srun -ln8 -K1 /env/bin/python -u train.py",
    ),
    "srun -N 2 --ntasks-per-node 4 python train.py": (
        {"script": "train.py", "processes": "8",
         "launcher_args": ["-N", "2", "--ntasks-per-node", "4"]},
        f"srun -N 2 --ntasks-per-node 4 {PY} train.py",
    ),
    "srun -N 2-4 --ntasks-per-node 4 --plug-in=1 python train.py": (
        {"script": "train.py",
         "launcher_args": ["-N", "2-4", "--ntasks-per-node", "4", "--plug-in=1"]},
        f"srun -N 2-4 --ntasks-per-node 4 --plug-in=1 {PY} train.py",
    ),
    "srun -n 8 --ntasks-per-node=4 python train.py": (
        {"script": "train.py", "processes": "8",
         "launcher_args": ["-n", "8", "--ntasks-per-node=4"]},
        f"srun -n 8 --ntasks-per-node=4 {PY} train.py",
    ),
    "srun torchrun --nproc_per_node 8 train.py": (
        {"command": ["torchrun", "--nproc_per_node", "8", "train.py"]},
        "srun torchrun --nproc_per_node 8 train.py",
    ),
    "srun -n 2 torchrun --no-such-flag 1 train.py": (
        {"command": ["torchrun", "--no-such-flag", "1", "train.py"], "processes": "2"},
        "srun --ntasks 2 torchrun --no-such-flag 1 train.py",
    ),
    "srun -D /x python train.py": (
        {"command": ["python", "train.py"], "launcher_args": ["-D", "/x"]},
        "srun -D /x python train.py",
    ),
    "srun --container-image x --no-container-mount-home python train.py": (
        {"command": ["python", "train.py"],
         "launcher_args": ["--container-image", "x", "--no-container-mount-home"]},
        "srun --container-image x --no-container-mount-home python train.py",
    ),
    "srun -n 4 python -X dev train.py": (
        {"command": ["python", "-X", "dev", "train.py"], "processes": "4"},
        "srun --ntasks 4 python -X dev train.py",
    ),
    "CUDA_VISIBLE_DEVICES=0,1 srun -n 4 python train.py": (
        {"script": "train.py", "gpus": ["0", "1"], "processes": "4"},
        f"srun --ntasks 4 {PY} train.py",
    ),
    "srun bash train.sh a": ({"command": ["bash", "train.sh", "a"]}, "srun bash train.sh a"),
    "mpirun -np 4 -x FOO -x A=1 -mca btl ^openib --bind-to none python train.py a": (
        {"script": "train.py", "args": ["a"], "processes": "4",
         "launcher_args": ["-x", "FOO", "-x", "A=1", "-mca", "btl", "^openib", "--bind-to",
                           "none"]},
        f"mpirun -np 4 -x FOO -x A=1 -mca btl ^openib --bind-to none {PY} train.py a",
    ),
    "mpirun -np 4 -ppn 2 python train.py": (
        {"script": "train.py", "processes": "4", "launcher_args": ["-np", "4", "-ppn", "2"]},
        f"mpirun -np 4 -ppn 2 {PY} train.py",
    ),
    "mpiexec -n 2 -genv A 1 -hosts a,b python train.py": (
        {"script": "train.py", "processes": "2",
         "launcher_args": ["-genv", "A", "1", "-hosts", "a,b"]},
        f"mpiexec -n 2 -genv A 1 -hosts a,b {PY} train.py",
    ),
    "mpirun -np 2 -env A=1 -env B 2 -genv C=3 python train.py": (
        {"script": "train.py", "processes": "2",
         "launcher_args": ["-env", "A=1", "-env", "B", "2", "-genv", "C=3"]},
        f"mpirun -np 2 -env A=1 -env B 2 -genv C=3 {PY} train.py",
    ),
    "horovodrun -np 4 -H localhost:4 --mpi-args=--oversubscribe python train.py": (
        {"script": "train.py", "processes": "4",
         "launcher_args": ["-H", "localhost:4", "--mpi-args=--oversubscribe"]},
        f"horovodrun -np 4 -H localhost:4 --mpi-args=--oversubscribe {PY} train.py",
    ),
    "horovodrun --blacklist-cooldown-range 60 300 --num-proc 2 python train.py": (
        {"script": "train.py", "processes": "2",
         "launcher_args": ["--blacklist-cooldown-range", "60", "300"]},
        f"horovodrun -np 2 --blacklist-cooldown-range 60 300 {PY} train.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", MEANS)
def test_a_line_becomes_keys_of_a_job(line: str) -> None:
    launcher = next(word for word in line.split() if "=" not in word)
    assert keys_of(line) == {"launcher": launcher, **MEANS[line][0]}


@pytest.mark.parametrize("line", MEANS)
def test_the_line_runs_with_all_of_its_words(line: str, project: Project) -> None:
    assert argv_of(project, line) == MEANS[line][1]


@pytest.mark.parametrize("line", MEANS)
def test_the_written_job_starts_what_the_line_starts(line: str, project: Project) -> None:
    assert_same_job(project, shlex.split(line))


@pytest.mark.parametrize(
    "line",
    ["srun --unknown x python train.py", "srun -y python train.py", "srun -n", "srun",
     "srun --multi-prog a.conf", "srun -n 1 python a.py : -n 2 python b.py",
     "/opt/slurm/bin/srun -n 2 python train.py", "mpirun -np 2 a : -np 2 b",
     "mpirun -unknown 1 python train.py", "mpirun -mca btl", "/opt/mpi/bin/mpirun -np 2 ./a"],
)  # fmt: skip
def test_a_line_that_is_not_clear_runs_as_it_stands(line: str) -> None:
    assert keys_of(line) == {"launcher": "command", "command": shlex.split(line)}


def node_of(project: Project, line: str) -> NodePlan:
    return plan_of(project, line).nodes[0]


def is_handed_on(node: NodePlan, name: str) -> bool:
    return not is_removed(name, node.unset, node.requested)


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "MASTER_ADDR", "WORLD_SIZE", "PMI_RANK"])
def test_srun_sees_its_allocation_and_where_its_ranks_meet(project: Project, name: str) -> None:
    assert is_handed_on(node_of(project, "srun python train.py"), name)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "PET_NNODES"])
def test_srun_does_not_see_what_another_launcher_has_left(project: Project, name: str) -> None:
    assert not is_handed_on(node_of(project, "srun python train.py"), name)


@pytest.mark.parametrize(
    "line",
    ["mpirun -x GROUP_TOKEN python train.py", "mpiexec -genvlist A,GROUP_TOKEN python train.py",
     "srun --export=ALL,GROUP_TOKEN python train.py"],
)  # fmt: skip
def test_a_variable_that_an_option_names_is_handed_on(project: Project, line: str) -> None:
    assert is_handed_on(node_of(project, line), "GROUP_TOKEN")
    assert not is_handed_on(node_of(project, line), "GROUP_RANK")


def test_ranks_behind_a_prefix_have_their_numbers_too(project: Project) -> None:
    node = node_of(project, "numactl --localalloc mpirun -np 2 python train.py")
    assert (node.argv[:2], node.single) == (("numactl", "--localalloc"), "mpi")


def test_the_script_keeps_what_srun_reads(project: Project) -> None:
    text = script(plan_of(project, "srun python train.py"))
    assert "${!SLURM_@}" not in text
    assert "${!TORCHELASTIC_@}" in text


def test_variables_that_a_launcher_of_ranks_would_refuse_are_the_users_own(
    project: Project,
) -> None:
    env = node_of(project, "WORLD_SIZE=16 MASTER_ADDR=a srun python train.py").env
    assert (env["WORLD_SIZE"].value, env["MASTER_ADDR"].value) == ("16", "a")


def test_an_inner_launcher_is_named(project: Project) -> None:
    (warning,) = plan_of(project, "srun -n 2 torchrun --nproc_per_node 8 train.py").warnings
    assert "srun runs `torchrun` as written" in warning.message


def ranks(project: Project, text: str) -> int | None:
    job = project.resolve(text).job
    return load_launcher(job.launcher).ranks_per_node(job)


def test_ranks_are_counted_for_the_arithmetic(project: Project) -> None:
    assert ranks(project, "launcher: srun\nscript: train.py\nprocesses: 16\n") == 16


@pytest.mark.parametrize(
    "text", ["script: train.py\n", "command: [torchrun, train.py]\nprocesses: 2\n"]
)
def test_ranks_that_something_else_decides_are_not_counted(project: Project, text: str) -> None:
    assert ranks(project, f"launcher: srun\n{text}") is None


def test_ranks_of_srun_are_not_looked_for_on_this_machine(project: Project) -> None:
    assert project.node("launcher: srun\nscript: train.py\nprocesses: 16\n").processes == 1


def test_counts_that_contradict_each_other_are_refused(project: Project) -> None:
    text = "launcher: srun\nscript: train.py\nprocesses: 4\nlauncher_args: [-n, 8]\n"
    assert "`launcher_args` start 8 ranks" in project.refused(text).message


def test_a_word_that_would_be_the_program_is_refused_as_an_option(project: Project) -> None:
    text = "launcher: srun\nscript: train.py\nlauncher_args: [-n, 8, gpu]\n"
    assert "`gpu` is no option of srun" in project.refused(text).message


def test_an_option_that_is_not_in_the_table_is_a_warning(project: Project) -> None:
    plan = project.plan("launcher: mpirun\nscript: train.py\nlauncher_args: [--new-option]\n")
    assert [warning.id for warning in plan.warnings] == ["unknown-launcher-flag"]
