"""Services of a job file: what they take over from the job, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.hosts_file.reader import LOCAL
from safelaunch.config.members.presets import PRESETS
from safelaunch.config.resolve import Flags
from safelaunch.config.schema.members.services import SERVERS
from safelaunch.errors import ConfigError
from safelaunch.plan.serialize import freeze, thaw

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "launcher: python\nscript: train.py\nprofile: cpu\n"
SERVER = "  server: {launcher: command, command: [server, '{services.server.port}']}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_service_has_what_the_job_says_of_machine_and_project(project: Project) -> None:
    plan = project.plan(HEAD + "env: {A: '1'}\nargs: {x: 1}\nservices:\n" + SERVER)
    node = plan.services[0].plan.nodes[0]
    assert str(node.env["A"].value) == "1"
    assert [str(word) for word in node.argv] == ["server", "<services.server.port>"]
    assert plan.services[0].plan.profile == "cpu"


def test_a_recorded_plan_has_its_services(project: Project) -> None:
    plan = project.plan(HEAD + "services:\n" + SERVER)
    assert thaw(freeze(plan)) == plan


@pytest.mark.parametrize(
    ("preset", "words", "http"),
    [
        ("vllm", "-m vllm.entrypoints.openai.api_server --port PORT --model M", "/health"),
        ("sglang", "-m sglang.launch_server --port PORT --model M", "/health"),
        ("trl-vllm", "-m trl.scripts.vllm_serve --port PORT --model M", "/health/"),
        ("swift-rollout", "rollout --port PORT --model M", "/health/"),
        ("swift-deploy", "deploy --port PORT --model M", None),
    ],
)
def test_a_preset_starts_its_server_on_the_port_of_the_service(
    project: Project, preset: str, words: str, http: str | None
) -> None:
    text = f"services:\n  server: {{preset: {preset}, args: {{model: M}}}}\n"
    service = project.plan(HEAD + text).services[0]
    line = " ".join(map(str, service.plan.nodes[0].argv))
    assert line.endswith(words.replace("PORT", "<services.server.port>"))
    assert service.ready.http == http


def test_each_server_of_the_schema_has_a_preset() -> None:
    assert tuple(PRESETS) == SERVERS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("args: {u: '{services.serve.url}'}\nservices:\n" + SERVER, "no service `serve`"),
        ("args: {u: '{services.server.uri}'}\nservices:\n" + SERVER, "a service has no `uri`"),
        ("services:\n  a: {launcher: command, command: [a], after: b}\n", "no service `b`"),
        (
            (
                "services:\n  a: {launcher: command, command: [a], after: b}\n"
                "  b: {launcher: command, command: [b], after: a}\n"
            ),
            "services wait for each other: a -> b -> a",
        ),
        (
            (
                "services:\n  a: {launcher: command, command: [a], port: 80}\n"
                "  b: {launcher: command, command: [b], port: 80}\n"
            ),
            "port 80 of service `b` is that of `a`",
        ),
        (
            "gpus: [0, 1]\nservices:\n  a: {launcher: command, command: [a], gpus: [1]}\n",
            "card 1 of service `a` is that of the job",
        ),
        (
            "services:\n  a: {launcher: command, command: [a], gpus: [1]}\n",
            "service `a` has cards of its own, and the job takes all",
        ),
        ("services:\n  a: {launcher: command, command: [a], nodes: 2}\n", "`nodes` of a service"),
        ("services:\n  A b: {launcher: command, command: [a]}\n", "is no service name"),
        ("services:\n  a: {launcher: command, command: [a], ready: {http: x}}\n", "is no path"),
        ("setup: ['{services.server.url}']\nservices:\n" + SERVER, "in `setup` is not replaced"),
        (
            (
                "services:\n  a: {launcher: command, command: [a],"
                " ready: {command: ['{services.b.url}']}}\n"
            ),
            "no service `b`",
        ),
        ("services:\n  a: {preset: vllm, args: [--model, M]}\n", "adds `port` to `args`"),
        ("services:\n  a: {script: none.py, launcher: python}\n", "script `none.py` does not"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    project: Project, text: str, message: str
) -> None:
    head = HEAD.replace("profile: cpu\n", "") if "gpus" in text else HEAD
    with pytest.raises(ConfigError) as caught:
        project.plan(head + text)
    assert message in caught.value.message
    assert caught.value.where


def test_a_server_of_several_hosts_listens_for_all_and_is_reached_without_a_proxy(
    project: Project,
) -> None:
    server = "services:\n  server: {preset: sglang, args: {model: M}}\n"
    text = "launcher: torchrun\nscript: train.py\nprocesses: 1\nprofile: cpu\n" + server
    plan = project.plan(text, Flags(remote=True, hosts=("gpu1", "gpu2")))
    (node,) = plan.services[0].plan.nodes
    assert " --host 0.0.0.0 " in " ".join([*map(str, node.argv), ""])
    assert node.host == "gpu1"
    for rank in plan.nodes:
        assert str(rank.direct[-1]) == "<services.server.host>"
    alone = project.plan(text, Flags(remote=True, hosts=("gpu1",))).services[0].plan.nodes[0]
    assert "--host" not in map(str, alone.argv)


def test_services_of_nodes_that_are_started_by_hand_are_refused(project: Project) -> None:
    text = "launcher: torchrun\nscript: train.py\nprocesses: 1\nnodes: 2\nnode_rank: 0\n"
    with pytest.raises(ConfigError) as caught:
        project.plan(text + "services:\n" + SERVER)
    assert "nodes are started by hand" in caught.value.message


BESIDE = "gpus: [0]\nservices:\n  a: {launcher: command, command: [a], gpus: [0], host: gpu2}\n"


def test_a_service_on_a_host_of_its_own_has_a_node_without_ranks(project: Project) -> None:
    plan = project.plan(HEAD + BESIDE, Flags(remote=True, hosts=("gpu1",)))
    assert [(node.host, node.processes) for node in plan.nodes] == [("gpu1", 1), ("gpu2", 0)]
    assert (plan.topology.nodes, plan.service_nodes, plan.services[0].node) == (1, 1, 1)
    assert plan.services[0].plan.nodes[0].host == "gpu2"
    assert thaw(freeze(plan)) == plan


def test_a_service_on_a_host_of_the_job_has_no_node_of_its_own(project: Project) -> None:
    text = BESIDE.replace("[0], host", "[1], host")
    head = HEAD.replace("launcher: python", "launcher: torchrun")
    plan = project.plan(head + text, Flags(remote=True, hosts=("gpu1", "gpu2")))
    assert [node.host for node in plan.nodes] == ["gpu1", "gpu2"]
    assert (plan.service_nodes, plan.services[0].node) == (0, 1)


@pytest.mark.parametrize(
    ("text", "hosts", "message"),
    [
        (BESIDE, ("gpu2",), "card 0 of service `a` is that of the job"),
        (BESIDE, (), "`host` of service `a`, of a job on this machine"),
        (BESIDE.replace("gpu2", LOCAL), ("gpu1",), f"service `a`: {LOCAL} is this machine"),
        (
            BESIDE + "  b: {launcher: command, command: [b], gpus: [0], host: gpu2}\n",
            ("gpu1",),
            "card 0 of service `b` is that of service `a`",
        ),
        (BESIDE.replace("[0]", "1") + "queue: true\n", ("gpu1",), "and `queue`, which is that"),
    ],
)
def test_a_service_on_another_host_that_cannot_be_is_refused(
    project: Project, text: str, hosts: tuple[str, ...], message: str
) -> None:
    head = HEAD.replace("profile: cpu\n", "")
    with pytest.raises(ConfigError) as caught:
        project.plan(head + text, Flags(remote=bool(hosts), hosts=hosts))
    assert message in caught.value.message
    assert caught.value.where
