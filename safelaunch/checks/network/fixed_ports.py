"""The fixed ports of a job: those that it or what it starts must bind, and servers that it asks.

A port that a start chooses itself is no matter here: it is bound and tried by the start.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.checks import job_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.checks.context import Site
    from safelaunch.model import Job

ANY = ("0.0.0.0", "::", "")  # noqa: S104 - what servers call all interfaces
_LOCAL = ("localhost", "127.0.0.1", "::1", *ANY)
_URL = r"https?://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})(/.*)?"
_STATIC = 29500  # torchrun, accelerate, deepspeed: their common default
_GROUP = 51216  # trl and ms-swift: where trainer and server meet for the weights
_LIGHTRFT = 40000  # LightRFT: SGLang engines at 40000 + local rank
_MOST = 64


class Bound(NamedTuple):
    """A port that is bound on this machine. Without `must` the job may live without it.

    `cure` has `{free}` for another port.
    """

    port: int
    said: str
    cure: str
    must: bool = True
    source: str = ""


class Server(NamedTuple):
    """An address that the job connects to, and the option that says it."""

    host: str
    port: int
    said: str


class _Program(NamedTuple):
    """A program that binds a port: the option that says which, and the default."""

    option: str
    default: int
    must: bool = True
    source: str = ""


# by module, or by program with its subcommand
_PROGRAMS = {
    "torchrun": _Program("master_port", _STATIC),
    "torch.distributed.run": _Program("master_port", _STATIC),
    "torch.distributed.launch": _Program("master_port", _STATIC),
    "deepspeed": _Program("master_port", _STATIC),
    # two servers of one user share it (SO_REUSEPORT), and requests go to either
    "vllm serve": _Program("port", 8000, must=False, source="vllm entrypoints/openai/api_server"),
    "vllm.entrypoints.openai.api_server": _Program(
        "port", 8000, must=False, source="vllm entrypoints/openai/api_server"
    ),
    "trl vllm-serve": _Program("port", 8000, source="trl scripts/vllm_serve.py"),
    "trl.scripts.vllm_serve": _Program("port", 8000, source="trl scripts/vllm_serve.py"),
    "sglang.launch_server": _Program("port", 30000),
    # it takes the next free one, where no client looks for it
    "swift deploy": _Program("port", 8000, must=False, source="ms-swift DeployArguments"),
    "swift rollout": _Program("port", 8000, must=False, source="ms-swift DeployArguments"),
    "swift app": _Program("server_port", 7860, must=False),
    "swift web-ui": _Program("server_port", 7860, must=False),
    "ray start": _Program("port", 6379),
}


def bound(site: Site) -> list[Bound]:
    """Return the fixed ports that are bound on a machine."""
    found = [*_rendezvous(site), *_programs(site), *_trainers(site)]
    return list({one.port: one for one in reversed(found)}.values())


def _rendezvous(site: Site) -> Iterator[Bound]:
    """Yield the port of the ranks where the job fixes it; the first machine binds it."""
    job = site.case.job
    if site.rank != 0:
        return
    given = job_options.of_args(job.launcher_args)
    if job.launcher in ("torchrun", "accelerate"):
        yield from _of_launcher(job, given)
    port = job_options.number(_planned(site, "MASTER_PORT"))
    if port is not None and job.launcher in ("swift", "python", "command", "areal"):
        is_sure = job.launcher == "swift" and "NPROC_PER_NODE" in site.plan.env
        cure = "take MASTER_PORT out of `env`: a free port is chosen at each start"
        yield Bound(port, "`env: {MASTER_PORT: ...}`",
                    cure if is_sure else "env: {MASTER_PORT: {free}}", is_sure)  # fmt: skip


def _planned(site: Site, name: str) -> str | None:
    var = site.plan.env.get(name)
    return var.value if var is not None and isinstance(var.value, str) else None


def _of_launcher(job: Job, given: job_options.Options) -> Iterator[Bound]:
    if "standalone" in given:
        return  # torchrun takes any port then
    name = "main_process_port" if job.launcher == "accelerate" else "master_port"
    port = job_options.number(job_options.one(given, name))
    backend = job_options.one(given, "rdzv_backend") or "static"
    if port is not None and (backend == "static" or job.launcher == "accelerate"):
        cure = f"take `{name}` out of `launcher_args`: a free port is chosen at each start"
        yield Bound(port, f"`launcher_args: {{{name}: {port}}}`", cure)
    endpoint = job_options.one(given, "rdzv_endpoint")
    if endpoint and backend in ("static", "c10d"):
        host, _, text = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "29400")
        at = job_options.number(text)
        if at is not None:
            cure = f"launcher_args: {{rdzv_endpoint: '{host}:{{free}}'}}"
            # of several nodes, another one may be the host of the endpoint
            is_here = job.topology.nodes == 1
            yield Bound(at, f"`launcher_args: {{rdzv_endpoint: {endpoint}}}`", cure, is_here)
    alone = job.launcher == "accelerate" and job.topology.world_size == 1 and name not in given
    kinds = ("use_deepspeed", "use_fsdp", "use_megatron_lm")
    if alone and any(kind in given for kind in kinds):
        cure = "launcher_args: {main_process_port: {free}}"
        yield Bound(_STATIC, "accelerate's default port", cure)


def _programs(site: Site) -> Iterator[Bound]:
    """Yield the port of a server or launcher that the job starts by its name."""
    job = site.case.job
    name, words = program(job)
    known = _PROGRAMS.get(name)
    if known is None or (known.option == "master_port" and site.rank != 0):
        return
    given = {**job_options.of_words(words), **job_options.of_args(job.args)}
    if name == "ray start" and "head" not in given:
        return
    if known.option == "master_port" and (
        {"standalone", "rdzv_endpoint", "rdzv_backend"} & set(given)
    ):
        return
    text = job_options.one(given, known.option)
    port = known.default if text is None else job_options.number(text)
    if port is None:
        return
    shown = f"`{name}` binds it" + ("" if text else " by default")
    cure = f"give `{name}` another one: --{known.option.replace('_', '-')} {{free}}"
    if known.option == "master_port":
        cure = f"give `{name}` another one: --master_port {{free}}"
    yield Bound(port, shown, cure, known.must, known.source)
    if name == "ray start":
        at = job_options.number(job_options.one(given, "dashboard_port")) or 8265
        yield Bound(at, "the dashboard of Ray", "ray start --dashboard-port {free}", must=False)


def program(job: Job) -> tuple[str, Sequence[str]]:
    """Return what a job runs, as `_PROGRAMS` names it, and the words behind it."""
    if job.module is not None:
        return job.module, ()
    words = [*job.command, *(() if job.args.is_mapping else job.args.words)]
    if job.launcher == "swift" and words:
        return f"swift {words[0]}", words[1:]
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


def _trainers(site: Site) -> Iterator[Bound]:
    """Yield ports that trainers are known to bind beside the launcher's."""
    job = site.case.job
    given = job_options.options(job)
    if job_options.one(given, "engine_type") == "sglang" and "engine_tp_size" in given:
        for rank in range(min(job.topology.processes or 1, _MOST)):
            cure = "wait for the job that holds it, or `engine_type: vllm`"
            yield Bound(_LIGHTRFT + rank, f"LightRFT's SGLang engine of local rank {rank}", cure,
                        must=False, source="LightRFT strategy: 40000 + local rank")  # fmt: skip
    hosts = [server.host for server in servers(job) if server.said.startswith("vllm_server")]
    if hosts and site.rank == 0 and hosts[0] in _LOCAL:
        port = job_options.number(job_options.one(given, "vllm_server_group_port")) or _GROUP
        yield Bound(port, "the vLLM server meets the trainer there (`vllm_server_group_port`)",
                    "args: {vllm_server_group_port: {free}}", must=False,
                    source="ms-swift issue 8398")  # fmt: skip


def servers(job: Job) -> list[Server]:
    """Return the servers that the job's arguments name."""
    given = job_options.options(job)
    found = []
    mode = job_options.one(given, "vllm_mode")
    is_asked = "vllm_server_host" in given or "vllm_server_port" in given
    if (
        mode != "colocate"
        and "vllm_server_base_url" not in given
        and (mode == "server" or is_asked)
    ):
        hosts = given.get("vllm_server_host") or ("127.0.0.1",)
        ports = given.get("vllm_server_port") or ("8000",)
        for at, host in enumerate(hosts):
            port = job_options.number(ports[min(at, len(ports) - 1)])
            if port is not None:
                name = "127.0.0.1" if host in ANY else host
                found.append(Server(name, port, "vllm_server_port"))
    for name, values in given.items():
        for value in values:
            match = re.fullmatch(_URL, value)
            port = job_options.number(match[2]) if match is not None else None
            if match is not None and port is not None:
                host = match[1].strip("[]")
                found.append(Server("127.0.0.1" if host in ANY else host, port, name))
    return list(dict.fromkeys(found))


def is_local(host: str) -> bool:
    """Whether an address is this very machine by its name."""
    return host in _LOCAL or host.startswith("127.")
