"""PyTorch's torchrun, as `python -m torch.distributed.run` with a static rendezvous.

`version: launch` is torch.distributed.launch, which torchrun has replaced: the same flags, and each
rank of the program gets `--local-rank=N` (torch/distributed/launch.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, FixedPort, Launch, Rendezvous, common, direct
from safelaunch.launchers.common import (
    for_elastic,
    master_addr,
    master_port,
    module_or_script,
    port_number,
)
from safelaunch.launchers.flag_table import FlagTable, check_flags, flag_values

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from safelaunch.model import Args, DirectStart, EnvVar, Job, Word

SUMMARY = "torchrun: one process per GPU, static rendezvous on a free port"
TARGETS = ("script", "module")
VERSIONS = ("run", "launch")
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("torchrun",)
_RUN, _LAUNCH = MODULES = ("torch.distributed.run", "torch.distributed.launch")
READS = ("PET_*",)
NODE_0 = "--master_addr ADDRESS --master_port PORT, in a job file under `launcher_args`"
TIMEOUT = "`init_process_group(timeout=...)`, or `--ddp_timeout` (seconds) of the HF Trainer"

# The parser of torch 2.13.
_VALUED = frozenset((
    "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf",
    "max_restarts", "monitor_interval", "start_method", "event_log_handler", "role", "log_dir",
    "redirects", "tee", "local_ranks_filter", "duplicate_stdout_filters",
    "duplicate_stderr_filters", "node_rank", "master_addr", "master_port", "local_addr",
    "logs_specs", "numa_binding", "signals_to_handle", "shutdown_timeout",
))  # fmt: skip
_SWITCHES = frozenset(
    ("help", "standalone", "module", "no_python", "run_path", "virtual_local_rank")
)


def _count_processes(values: Mapping[str, str], _flags: Collection[str]) -> dict[str, str]:
    """Return the counts of a pasted line: torchrun starts one process by default."""
    return {**values} if "gpus" in values else {"processes": "1", **values}


FLAGS = FlagTable(
    valued=_VALUED,
    switches=_SWITCHES,
    owned={
        "nnodes": "`nodes:`",
        "nproc_per_node": "`processes:`",
        "node_rank": "`node_rank:` or `hosts:`",
        "module": "`module:`",
    },
    short={"-m": "module", "-t": "tee", "-r": "redirects"},
    keys={"nproc_per_node": "processes", "nnodes": "nodes", "node_rank": "node_rank"},
    implied=frozenset(),
    one_node=frozenset({"master_addr", "standalone"}),
    variables="PET_",
    count_processes=_count_processes,
    parser="torch.distributed.run:get_args_parser",
    no_python="no_python",
    abbreviates=True,
)


def _count_launch(values: Mapping[str, str], flags: Collection[str]) -> dict[str, str]:
    """Return what a pasted line of torch.distributed.launch means."""
    keys = _count_processes(values, flags)
    return keys if "use_env" in flags else {"version": "launch", **keys}


# with --use_env it passes no --local-rank, and is torchrun
MODULE_FLAGS = {
    _LAUNCH: FLAGS._replace(
        switches=_SWITCHES | {"use_env"},
        implied=FLAGS.implied | {"use_env"},
        count_processes=_count_launch,
    )
}

binds_gpus = common.each_rank_its_gpu
ranks_per_node = common.planned_ranks


def command(launch: Launch) -> Command:
    """Return `python -m torch.distributed.run ...` for one node. Raises ConfigError."""
    job, topology = launch.job, launch.job.topology
    warnings = check_flags(job, FLAGS)
    flags = flag_values(job.launcher_args, FLAGS)
    if job.version not in (None, *VERSIONS):
        raise ConfigError(
            f"torchrun has no version `{job.version}`",
            where=job.origin("version"),
            hint="`version: launch` is torch.distributed.launch; leave it out for torchrun",
        )
    module = _LAUNCH if job.version == "launch" else _RUN
    words: list[Word] = [job.interpreter.word, "-m", module]
    words += ["--nnodes", str(topology.nodes)]
    words += ["--nproc_per_node", topology.count()]
    if "standalone" in flags and topology.nodes > 1:
        raise ConfigError(
            "`--standalone` is for one node", where=job.origin("launcher_args"), hint="leave it out"
        )
    if flags.get("rdzv_backend", "static") == "static" and "standalone" not in flags:
        words += ["--node_rank", launch.node]
        if not flags.keys() & {"master_addr", "rdzv_endpoint"}:
            words += ["--master_addr", master_addr(job)]
        if not flags.keys() & {"master_port", "rdzv_endpoint"}:
            words += ["--master_port", master_port(job)]
    words += job.launcher_args.words
    program = for_elastic((*module_or_script(job, "--module"), *job.args.words))
    return Command(argv=(*words, *program), program=len(words), warnings=warnings)


def direct_start(launch: Launch) -> DirectStart | str:
    """Return how the ranks of a node are started without torchrun, or why they are not."""
    job, flags = launch.job, flag_values(launch.job.launcher_args, FLAGS)
    own = {*direct.RENDEZVOUS_FLAGS, "role", "no_python"}
    meeting = direct.reason(job, FLAGS, flags, own) or direct.rendezvous(job, flags)
    if isinstance(meeting, str):
        return meeting
    return direct.start(
        launch,
        meeting,
        flags=flags,
        # torchrun draws one where there is none
        run_id="" if "standalone" in flags else flags.get("rdzv_id", "none"),
        options=("--local-rank",) if job.version == "launch" else (),
    )


def imports(_job: Job) -> dict[str, str]:
    """Return torch: torchrun is a module of it."""
    return {"torch": "torch"}


def numbers_nodes(launcher_args: Args) -> bool:
    """Whether the nodes number themselves: in any rendezvous but the static one."""
    return flag_values(launcher_args, FLAGS).get("rdzv_backend", "static") != "static"


def rendezvous(job: Job, _env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port and the address that flags fix; torchrun sets MASTER_* for its ranks."""
    flags = flag_values(job.launcher_args, FLAGS)
    endpoint, backend = flags.get("rdzv_endpoint", ""), flags.get("rdzv_backend", "static")
    hosts = {
        "master_addr": flags.get("master_addr"),
        "rdzv_endpoint": endpoint.rpartition(":")[0] or endpoint,
    }
    addresses = ((host, f"launcher_args: {flag}") for flag, host in hosts.items() if host)
    ports = []
    port = port_number(flags.get("master_port"))
    if port is None and job.starts_one_node and not endpoint:
        port = common.DEFAULT_PORT
    if port is not None and backend == "static":
        ports.append(common.flag_port("master_port", port))
    host, _, digits = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "29400")
    port = port_number(digits) if endpoint and backend in ("static", "c10d") else None
    if port is not None:
        setting = f"`launcher_args: {{rdzv_endpoint: {endpoint}}}`"
        remedy = f"launcher_args: {{rdzv_endpoint: '{host}:{{free}}'}}"
        # of several nodes, another one may be the host of the endpoint
        ports.append(FixedPort(port, setting, remedy, required=job.topology.nodes == 1))
    if "standalone" in flags:  # it takes any port
        ports = []
    return Rendezvous(tuple(ports), tuple(addresses))
