"""What a job asks of Slurm, which chooses its machines: from its keys, its block and its host's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import TORCHRUN, Project, script, shown

from safelaunch.config.resolve import Flags
from safelaunch.model import Slurm

if TYPE_CHECKING:
    from pathlib import Path


SLURM = Flags(engine="slurm")
BARE = "launcher: torchrun\nscript: train.py\n"
BLOCK = "slurm: {cpus_per_gpu: 4}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def requested(project: Project, text: str, flags: Flags = SLURM) -> Slurm:
    block = project.plan(text, flags).engine
    assert isinstance(block, Slurm)
    return block


def origin(block: Slurm, key: str) -> str:
    return str(block.origins[key])


def test_slurm_chooses_the_machines_of_several_nodes(project: Project) -> None:
    plan = project.plan(BARE + "gpus: 2\nnodes: 3\n" + BLOCK, SLURM)
    assert [node.host for node in plan.nodes] == ["<node-0>", "<node-1>", "<node-2>"]
    assert plan.manual_node is None
    assert (plan.warnings, plan.notes) == ((), ())


def test_what_only_the_nodes_know_stays_open(project: Project) -> None:
    text = BARE + "gpus: 2\nnodes: 2\nenv: {http_proxy: x}\n"
    plan = project.plan(text, SLURM)
    words, launch_sh = shown(plan), script(plan)
    assert "--master_addr=<master-addr>" in " ".join(words).replace("addr ", "addr=")
    assert "<port>" in " ".join(words)
    assert "NCCL_SOCKET_IFNAME='=<interface>'" in launch_sh
    assert "no_proxy='localhost,127.0.0.1,::1,<master-addr>'" in launch_sh


def test_the_gpus_are_counted_and_left_to_slurm(project: Project) -> None:
    block = requested(project, BARE + "gpus: 4\n" + BLOCK)
    assert (block.gpus_per_node, origin(block, "gpus_per_node")) == (4, "job.yaml:3:7")
    node = project.node(BARE + "gpus: 4\n", SLURM)
    assert (node.processes, node.env.get("CUDA_VISIBLE_DEVICES")) == (4, None)


def test_what_names_the_gpus_is_inherited_also_by_a_job_that_inherits_nothing(
    project: Project,
) -> None:
    node = project.node(TORCHRUN + "inherit: none\n", SLURM)
    assert "CUDA_VISIBLE_DEVICES" in (node.keep or ())
    assert project.node(TORCHRUN + "inherit: none\n").keep == ()


def test_all_gpus_of_a_node_take_it_whole(project: Project) -> None:
    text = BARE + "gpus: auto\nslurm: {gpus_per_node: 8}\n"
    block = requested(project, text)
    assert (block.gpus_per_node, block.exclusive) == (8, True)
    assert (origin(block, "gpus_per_node"), origin(block, "exclusive")) == (
        "job.yaml:4:24", "job.yaml:3:7",
    )  # fmt: skip
    assert project.plan(text, SLURM).topology.processes == 8


def test_a_job_without_gpus_asks_for_those_of_a_node_unless_it_computes_on_the_cpu(
    project: Project,
) -> None:
    text = TORCHRUN + "slurm: {gpus_per_node: 2, cpus_per_task: 4}\n"
    assert requested(project, text).gpus_per_node == 2
    on_cpu = Flags(engine="slurm", profile="cpu")
    assert requested(project, text, on_cpu).gpus_per_node is None


def test_the_entry_of_this_machine_describes_the_cluster(project: Project) -> None:
    project.write(
        "hosts:\n  localhost:\n    profile: cpu\n    slurm: {partition: c, mem: 4GiB}\n"
        "  other: {slurm: {partition: x}}\n",
        "hosts.yaml",
    )
    flags = Flags(engine="slurm", hosts_file="hosts.yaml")
    plan = project.plan(TORCHRUN + "nodes: 2\nslurm: {time: 2h}\n", flags)
    block = plan.engine
    assert isinstance(block, Slurm)
    assert (block.partition, block.mem, block.time) == ("c", 4 << 30, 7200)
    assert (origin(block, "partition"), origin(block, "time")) == (
        "hosts.yaml:4:24",
        "job.yaml:5:15",
    )
    assert plan.profile == "cpu"


def test_hosts_of_the_job_are_names_of_nodes(project: Project) -> None:
    block = requested(project, TORCHRUN + "hosts: [n3, n4]\n")
    assert (block.nodelist, origin(block, "nodelist")) == (("n3", "n4"), "job.yaml:4:8")
    assert len(project.plan(TORCHRUN + "hosts: [n3, n4]\n", SLURM).nodes) == 2


def test_the_time_limit_leaves_safelaunch_time_to_end_the_job(project: Project) -> None:
    block = requested(project, TORCHRUN + "max_duration: 2h\n")
    assert (block.time, origin(block, "time")) == (2 * 3600 + 300, "job.yaml:4:15")
    block = requested(project, TORCHRUN + "max_duration: 2h\nslurm: {time: 3h}\n")
    assert (block.time, origin(block, "time")) == (3 * 3600, "job.yaml:5:15")


def test_the_gpus_that_deepspeed_numbers_itself_are_warned_about(project: Project) -> None:
    text = "launcher: deepspeed\nscript: train.py\ngpus: 2\n" + BLOCK
    (warning,) = project.plan(text, SLURM).warnings
    assert (warning.id, warning.where) == ("engine-gpus", "launcher deepspeed")
    assert "ConstrainDevices" in warning.fix


WARNED = {
    "": ("engine-no-gpus", "engine-no-cores"),
    "gpus: 2\nslurm: {exclusive: true}\n": (),
    "gpus: 2\nslurm: {cpus_per_gpu: 4}\n": (),
    "slurm: {cpus_per_gpu: 4}\n": ("engine-no-gpus", "engine-no-cores"),
    "slurm: {cpus_per_task: 4, options: [--gres=gpu:2]}\n": (),
    "gpus: 2\nenv: {CUDA_VISIBLE_DEVICES: '1,2'}\n" + BLOCK: ("engine-gpus",),
    "gpus: 2\nnodes: 2\nlauncher_args: {master_addr: n1}\n" + BLOCK: ("engine-address",),
    "gpus: 2\nmax_duration: 2h\nslurm: {time: 1h, cpus_per_gpu: 1}\n": ("engine-time",),
}


@pytest.mark.parametrize("text", WARNED)
def test_a_request_that_slurm_would_answer_badly_is_warned_about(
    text: str, project: Project
) -> None:
    plan = project.plan(TORCHRUN + text, SLURM)
    assert tuple(warning.id for warning in plan.warnings) == WARNED[text]
    assert all(warning.where.startswith("job.yaml:") for warning in plan.warnings)


IDLE = {
    "slurm: {gpus_per_node: 8, cpus_per_task: 2}\n": ("job.yaml:4:24", "`gpus_per_node`"),
    "slurm: {cpus_per_task: 2, gpu_type: a, mem_per_gpu: 1GiB}\n": (
        "job.yaml:4:37",
        "`gpu_type`, `mem_per_gpu`",
    ),
    "gpus: 2\nslurm: {gpus_per_node: 8, cpus_per_task: 2}\n": None,
    "slurm: {gpus_per_node: null, cpus_per_task: 2}\n": None,
}


@pytest.mark.parametrize("text", IDLE)
def test_what_a_block_says_of_gpus_is_warned_about_on_a_profile_without(
    text: str, project: Project
) -> None:
    plan = project.plan(TORCHRUN + text, Flags(engine="slurm", profile="cpu"))
    shown = [
        (w.id, w.where, w.message.partition("no GPUs are asked for, ")[2]) for w in plan.warnings
    ]
    expected = IDLE[text]
    words = [] if expected is None else [f"{expected[1]} without effect"]
    assert [text for _, _, text in shown] == words
    assert [where for _, where, _ in shown] == ([] if expected is None else [expected[0]])


REFUSED = {
    "gpus: [0, 2]\n": ("3:7", "Slurm chooses the GPUs", "gpus: 2"),
    "gpus: auto\n": ("3:7", "`gpus: auto`", "gpus_per_node: N"),
    "gpus: 8\nslurm: {gpus_per_node: 4}\n": ("3:7", "8 GPUs on nodes that have 4", "job.yaml:4:24"),
    "processes: 8\nslurm: {gpus_per_node: 4}\n": ("3:12", "8 processes on 4 GPUs", "4:24"),
    "processes: 2\nnodes: 2\nnode_rank: 0\n": ("5:12", "slurm numbers the nodes", "node_rank=null"),
    "processes: 1\nhosts: [a]\nslurm: {nodelist: b}\n": ("5:19", "together", "job.yaml:4:8"),
    "processes: 1\nslurm: {time: 1m, signal: 2h}\n": ("4:27", "`signal: 2h`", "job.yaml:4:15"),
    "processes: 1\nslurm: {time: 2m, signal: 2m}\n": ("4:27", "time limit of 2m", "signal: 0s"),
    "processes: 1\nhosts: [a, b]\nnodes: 3\n": ("5:8", "2 hosts for 3 nodes", ""),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_asked_of_slurm_is_refused_with_its_place(
    text: str, project: Project
) -> None:
    where, message, hint = REFUSED[text]
    refusal = project.refused(BARE + text, SLURM)
    assert refusal.where == f"job.yaml:{where}"
    assert message in refusal.message
    assert hint in refusal.hint


def test_a_launcher_that_starts_ranks_on_all_nodes_is_refused(project: Project) -> None:
    refusal = project.refused("launcher: srun\ncommand: [python, a.py]\nprocesses: 4\n", SLURM)
    assert (refusal.where, "torchrun" in refusal.hint) == ("job.yaml:1:11", True)


def test_two_forms_of_memory_of_host_and_job_are_refused_only_for_slurm(project: Project) -> None:
    project.write("hosts: {localhost: {slurm: {mem: 4GiB}}}\n", "h")
    text = TORCHRUN + "slurm: {mem_per_gpu: 8GiB}\n"
    refusal = project.refused(text, Flags(engine="slurm", hosts_file="h"))
    assert (refusal.where, refusal.hint) == (
        "job.yaml:4:22", "`mem` is set at h:1:34; `mem: null` removes it",
    )  # fmt: skip
    assert project.plan(text, Flags(hosts_file="h")).engine is None


# -- options ---------------------------------------------------------------------------------------

OWN = [
    "--output=x", "--outp=x", "-ox", "-Ho x", "--nodes=3", "-N3", "--ntasks-per-node=2",
    "--array=1", "--parsable", "-J x", "--chdir=/", "--export=ALL", "--exp", "--signal=B:9",
    "--open-mode=append", "--wrap=x", "--no-requeue", "--gpus-per-task=1", "-W", "--comment=x",
    "--test-only",
]  # fmt: skip
FREE = [
    "--mail-type=END", "--gpus=4", "--mem=0", "--mem-bind=local", "-H", "--nice=3", "--exclusive",
    "--dependency=afterok:3", "--gres=tmp:1", "--wait-all-nodes=1", "--export-nothing", "-p x",
]  # fmt: skip


def with_option(option: str, more: str = "") -> str:
    words = ", ".join(f"'{word}'" for word in option.split())
    return TORCHRUN + f"slurm: {{options: [{words}]{more}}}\n"


@pytest.mark.parametrize("option", OWN)
def test_an_option_that_the_plan_sets_itself_is_refused_unless_forced(
    option: str, project: Project
) -> None:
    refusal = project.refused(with_option(option), SLURM)
    assert refusal.where == "job.yaml:4:19"
    assert "the plan sets" in refusal.message
    text = "force: [slurm-options]\n" + with_option(option)
    assert requested(project, text).options[0].words[0] == option.split(maxsplit=1)[0]


@pytest.mark.parametrize("option", FREE)
def test_other_options_are_passed_on(option: str, project: Project) -> None:
    assert requested(project, with_option(option)).options[0].words == tuple(option.split())


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--mem=0", "mem: 4GiB"),
        ("--mem-per-cpu=1G", "mem: 4GiB"),
        ("--part=x", "partition: y"),
        ("-tx", "time: 2h"),
        ("--gpus=2", "gpus_per_node: 2"),
        ("--gres=gpu:2", "gres: true"),
    ],
)
def test_an_option_that_says_a_key_again_is_refused_also_when_forced(
    option: str, key: str, project: Project
) -> None:
    text = "force: [slurm-options]\n" + with_option(option, f", {key}")
    refusal = project.refused(text, SLURM)
    assert refusal.where == "job.yaml:5:19"
    assert f"and `{key.split(':', maxsplit=1)[0]}`" in refusal.message
