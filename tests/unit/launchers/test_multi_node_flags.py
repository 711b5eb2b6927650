"""What launchers of several nodes are given, and what the job's own flags keep away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import NodePlan

NAMES = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
TWO = "script: train.py\nprocesses: 2\nprofile: cpu\nhosts: [gpu1, gpu2]\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def words(node: NodePlan) -> list[str]:
    return [str(word) for word in node.argv]


def nodes(project: Project, launcher: str, **flags: str) -> list[NodePlan]:
    flag_lines = "".join(f"  {name}: {value}\n" for name, value in flags.items())
    text = f"launcher: {launcher}\n" + TWO + ("launcher_args:\n" + flag_lines if flag_lines else "")
    return list(project.plan(text).nodes)


def test_each_node_of_accelerate_has_its_rank_in_flags_and_config(project: Project) -> None:
    for rank, node in enumerate(nodes(project, "accelerate")):
        at = words(node).index("--machine_rank")
        assert words(node)[at + 1] == str(rank)
        assert f"machine_rank: {rank}, " in str(dict(node.files)["accelerate.yaml"])


def test_accelerate_meets_at_a_numeric_address_unless_the_job_says_how(project: Project) -> None:
    ours = {"--same_network", "--rdzv_backend"}
    assert ours <= set(words(nodes(project, "accelerate")[0]))
    same = words(nodes(project, "accelerate", same_network="true")[1])
    assert (same.count("--same_network"), "--rdzv_backend" in same) == (1, False)
    c10d = words(nodes(project, "accelerate", rdzv_backend="c10d")[1])
    assert ("--same_network" in c10d, c10d.count("--rdzv_backend")) == (False, 1)


def test_torchrun_gets_address_and_port_of_node_0(project: Project) -> None:
    plain = words(nodes(project, "torchrun")[1])
    assert plain[plain.index("--master_addr") + 1] == "<master-addr>"
    assert "--master_port" in plain


def test_an_endpoint_of_the_job_is_the_only_one(project: Project) -> None:
    arguments = words(nodes(project, "torchrun", rdzv_endpoint="gpu1:29400")[1])
    assert ("--master_addr" in arguments, "--master_port" in arguments) == (False, False)


TUNE_TWO = "launcher: torchtune\ncommand: [r]\nargs: [--config, x]\nprocesses: 2\nhosts: [a, b]\n"


def test_torchtune_gets_the_endpoint_of_node_0_without_which_each_node_were_alone(
    project: Project,
) -> None:
    assert " ".join(words(project.plan(TUNE_TWO).nodes[1])[4:]) == (
        "--nnodes 2 --nproc_per_node 2 --node_rank 1 --rdzv_endpoint <master-addr>:<port> r "
        "--config x"
    )
    own = project.plan(f"{TUNE_TWO}launcher_args: {{rdzv_endpoint: 'a:1', rdzv_backend: c10d}}\n")
    flags = " ".join(words(own.nodes[1])[8:])
    assert flags == "--rdzv_endpoint a:1 --rdzv_backend c10d r --config x"


def test_xtuner_gets_the_topology_by_its_own_variables(project: Project) -> None:
    text = "launcher: xtuner\ncommand: [train]\nargs: [c.py]\nprocesses: 2\nhosts: [a, b]\n"
    node = project.plan(text).nodes[1]
    names = ("NPROC_PER_NODE", "NNODES", "NODE_RANK", "ADDR", "PORT")
    values = [str(node.env[name].value) for name in names]
    assert values == ["2", "2", "1", "<master-addr>", "<port>"]
    assert not node.env.keys() & {"MASTER_ADDR", "MASTER_PORT"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("launcher: xtuner\ncommand: [chat]\nprocesses: 2\n", "`xtuner chat` is a single process"),
        ("launcher: xtuner\ncommand: [trian]\n", "xtuner has no subcommand `trian`"),
        (f"{TUNE_TWO}launcher_args: [--standalone]\n", "`--standalone` is for one node"),
        ("launcher: torchtune\ncommand: [run, r]\nprocesses: 2\n", "no recipe `run`"),
        ("launcher: torchtune\ncommand: [r]\nlauncher_args: {nproc_per_node: 2}\n",
         "`--nproc_per_node` is not for `launcher_args`"),
    ],
)  # fmt: skip
def test_what_torchtune_and_xtuner_cannot_start_is_refused(
    text: str, reason: str, project: Project
) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        project.plan(text)


BY_HAND = "script: train.py\nprocesses: 2\nprofile: cpu\nnodes: 2\nnode_rank: 1\n"


def test_a_node_by_hand_has_its_number_and_the_port_that_torchrun_takes_itself(
    project: Project,
) -> None:
    text = "launcher: torchrun\nlauncher_args: {master_addr: 10.0.0.5}\n" + BY_HAND
    plan = project.plan(text)
    assert " ".join(words(plan.nodes[0])[3:]) == (
        "--nnodes 2 --nproc_per_node 2 --node_rank 1 --master_port 29500 --master_addr 10.0.0.5 "
        "train.py"
    )
    assert str(plan.manual_node) == "1 of 2, rendezvous 10.0.0.5:29500"


def test_a_node_by_hand_of_accelerate_has_its_number_in_flags_and_config(project: Project) -> None:
    flags = "launcher_args: {main_process_ip: 10.0.0.5, main_process_port: 1234}\n"
    plan = project.plan("launcher: accelerate\n" + flags + BY_HAND)
    node = plan.nodes[0]
    assert "--num_processes 4 --machine_rank 1 --same_network" in " ".join(words(node))
    assert "machine_rank: 1, " in str(dict(node.files)["accelerate.yaml"])
    assert str(plan.manual_node) == "1 of 2, rendezvous 10.0.0.5:1234"


def test_a_node_by_hand_of_swift_meets_where_the_job_says(project: Project) -> None:
    text = BY_HAND.replace("script: train.py", "command: [sft]")
    plan = project.plan(f"launcher: swift\n{text}env: {{MASTER_ADDR: gpu1, MASTER_PORT: 1234}}\n")
    assert plan.nodes[0].env["NODE_RANK"].value == "1"
    assert str(plan.manual_node) == "1 of 2, rendezvous gpu1:1234"


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_node_by_hand_must_know_where_node_0_is(project: Project, launcher: str) -> None:
    refusal = project.refused(f"launcher: {launcher}\n{BY_HAND}")
    assert refusal.message == "a node that is started by hand must be told where node 0 is"
    assert "ADDRESS" in refusal.hint


def test_the_number_of_a_node_stays_where_the_line_names_the_static_rendezvous(
    project: Project,
) -> None:
    flags = "launcher_args: {rdzv_backend: static, rdzv_endpoint: '10.0.0.5:2345'}\n"
    argv = words(project.plan(f"launcher: torchrun\n{flags}{BY_HAND}").nodes[0])
    assert argv[argv.index("--node_rank") + 1] == "1"
    assert "--master_addr" not in argv


def test_nodes_that_number_themselves_need_no_number(project: Project) -> None:
    flags = "launcher_args: {rdzv_backend: c10d, rdzv_endpoint: '10.0.0.5:2345'}\n"
    plan = project.plan(f"launcher: torchrun\n{flags}{BY_HAND}".replace("node_rank: 1\n", ""))
    assert "--node_rank" not in words(plan.nodes[0])
    assert str(plan.manual_node) == "one of 2, rendezvous 10.0.0.5:2345"


def test_the_card_towards_nodes_by_hand_is_left_to_the_user(project: Project) -> None:
    text = "launcher: torchrun\nlauncher_args: {master_addr: 10.0.0.5}\n" + BY_HAND
    assert "GLOO_SOCKET_IFNAME" not in project.env(text)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("nodes: 2\nnode_rank: 2\n", "`node_rank: 2` of 2 nodes"),
        ("node_rank: 1\n", "`node_rank: 1` of 1 node"),
        ("nodes: 2\nnode_rank: 0\nhosts: [a, b]\n", "`node_rank` and several `hosts`"),
        ("nodes: 2\n", "`nodes: 2` without `hosts`"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(project: Project, keys: str, message: str) -> None:
    text = f"launcher: torchrun\nscript: train.py\nprocesses: 2\n{keys}"
    assert project.refused(text).message == message


@pytest.mark.parametrize(
    ("launcher", "sub", "forced"),
    [("swift", "sft", False), ("megatron", "pt", False), ("llamafactory", "train", True)],
)
def test_a_framework_learns_its_nodes_from_variables(
    project: Project, launcher: str, sub: str, *, forced: bool
) -> None:
    text = f"launcher: {launcher}\ncommand: [{sub}]\nprocesses: 1\nhosts: [gpu1, gpu2]\n"
    for rank, node in enumerate(project.plan(text).nodes):
        values = {name: str(var.value) for name, var in node.env.items()}
        assert [values[name] for name in NAMES] == ["1", "2", str(rank), "<master-addr>", "<port>"]
        assert ("FORCE_TORCHRUN" in values) is forced


@pytest.mark.parametrize(
    ("sub", "timeout"),
    [("pt", True), ("sft", True), ("rlhf", True), ("infer", False), ("rollout", False)],
)
def test_only_what_trains_with_swift_gets_a_timeout(
    project: Project, sub: str, *, timeout: bool
) -> None:
    node = project.node(f"launcher: swift\ncommand: [{sub}]\nprocesses: 1\nprofile: cpu\n")
    assert ("--ddp_timeout" in words(node)) is timeout
