"""PyTorch's torchrun, as `python -m torch.distributed.run` with a static rendezvous."""

from __future__ import annotations

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch
from safelaunch.launchers.common import for_elastic, master_addr, module_or_script
from safelaunch.launchers.flag_table import FlagTable, check_flags, flag_names
from safelaunch.model import Slot, Word, text

SUMMARY = "torchrun: one process per GPU, static rendezvous on a free port"
TARGETS = ("script", "module")
RANKS = True
COUNT_REQUIRED = True
VERSIONS: tuple[str, ...] = ()

# The parser of torch 2.13 (torch.distributed.run.get_args_parser); a contract test compares these
# tables with the installed one. nnodes, nproc_per_node and node_rank are said by the job.
_VALUED = [
    "nnodes",
    "nproc_per_node",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "max_restarts",
    "monitor_interval",
    "start_method",
    "event_log_handler",
    "role",
    "log_dir",
    "redirects",
    "tee",
    "local_ranks_filter",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
    "node_rank",
    "master_addr",
    "master_port",
    "local_addr",
    "logs_specs",
    "numa_binding",
    "signals_to_handle",
    "shutdown_timeout",
]
_SWITCHES = ["help", "standalone", "module", "no_python", "run_path", "virtual_local_rank"]
_OWNED = {
    "nnodes": "`nodes:`",
    "nproc_per_node": "`processes:`",
    "node_rank": "`hosts:`",
    "module": "`module:`",
}
TABLE = FlagTable(
    frozenset(_VALUED),
    frozenset(_SWITCHES),
    _OWNED,
    {"-m": "module", "-t": "tee", "-r": "redirects"},
)


def command(launch: Launch) -> Command:
    """Return `python -m torch.distributed.run ...` for one node."""
    job, topology = launch.job, launch.job.topology
    warnings = check_flags(job, TABLE)
    given = set(flag_names(job.launcher_args, TABLE))
    words: list[Word] = [job.interpreter.word, "-m", "torch.distributed.run"]
    words += ["--nnodes", str(topology.nodes)]
    words += ["--nproc_per_node", topology.count()]
    if "standalone" in given and topology.nodes > 1:
        raise ConfigError(
            "`--standalone` is for one node", where=job.origin("launcher_args"), hint="leave it out"
        )
    if not given & {"rdzv_backend", "standalone"}:  # static, torch's default
        words += ["--node_rank", str(launch.node_rank)]
        if not given & {"master_addr", "rdzv_endpoint"}:
            words += ["--master_addr", master_addr(job)]
        if not given & {"master_port", "rdzv_endpoint"}:
            words += ["--master_port", text(Slot.PORT)]
    words += job.launcher_args.words
    program = for_elastic((*module_or_script(job, "--module"), *job.args.words))
    return Command(argv=(*words, *program), program=len(words), warnings=warnings)
