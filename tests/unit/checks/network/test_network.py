"""Checks of the network: fixed ports, servers, interfaces, names, proxies, clocks, ways."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of
from support.facts.machine_cases import local_context, remote_context

from safelaunch.checks import run
from safelaunch.checks.context import HostContext, RouteReport
from safelaunch.checks.network import ports
from safelaunch.model import Host

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.context import CheckContext

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 2\n"
ACCELERATE = "launcher: accelerate\nscript: train.py\n"
SWIFT = "launcher: swift\ncommand: [rlhf]\nprocesses: 2\n"
TAKEN = {"free": False, "listens": True, "instead": 20123,
         "holders": [{"pid": 7, "user": "ann", "command": "python old.py"}]}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def fixed(project: Project, job: str) -> dict[int, bool]:
    """Return the fixed ports of a job, and whether it must have each."""
    (host,) = local_context(project, job).hosts
    return {entry.port: entry.required for entry in ports.fixed_ports(host)}


# -- ports -----------------------------------------------------------------------------------------

PORTS = {
    "a port that the start chooses": (TORCHRUN, {}),
    "torchrun's": (TORCHRUN + "launcher_args: {master_port: 29511}\n", {29511: True}),
    "torchrun's endpoint": (
        TORCHRUN + "launcher_args: {rdzv_backend: c10d, rdzv_endpoint: 'localhost:29400'}\n",
        {29400: True},
    ),
    "a port of its own choice": (
        TORCHRUN + "launcher_args: {rdzv_backend: c10d, rdzv_endpoint: 'localhost:0'}\n",
        {},
    ),
    "standalone": (TORCHRUN + "launcher_args: {standalone: true, master_port: 29511}\n", {}),
    "a port that c10d ignores": (
        TORCHRUN + "launcher_args: {rdzv_backend: c10d, master_port: 29511}\n",
        {},
    ),
    "accelerate's": (
        f"{ACCELERATE}processes: 2\nlauncher_args: {{main_process_port: 29503}}\n",
        {29503: True},
    ),
    "accelerate with one process and DeepSpeed": (
        f"{ACCELERATE}processes: 1\nlauncher_args: {{use_deepspeed: true}}\n",
        {29500: True},
    ),
    "accelerate's own choice": (
        f"{ACCELERATE}processes: 1\nlauncher_args: {{use_fsdp: true, main_process_port: 0}}\n",
        {},
    ),
    "swift's MASTER_PORT": (SWIFT + "env: {MASTER_PORT: '29600'}\n", {29600: True}),
    "torchrun ignores MASTER_PORT": (TORCHRUN + "env: {MASTER_PORT: '29600'}\n", {}),
    "a script may read MASTER_PORT": (
        "launcher: python\nscript: train.py\nenv: {MASTER_PORT: '29600'}\n",
        {29600: False},
    ),
    "a bare torchrun": ("launcher: command\ncommand: [torchrun, train.py]\n", {29500: True}),
    "a bare torchrun with a port": (
        "launcher: command\ncommand: [env, A=1, torchrun, --master-port=29777, train.py]\n",
        {29777: True},
    ),
    "a bare torchrun alone": (
        "launcher: command\ncommand: [torchrun, --standalone, train.py]\n",
        {},
    ),
    "vllm serve": ("launcher: command\ncommand: [vllm, serve, m, --port, '8123']\n", {8123: False}),
    "vllm by its module": (
        "launcher: python\nmodule: vllm.entrypoints.openai.api_server\nargs: {model: m}\n",
        {8000: False},
    ),
    "trl vllm-serve": ("launcher: command\ncommand: [trl, vllm-serve]\n", {8000: True}),
    "sglang": (
        "launcher: command\ncommand: [python3, -m, sglang.launch_server, --port, '30001']\n",
        {30001: True},
    ),
    "swift rollout": ("launcher: swift\ncommand: [rollout]\n", {8000: False}),
    "ray": (
        "launcher: command\ncommand: [ray, start, --head, --port=6380]\n",
        {6380: True, 8265: False},
    ),
    "ray's workers": ("launcher: command\ncommand: [ray, start, --address, 'h:6379']\n", {}),
    "LightRFT's engines": (
        TORCHRUN + "args: {engine_type: sglang, engine_tp_size: 1}\n",
        {40000: False, 40001: False},
    ),
    "the group of trainer and server": (
        SWIFT + "args: {vllm_mode: server, vllm_server_host: 127.0.0.1}\n",
        {51216: False},
    ),
    "a server elsewhere": (
        SWIFT + "args: {vllm_mode: server, vllm_server_host: 192.0.2.7}\n",
        {},
    ),
}


@pytest.mark.parametrize(("job", "expected"), PORTS.values(), ids=PORTS)
def test_fixed_ports_of_launchers_and_engines_are_known(
    project: Project, job: str, expected: dict[int, bool]
) -> None:
    assert fixed(project, job) == expected


def test_a_port_that_is_taken_makes_the_start_impossible(project: Project) -> None:
    job = TORCHRUN + "launcher_args: {master_port: 29511}\n"
    result = result_of(local_context(project, job, answers={("port", 29511): TAKEN}), "ports")
    assert result.status == "fail"
    assert "29511 is in use by `python old.py` (pid 7 of ann)" in result.evidence
    assert result.hint.startswith("take `master_port` out of `launcher_args`: a free port")


def test_nodes_by_hand_need_the_same_other_port(project: Project) -> None:
    job = TORCHRUN + "nodes: 2\nnode_rank: 0\n"
    job += "launcher_args: {master_addr: 127.0.0.1, master_port: 29511}\n"
    result = result_of(local_context(project, job, answers={("port", 29511): TAKEN}), "ports")
    assert result.status == "fail"
    assert result.hint.startswith("give all nodes another port, such as ")


def test_a_real_listener_is_found(project: Project) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        job = TORCHRUN + f"launcher_args: {{master_port: {port}}}\n"
        assert result_of(local_context(project, job), "ports").status == "fail"
    assert result_of(local_context(project, job), "ports").status == "ok"


def test_a_port_that_is_closing_is_a_warning(project: Project) -> None:
    job = TORCHRUN + "launcher_args: {master_port: 29511}\n"
    answers = {"free": False, "listens": False, "holders": [], "instead": 1}
    assert (
        result_of(local_context(project, job, answers={("port", 29511): answers}), "ports").status
        == "warn"
    )


def test_a_port_of_an_engine_that_goes_elsewhere_is_a_warning(project: Project) -> None:
    job = "launcher: swift\ncommand: [rollout]\n"
    result = result_of(local_context(project, job, answers={("port", 8000): TAKEN}), "ports")
    assert (result.status, result.hint) == (
        "warn",
        "give `swift rollout` another one: --port 20123",
    )


def test_ports_are_looked_at_before_each_start(project: Project) -> None:
    job = TORCHRUN + "launcher_args: {master_port: 29511}\n"
    case = local_context(project, job, answers={("port", 29511): TAKEN}, is_quick=True)
    assert result_of(case, "ports").status == "fail"


def test_only_the_first_machine_binds_the_port_of_the_ranks(project: Project) -> None:
    job = TORCHRUN + "nodes: 2\nlauncher_args: {master_port: 29511}\n"
    answers = {("port", 29511): TAKEN}
    results = results_of(remote_context(project, job, answers, answers, hosts=("a", "b")), "ports")
    assert [each.host for each in results] == ["a"]


# -- servers ---------------------------------------------------------------------------------------

SERVER = SWIFT + "args: {vllm_mode: server, vllm_server_host: 0.0.0.0, vllm_server_port: 8001}\n"
REFUSED = {"reached": False, "why": "connection refused"}


def test_a_server_that_nobody_started_is_a_warning(project: Project) -> None:
    case = local_context(project, SERVER, answers={("reach", "127.0.0.1", 8001): REFUSED})
    result = result_of(case, "servers")
    assert result.status == "warn"
    assert "no server answers at 127.0.0.1:8001 (`vllm_server_port`)" in result.evidence


def test_the_server_of_ray_jobs_is_asked_for_what_it_has(project: Project) -> None:
    command = "[job, submit, --address, 'http://127.0.0.1:8265', --, python, x.py]"
    job = f"launcher: ray\ncommand: {command}\n"
    answers = {("reach", "127.0.0.1", 8265): {"reached": False, "why": "refused"}}
    hint = result_of(local_context(project, job, answers=answers), "servers").hint
    assert "`curl http://127.0.0.1:8265/api/version`" in hint


def test_a_server_that_answers_passes(project: Project) -> None:
    case = local_context(project, SERVER, answers={("reach", "127.0.0.1", 8001): {"reached": True}})
    assert result_of(case, "servers").status == "ok"


def test_each_address_is_asked(project: Project) -> None:
    job = TORCHRUN + "args: {remote_rm_url: 'http://192.0.2.1:5000/rm', report: 'https://a.b/x'}\n"
    answers = {("reach", "192.0.2.1", 5000): REFUSED}
    assert (
        "192.0.2.1:5000"
        in result_of(local_context(project, job, answers=answers), "servers").evidence
    )


@pytest.mark.parametrize("more", ["args: {vllm_mode: colocate, vllm_server_port: 8000}\n",
                                  "args: {lr: 1e-3}\n",
                                  "args: {port: 6210, address: 'http://localhost:6210'}\n",
                                  "args: {worker-address: 'http://gpu1:6210'}\n"])  # fmt: skip
def test_a_job_without_a_server_is_asked_for_none(project: Project, more: str) -> None:
    assert results_of(local_context(project, SWIFT + more), "servers") == []


def test_a_server_that_setup_starts_is_not_missed(project: Project) -> None:
    job = SERVER + "setup: swift rollout --port 8001 &\n"
    assert results_of(local_context(project, job), "servers") == []


# -- interfaces ------------------------------------------------------------------------------------

NET = "/sys/class/net"


def card(project: Project, env: str, globs: dict[str, list[str]], **more: Any) -> Any:
    answers = {
        ("glob", f"{NET}/{pattern}"): {
            "count": len(results),
            "found": [f"{NET}/{n}" for n in results],
        }
        for pattern, results in globs.items()
    }
    job = more.pop("job", TORCHRUN + "profile: rtx5090\n") + f"env: {{{env}}}\n"
    return result_of(local_context(project, job, answers=answers, **more), "interfaces")


UP = {"network": {"addresses": [{"interface": "eth0", "address": "192.0.2.1", "speed": 0}]}}
CARDS = {
    "exact": ("NCCL_SOCKET_IFNAME: =eth0", {"eth0": ["eth0"]}, "ok"),
    "prefix": ("NCCL_SOCKET_IFNAME: eth", {"eth*": ["eth0", "eth1"]}, "ok"),
    "one of two": ("NCCL_SOCKET_IFNAME: 'ib,eth'", {"ib*": [], "eth*": ["eth0"]}, "ok"),
    "excluded": ("NCCL_SOCKET_IFNAME: '^lo,docker'", {"*": ["lo", "docker0", "eth0"]}, "ok"),
    "all excluded": ("NCCL_SOCKET_IFNAME: '^lo,docker'", {"*": ["lo", "docker0"]}, "fail"),
    "exactly none": ("NCCL_SOCKET_IFNAME: '=eth7'", {"eth7": []}, "fail"),
    "no prefix": ("NCCL_SOCKET_IFNAME: bond", {"bond*": []}, "fail"),
    "a path": ("NCCL_SOCKET_IFNAME: ../x", {}, "fail"),
    "gloo": ("GLOO_SOCKET_IFNAME: eth0", {"eth0": ["eth0"]}, "ok"),
    "gloo takes no prefix": ("GLOO_SOCKET_IFNAME: eth", {"eth": []}, "warn"),
    "gloo needs each": ("GLOO_SOCKET_IFNAME: 'eth0,eth1'", {"eth0": ["eth0"], "eth1": []}, "warn"),
}


@pytest.mark.parametrize(("env", "globs", "status"), CARDS.values(), ids=CARDS)
def test_interfaces_are_read_as_the_libraries_do(
    project: Project, env: str, globs: dict[str, list[str]], status: str
) -> None:
    assert card(project, env, globs, facts=UP).status == status


def test_an_interface_is_looked_at_before_each_start(project: Project) -> None:
    result = card(project, "NCCL_SOCKET_IFNAME: '=eth7'", {"eth7": []}, is_quick=True)
    assert (result.status, result.hint) == (
        "fail", "env: {NCCL_SOCKET_IFNAME: null}; one machine needs none")  # fmt: skip


def test_gloo_alone_trains_on_cpus(project: Project) -> None:
    job = TORCHRUN + "profile: cpu\n"
    assert card(project, "GLOO_SOCKET_IFNAME: eth7", {"eth7": []}, job=job).status == "fail"
    assert card(project, "NCCL_SOCKET_IFNAME: '=eth7'", {"eth7": []}, job=job).status == "warn"


def test_an_interface_that_is_down_is_a_warning(project: Project) -> None:
    result = card(project, "NCCL_SOCKET_IFNAME: '=eth1'", {"eth1": ["eth1"]}, facts=UP)
    assert result.status == "warn"


def test_loopback_is_enough_for_one_machine(project: Project) -> None:
    assert card(project, "NCCL_SOCKET_IFNAME: '=lo'", {"lo": ["lo"]}, facts=UP).status == "ok"


def test_a_job_that_names_no_interface_hears_nothing(project: Project) -> None:
    assert results_of(local_context(project, TORCHRUN), "interfaces") == []


def test_the_interface_of_a_hosts_entry_must_be_there(project: Project) -> None:
    project.write("hosts: {a: {interface: eth7}, b: {}}\n", "hosts.yaml")
    case = remote_context(project, TORCHRUN + "nodes: 2\n", facts=[UP, UP], hosts=("a", "b"),
                hosts_file="hosts.yaml")  # fmt: skip
    (result,) = [
        each for each in results_of(case, "interfaces") if "interface: eth7" in each.evidence
    ]
    assert (result.host, result.status) == ("a", "fail")
    assert result.hint == "`interface: eth0` in the host's entry"


def test_nccls_own_file_counts(project: Project) -> None:
    facts = {"nccl_conf": {"/etc/nccl.conf": "NCCL_SOCKET_IFNAME==eth7\n"},
             "network": {"links": {"eth0": {}}, "addresses": []}}  # fmt: skip
    result = result_of(local_context(project, TORCHRUN, facts=facts), "interfaces")
    assert (result.status, "=eth7" in result.evidence) == ("warn", True)


HCA = "nodes: 2\nenv: {NCCL_IB_HCA: '=mlx5_0'}\n"


@pytest.mark.parametrize(("devices", "status"), [
    ([("mlx5_0", "4: ACTIVE")], "ok"),
    ([("mlx5_0", "1: DOWN")], "warn"),
    ([("mlx5_1", "4: ACTIVE")], "warn"),
    ([], "warn"),
])  # fmt: skip
def test_rdma_devices_are_there_and_active(
    project: Project, devices: list[tuple[str, str]], status: str
) -> None:
    answers = [{"name": name, "ports": [{"state": state}]} for name, state in devices]
    facts = {"network": {"infiniband": answers}}
    case = remote_context(project, TORCHRUN + HCA, facts=[facts, facts], hosts=("a", "b"))
    assert {each.status for each in results_of(case, "rdma-devices")} == {status}


# -- names -----------------------------------------------------------------------------------------

MASTER = TORCHRUN + "nodes: 2\nlauncher_args: {master_addr: head}\n"


def test_a_master_that_is_no_name_makes_the_start_impossible(project: Project) -> None:
    answers = {("name", "head"): {"addresses": [], "why": "unknown"}}
    results = results_of(
        remote_context(project, MASTER, answers, answers, hosts=("a", "b")), "master-address"
    )
    assert [each.status for each in results] == ["fail", "fail"]


def test_a_master_that_means_the_other_node_itself_is_none(project: Project) -> None:
    first = {("name", "head"): {"addresses": ["127.0.1.1"]}}  # as Debian has it, on node 0
    results = results_of(
        remote_context(project, MASTER, first, first, hosts=("a", "b")), "master-address"
    )
    assert {each.host: each.status for each in results} == {"a": "ok", "b": "fail"}


def test_a_master_that_all_resolve_passes(project: Project) -> None:
    answers = {("name", "head"): {"addresses": ["192.0.2.1"]}}
    results = results_of(
        remote_context(project, MASTER, answers, answers, hosts=("a", "b")), "master-address"
    )
    assert [each.status for each in results] == ["ok", "ok"]


LOOP = {("hostname",): {"name": "gpu1", "addresses": ["127.0.1.1"]}}


def test_a_name_that_is_loopback_matters_where_torchrun_tells_it(project: Project) -> None:
    job = TORCHRUN + "nodes: 2\nlauncher_args: {rdzv_backend: c10d, rdzv_endpoint: 'a:29400'}\n"
    results = results_of(remote_context(project, job, LOOP, LOOP, hosts=("a", "b")), "own-name")
    assert [each.status for each in results] == ["warn", "warn"]


def test_a_name_that_is_loopback_matters_to_gloo_without_an_interface(project: Project) -> None:
    job = TORCHRUN + "nodes: 2\nenv: {GLOO_SOCKET_IFNAME: null}\n"
    results = results_of(remote_context(project, job, LOOP, LOOP, hosts=("a", "b")), "own-name")
    assert [each.status for each in results] == ["warn", "warn"]


def test_a_name_that_is_loopback_passes_where_nobody_is_reported(project: Project) -> None:
    job = TORCHRUN + "nodes: 2\n"
    results = results_of(remote_context(project, job, LOOP, LOOP, hosts=("a", "b")), "own-name")
    assert [each.status for each in results] == ["ok", "ok"]
    assert results_of(local_context(project, TORCHRUN), "own-name") == []


# -- proxies ---------------------------------------------------------------------------------------

PROXY = {"http_proxy": "http://u:p@192.0.2.9:3128"}


def test_a_proxy_that_lets_the_machines_pass_passes_and_shows_no_password(
    project: Project,
) -> None:
    result = result_of(local_context(project, TORCHRUN, environ=PROXY), "proxies")
    assert result.status == "ok"
    assert "http://***@192.0.2.9:3128" in result.evidence


def test_a_proxy_before_the_own_machine_is_a_warning(project: Project) -> None:
    job = TORCHRUN + "env: {no_proxy: .example.org, NO_PROXY: .example.org}\n"
    result = result_of(local_context(project, job, environ=PROXY), "proxies")
    assert result.status == "warn"
    names = "localhost,127.0.0.1,::1,.example.org"
    assert result.hint == f'env: {{no_proxy: "{names}", NO_PROXY: "{names}"}}'


def test_a_proxy_before_a_server_of_the_job_is_a_warning(project: Project) -> None:
    job = SWIFT + "args: {vllm_mode: server, vllm_server_host: 192.0.2.7}\n"
    result = result_of(local_context(project, job, environ=PROXY), "proxies")
    assert "requests to 192.0.2.7 would use it" in result.evidence


@pytest.mark.parametrize("theirs", ["192.0.2.0/24", "*", "192.0.2.7"])
def test_a_server_that_no_proxy_names_passes(project: Project, theirs: str) -> None:
    job = SWIFT + "args: {vllm_mode: server, vllm_server_host: 192.0.2.7}\n"
    result = result_of(
        local_context(project, job, environ={**PROXY, "no_proxy": theirs}), "proxies"
    )
    assert result.status == "ok"


def test_the_hint_about_proxies_cures(project: Project) -> None:
    job = TORCHRUN + "env: {no_proxy: .example.org, NO_PROXY: .example.org}\n"
    hint = result_of(local_context(project, job, environ=PROXY), "proxies").hint
    cured = local_context(project, TORCHRUN + hint + "\n", environ=PROXY)
    assert result_of(cured, "proxies").status == "ok"


@pytest.mark.parametrize("more", ["inherit: none\n", "env: {http_proxy: null, HTTP_PROXY: null}\n"])
def test_a_proxy_that_the_job_does_not_see_is_none(project: Project, more: str) -> None:
    assert results_of(local_context(project, TORCHRUN + more, environ=PROXY), "proxies") == []


def test_the_packages_of_a_socks_proxy_are_for_the_jobs_interpreter(project: Project) -> None:
    answers = {("module", name): {"found": False, "where": None} for name in ("socks", "socksio")}
    environ = {"all_proxy": "socks5://192.0.2.9:1080"}
    facts = {"python": {"executable": "/envs/rl/bin/python"}}
    case = local_context(project, TORCHRUN, environ=environ, answers=answers, facts=facts)
    assert (
        "/envs/rl/bin/python -m pip install PySocks 'httpx[socks]'" in result_of(case, "socks").hint
    )


@pytest.mark.parametrize(("exists", "status"), [(True, "ok"), (False, "warn")])
def test_a_socks_proxy_needs_its_packages(project: Project, exists: bool, status: str) -> None:
    answers = {("module", name): {"found": exists, "where": None} for name in ("socks", "socksio")}
    environ = {"all_proxy": "socks5://192.0.2.9:1080"}
    assert (
        result_of(
            local_context(project, TORCHRUN, environ=environ, answers=answers), "socks"
        ).status
        == status
    )


# -- clocks and ways -------------------------------------------------------------------------------


@pytest.mark.parametrize(("offsets", "status"), [((0.0, 1.2), "ok"), ((-3.0, 4.0), "warn")])
def test_clocks_that_differ_are_said(
    project: Project, offsets: tuple[float, ...], status: str
) -> None:
    facts = [{"clock_offset": each} for each in offsets]
    case = remote_context(project, TORCHRUN + "nodes: 2\n", facts=facts, hosts=("a", "b"))
    assert result_of(case, "clocks").status == status


def test_one_clock_agrees_with_itself() -> None:
    case = make_context(None, None, facts={"clock_offset": 99.0})
    assert results_of(case, "clocks") == []


def test_machines_without_a_job_are_compared_as_well() -> None:
    case = run.with_hosts(
        make_context(None, None),
        [
            HostContext(Host("a"), facts={"clock_offset": 0.0}),
            HostContext(Host("b"), facts={"clock_offset": 60.0}),
        ],
    )
    assert result_of(case, "clocks").evidence == "the clock of b is 60.0 s ahead of that of a"


def with_routes(project: Project, report: RouteReport | None) -> CheckContext:
    case = remote_context(project, TORCHRUN + "nodes: 2\n", hosts=("a", "b"))
    return run.with_hosts(replace(case, routes=report), case.hosts)


@pytest.mark.parametrize(("report", "status"), [
    (RouteReport(None, "", ("192.0.2.1", "192.0.2.2"), ("eth0", "eth0")), "ok"),
    (RouteReport("no way between hosts", "open TCP"), "fail"),
    (None, "skip"),
])  # fmt: skip
def test_the_ways_that_a_start_would_try_decide(
    project: Project, report: RouteReport | None, status: str
) -> None:
    assert result_of(with_routes(project, report), "ways").status == status


def test_one_machine_needs_no_way(project: Project) -> None:
    assert results_of(local_context(project, TORCHRUN), "ways") == []
