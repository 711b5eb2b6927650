"""The fixed ports of a job: those that it or what it starts must bind, and servers that it asks.

A port that a start chooses itself is no matter here: it is bound and tried by the start.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.checks import job_options
from safelaunch.launchers import FixedPort
from safelaunch.launchers.common import port_number
from safelaunch.model import Args

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Job

ANY = ("0.0.0.0", "::", "")  # noqa: S104 - what servers call all interfaces
_LOCAL = ("localhost", "127.0.0.1", "::1", *ANY)
_URL = r"https?://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})(/.*)?"
_STATIC = 29500  # torchrun and deepspeed: their common default
_RENDEZVOUS_OPTION = "master_port"  # of the launchers that a `command:` may start
_ELSEWHERE = frozenset({"standalone", "rdzv_endpoint", "rdzv_backend"})  # options that replace it
_GROUP = 51216  # trl and ms-swift: where trainer and server meet for the weights
_LIGHTRFT = 40000  # LightRFT: SGLang engines at 40000 + local rank
_MOST = 64


class Server(NamedTuple):
    """An address that the job connects to, and the option that names it."""

    host: str
    port: int
    setting: str


class _Program(NamedTuple):
    """A program that binds a port: the option that says which, and the default."""

    option: str
    default: int
    required: bool = True
    source: str = ""


# by module, or by program with its subcommand
_PROGRAMS = {
    "torchrun": _Program(_RENDEZVOUS_OPTION, _STATIC),
    "torch.distributed.run": _Program(_RENDEZVOUS_OPTION, _STATIC),
    "torch.distributed.launch": _Program(_RENDEZVOUS_OPTION, _STATIC),
    "deepspeed": _Program(_RENDEZVOUS_OPTION, _STATIC),
    # two servers of one user share it (SO_REUSEPORT), and requests go to either
    "vllm serve": _Program(
        "port", 8000, required=False, source="vllm entrypoints/openai/api_server"
    ),
    "vllm.entrypoints.openai.api_server": _Program(
        "port", 8000, required=False, source="vllm entrypoints/openai/api_server"
    ),
    "trl vllm-serve": _Program("port", 8000, source="trl scripts/vllm_serve.py"),
    "trl.scripts.vllm_serve": _Program("port", 8000, source="trl scripts/vllm_serve.py"),
    "sglang.launch_server": _Program("port", 30000),
    # it takes the next free one, where no client looks for it
    "swift deploy": _Program("port", 8000, required=False, source="ms-swift DeployArguments"),
    "swift rollout": _Program("port", 8000, required=False, source="ms-swift DeployArguments"),
    "swift app": _Program("server_port", 7860, required=False),
    "swift web-ui": _Program("server_port", 7860, required=False),
    "ray start": _Program("port", 6379),
}


def fixed_ports(host: HostContext) -> list[FixedPort]:
    """Return the fixed ports that are bound on a machine, each once."""
    rendezvous = launchers.load(host.job.launcher).rendezvous(host.job, host.plan.env)
    ports = [
        *(rendezvous.ports if host.rank == 0 else ()),  # the first machine binds them
        *_program_ports(host),
        *_trainer_ports(host),
    ]
    return list({entry.port: entry for entry in reversed(ports)}.values())


def _program_ports(host: HostContext) -> Iterator[FixedPort]:
    """Yield the port of a server or launcher that the job starts by its name."""
    job = host.job
    name, words = program(job)
    binding = _PROGRAMS.get(name)
    if binding is None:
        return
    options = {**job_options.parse(Args(words=tuple(words))), **job_options.parse(job.args)}
    if name == "ray start" and "head" not in options:
        return
    is_rendezvous = binding.option == _RENDEZVOUS_OPTION
    if is_rendezvous and (host.rank != 0 or not _ELSEWHERE.isdisjoint(options)):
        return
    text = job_options.first_value(options, binding.option)
    port = binding.default if text is None else port_number(text)
    if port is None:
        return
    setting = f"`{name}` binds it" + ("" if text else " by default")
    option = binding.option if is_rendezvous else binding.option.replace("_", "-")
    remedy = f"give `{name}` another one: --{option} {{free}}"
    yield FixedPort(port, setting, remedy, binding.required, binding.source)
    if name == "ray start":
        dashboard = port_number(job_options.first_value(options, "dashboard_port")) or 8265
        remedy = "ray start --dashboard-port {free}"
        yield FixedPort(dashboard, "the dashboard of Ray", remedy, required=False)


def program(job: Job) -> tuple[str, Sequence[str]]:
    """Return what a job runs, as `_PROGRAMS` names it, and the words behind it."""
    if job.module is not None:
        return job.module, ()
    # `command:` stands behind the launcher's own name, if it has one: `swift rollout`
    own_name = launchers.load(job.launcher).PROGRAMS[:1] if job.command else ()
    words = [*own_name, *job.command, *(() if job.args.is_mapping else job.args.words)]
    while words and (words[0] == "env" or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0])):
        words = words[1:]
    if not words:
        return "", ()
    first = posixpath.basename(words[0])
    if re.fullmatch(r"python[\d.]*", first):
        at = words.index("-m") + 1 if "-m" in words else len(words)
        return (words[at], words[at + 1 :]) if at < len(words) else ("", ())
    second = f"{first} {words[1]}" if len(words) > 1 else ""
    return (second, words[2:]) if second in _PROGRAMS else (first, words[1:])


def _trainer_ports(host: HostContext) -> Iterator[FixedPort]:
    """Yield ports that trainers are known to bind beside the launcher's."""
    job = host.job
    options = job_options.options(job)
    if job_options.first_value(options, "engine_type") == "sglang" and "engine_tp_size" in options:
        for rank in range(min(job.topology.processes or 1, _MOST)):
            yield FixedPort(_LIGHTRFT + rank, f"LightRFT's SGLang engine of local rank {rank}",
                            "wait for the job that holds it, or `engine_type: vllm`",
                            required=False,
                            source="LightRFT strategy: 40000 + local rank")  # fmt: skip
    hosts = [server.host for server in servers(job) if server.setting.startswith("vllm_server")]
    if hosts and host.rank == 0 and hosts[0] in _LOCAL:
        port = port_number(job_options.first_value(options, "vllm_server_group_port")) or _GROUP
        setting = "the vLLM server meets the trainer there (`vllm_server_group_port`)"
        yield FixedPort(port, setting, "args: {vllm_server_group_port: {free}}", required=False,
                        source="ms-swift issue 8398")  # fmt: skip


def servers(job: Job) -> list[Server]:
    """Return the servers that the job's arguments name."""
    options = job_options.options(job)
    addresses = []
    mode = job_options.first_value(options, "vllm_mode")
    is_named = "vllm_server_host" in options or "vllm_server_port" in options
    if (
        mode != "colocate"
        and "vllm_server_base_url" not in options
        and (mode == "server" or is_named)
    ):
        hosts = options.get("vllm_server_host") or ("127.0.0.1",)
        ports = options.get("vllm_server_port") or ("8000",)
        for index, host in enumerate(hosts):
            port = port_number(ports[min(index, len(ports) - 1)])
            if port is not None:
                name = "127.0.0.1" if host in ANY else host
                addresses.append(Server(name, port, "vllm_server_port"))
    for name, values in options.items():
        for value in values:
            match = re.fullmatch(_URL, value)
            port = port_number(match[2]) if match is not None else None
            if match is not None and port is not None:
                host = match[1].strip("[]")
                addresses.append(Server("127.0.0.1" if host in ANY else host, port, name))
    return list(dict.fromkeys(addresses))


def is_local(host: str) -> bool:
    """Whether an address is this very machine by its name."""
    return host in _LOCAL or host.startswith("127.")
