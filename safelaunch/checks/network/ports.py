"""Checks that the ports that a job binds are free, and that servers that it uses answer.

Ports that a start chooses itself are not checked: the start tries to bind those.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import launchers
from safelaunch.checks import job_options
from safelaunch.checks.answers import Answer, Question, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.launchers import FixedPort
from safelaunch.launchers.common import port_number
from safelaunch.model import Args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Job

_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - all interfaces of a server
_LOCAL = ("localhost", "127.0.0.1", "::1", *_ANY)
_URL = r"https?://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})(/.*)?"
_STATIC = 29500  # torchrun and deepspeed: their common default
_RENDEZVOUS_OPTION = "master_port"  # of the launchers that a `command:` may start
_REPLACEMENTS = frozenset({"standalone", "rdzv_endpoint", "rdzv_backend"})
_GROUP = 51216  # trl and ms-swift: the trainer sends the weights to the server
_LIGHTRFT = 40000  # LightRFT: SGLang engines at 40000 + local rank
_MAX_RANKS = 64


class Server(NamedTuple):
    """An address that the job connects to, and the option that names it."""

    address: str
    port: int
    setting: str


class _Program(NamedTuple):
    """A program that binds a port: the option that sets it, and the default."""

    option: str
    default: int
    required: bool = True
    source: str = ""


# two servers of one user share the port (SO_REUSEPORT), and requests go to either
_VLLM = _Program("port", 8000, required=False, source="vllm entrypoints/openai/api_server")
_TRL = _Program("port", 8000, source="trl scripts/vllm_serve.py")
# uses the next free port, where no client looks for it
_SWIFT = _Program("port", 8000, required=False, source="ms-swift DeployArguments")
_RENDEZVOUS = _Program(_RENDEZVOUS_OPTION, _STATIC)
_LAST_PORT = 65535
# by module, or by program with its subcommand
_PROGRAMS = {
    "torchrun": _RENDEZVOUS,
    "torch.distributed.run": _RENDEZVOUS,
    "torch.distributed.launch": _RENDEZVOUS,
    "deepspeed": _RENDEZVOUS,
    "vllm serve": _VLLM,
    "vllm.entrypoints.openai.api_server": _VLLM,
    "trl vllm-serve": _TRL,
    "trl.scripts.vllm_serve": _TRL,
    "sglang.launch_server": _Program("port", 30000),
    "swift deploy": _SWIFT,
    "swift rollout": _SWIFT,
    "swift app": _Program("server_port", 7860, required=False),
    "swift web-ui": _Program("server_port", 7860, required=False),
    "ray start": _Program("port", 6379),
}


def fixed_ports(host: HostContext) -> list[FixedPort]:
    """Return the fixed ports that the job binds on a host, each once."""
    ports = [
        *(_rendezvous_ports(host) if host.is_first else ()),  # the first machine binds them
        *_program_ports(host),
        *_trainer_ports(host),
    ]
    return list({entry.port: entry for entry in reversed(ports)}.values())


def _rendezvous_ports(host: HostContext) -> tuple[FixedPort, ...]:
    return launchers.load(host.job.launcher).rendezvous(host.job, host.plan.env).ports


def _program_ports(host: HostContext) -> Iterator[FixedPort]:
    """Yield the ports of a server or launcher that the job starts by its name."""
    job = host.job
    name, words = _program_of(job)
    program = _PROGRAMS.get(name)
    own = job_options.script_args(job)
    options = {**job_options.parse(Args(words=tuple(words))), **job_options.parse(own)}
    if program is None or (name == "ray start" and "head" not in options):
        return
    is_rendezvous = program.option == _RENDEZVOUS_OPTION
    if is_rendezvous and (not host.is_first or not _REPLACEMENTS.isdisjoint(options)):
        return
    text = job_options.first_value(options, program.option)
    port = program.default if text is None else port_number(text)
    if port is None:
        return
    setting = f"`{name}` binds it" + ("" if text else " by default")
    option = program.option if is_rendezvous else program.option.replace("_", "-")
    remedy = f"give `{name}` another one: --{option} {{free}}"
    yield FixedPort(port, setting, remedy, program.required, program.source)
    if name == "ray start":
        dashboard = port_number(job_options.first_value(options, "dashboard_port")) or 8265
        remedy = "ray start --dashboard-port {free}"
        yield FixedPort(dashboard, "the dashboard of Ray", remedy, required=False)


def _program_of(job: Job) -> tuple[str, Sequence[str]]:
    """Return what a job runs, as `_PROGRAMS` names it, and its arguments."""
    if job.module is not None:
        return job.module, ()
    # `command:` follows the launcher's own name, if it has one: `swift rollout`
    own_name = launchers.load(job.launcher).PROGRAMS[:1] if job.command else ()
    words = [*own_name, *job.command, *(() if job.args.is_mapping else job.args.words)]
    while words and (words[0] == "env" or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0])):
        words = words[1:]
    if not words:
        return "", ()
    first = posixpath.basename(words[0])
    if re.fullmatch(r"python[\d.]*", first):
        module = words[words.index("-m") + 1 :] if "-m" in words else []
        return (module[0], module[1:]) if module else ("", ())
    second = " ".join([first, *words[1:2]])
    return (second, words[2:]) if second in _PROGRAMS else (first, words[1:])


def _trainer_ports(host: HostContext) -> Iterator[FixedPort]:
    """Yield ports that trainers are known to bind beside the launcher's."""
    job = host.job
    options = job_options.options(job)
    if job_options.first_value(options, "engine_type") == "sglang" and "engine_tp_size" in options:
        for rank in range(min(job.topology.processes or 1, _MAX_RANKS)):
            yield FixedPort(
                _LIGHTRFT + rank,
                f"LightRFT's SGLang engine of local rank {rank}",
                "wait for the job that uses it, or `engine_type: vllm`",
                required=False,
                source="LightRFT strategy: 40000 + local rank",
            )
    vllm = [s.address for s in servers_of(job) if s.setting.startswith("vllm_server")]
    if vllm and host.rank == 0 and vllm[0] in _LOCAL:
        yield FixedPort(
            port_number(job_options.first_value(options, "vllm_server_group_port")) or _GROUP,
            "the vLLM server gets the trainer's weights there (`vllm_server_group_port`)",
            "args: {vllm_server_group_port: {free}}",
            required=False,
            source="ms-swift issue 8398",
        )


def _is_own(options: job_options.Options, url: re.Match[str]) -> bool:
    """Whether an address is that of the job's program, which `--port` lets it serve."""
    return url[1].strip("[]") in _LOCAL and url[2] in options.get("port", ())


def servers_of(job: Job) -> list[Server]:
    """Return the servers that the job's arguments name."""
    options = job_options.options(job)
    named: list[tuple[str, str, str]] = []
    mode = job_options.first_value(options, "vllm_mode")
    is_named = "vllm_server_host" in options or "vllm_server_port" in options
    is_server = mode == "server" or (is_named and mode != "colocate")
    if is_server and "vllm_server_base_url" not in options:
        ports = options.get("vllm_server_port") or ("8000",)
        for index, address in enumerate(options.get("vllm_server_host") or ("127.0.0.1",)):
            named.append((address, ports[min(index, len(ports) - 1)], "vllm_server_port"))
    urls = ((name, re.fullmatch(_URL, value)) for name in options for value in options[name])
    # a worker of FastChat says where it can be reached itself (serve/model_worker.py)
    named += [
        (url[1].strip("[]"), url[2], name)
        for name, url in urls
        if url and not name.startswith("worker_addr") and not _is_own(options, url)
    ]
    servers = [
        Server("127.0.0.1" if address in _ANY else address, port, name)
        for address, text, name in named
        if (port := port_number(text)) is not None
    ]
    return list(dict.fromkeys(servers))


@check("ports", asks=lambda host: [("port", p.port) for p in fixed_ports(host)], quick=True)
def ports(host: HostContext) -> Iterator[Answer]:
    """Whether fixed ports that the job, its launcher or its engines bind are free."""
    for name, values in job_options.parse(host.job.launcher_args).items():
        if name.endswith("_port") and values[-1].isdecimal() and int(values[-1]) > _LAST_PORT:
            what = f"`launcher_args: {{{name}: {values[-1]}}}` is above {_LAST_PORT}, the last port"
            yield fail(what, f"leave `{name}` out: a start chooses a free port")
    free = []
    for entry in fixed_ports(host):
        state = host.answer("port", entry.port)
        if state["free"]:
            free.append(str(entry.port))
            continue
        instead = str(state.get("instead") or "another number")
        hint = entry.remedy.replace("{free}", instead)
        if host.job.starts_one_node and entry in _rendezvous_ports(host):
            hint = f"give all nodes another port, such as {instead}"  # none can be chosen for all
        # without a listener it is closing, and servers may still bind it (SO_REUSEADDR)
        is_used = state.get("listens") is not False
        answer = fail if entry.required and is_used else warn
        yield answer(f"port {entry.port} is {usage(state)}; {entry.setting}", hint, entry.source)
    if free:
        yield ok(f"port {', '.join(free)} can be bound")


def usage(state: Mapping[str, Any]) -> str:
    """Return which process uses a port."""
    holders = state.get("holders") or []
    if not holders:
        is_closing = state.get("listens") is False
        return "still closing (TIME_WAIT): it is free within a minute" if is_closing else "in use"
    first = holders[0]
    if "pid" not in first:
        return f"in use by a process of user {first['user']}"
    return f"in use by `{first['command'][:60]}` (pid {first['pid']} of {first['user']})"


def _server_questions(host: HostContext) -> Iterable[Question]:
    if host.rank != 0 or any("&" in line for line in host.plan.setup):
        return []  # `setup` may start it
    return [("reach", server.address, server.port) for server in servers_of(host.job)]


@check("servers", asks=_server_questions)
def servers(host: HostContext) -> Iterator[Answer]:
    """Whether the servers that the job's arguments name answer."""
    settings = {("reach", s.address, s.port): s.setting for s in reversed(servers_of(host.job))}
    reached = []
    for question in _server_questions(host):
        _, address, port = question
        result = host.answer(*question)
        where = f"{address}:{port}"
        if result["reached"]:
            reached.append(where)
            continue
        hint = f"start the server on {address} first, and open port {port} there"
        if address in _LOCAL or address.startswith("127."):
            cluster = launchers.load(host.job.launcher).CLUSTER
            is_ray = cluster is not None and cluster.uses_ray and settings[question] == "address"
            path = "api/version" if is_ray else "health"
            hint = f"start it first, and wait until `curl http://{where}/{path}` answers"
        what = f"no server answers at {where} (`{settings[question]}`): {result['why']}"
        yield warn(what, hint)
    if reached:
        yield ok(f"a server answers at {', '.join(reached)}")
