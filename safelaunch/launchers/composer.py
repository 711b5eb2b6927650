"""MosaicML Composer's launcher, `composer -n 8 train.py`.

It expands `$NAME` and a leading `~` in the program's arguments, for each rank. What ranks other
than the first of a node print goes to files: by default temporary ones, which it shows for ranks
that fail (composer/cli/launcher.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch, Rendezvous, common
from safelaunch.launchers.flag_table import PASTED_LINE, FlagTable, check_flags, flag_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import EnvVar, Job, Word

SUMMARY = "MosaicML Composer: one process per GPU, output of the first rank"
TARGETS = ("script", "module")
STARTS_RANKS = True
COUNT_REQUIRED = True
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("composer",)
MODULES = ("composer.cli", "composer.cli.launcher")
NODE_0 = "--master_addr ADDRESS --master_port PORT, in a job file under `launcher_args`"
TIMEOUT = "`dist_timeout` (seconds) of Composer's Trainer"

# variables that stand for flags which a line leaves out (composer/cli/launcher.py, _parse_args)
_DEFAULTS = {
    "LOCAL_WORLD_SIZE": "nproc",
    "WORLD_SIZE": "world_size",
    "BASE_RANK": "base_rank",
    "NODE_RANK": "node_rank",
    "MASTER_ADDR": "master_addr",
    "MASTER_PORT": "master_port",
}
READS = tuple(_DEFAULTS)


def _count_processes(values: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, str]:
    """Return the counts of a pasted line: composer counts the processes of all nodes."""
    counts = {**values}
    total, node = counts.pop("nodes", None), counts.pop("node_rank", None)
    if "processes" not in counts and "gpus" not in counts:
        counts["gpus"] = "auto"
    if total is None or total == counts.get("processes"):
        return counts
    processes = counts.get("processes", "")
    are_numbers = processes.isdecimal() and total.isdecimal() and int(processes) > 0
    if not are_numbers or int(total) % int(processes):
        raise ConfigError(
            f"--world_size {total} is no multiple of --nproc {processes or 'of each node'}",
            where=PASTED_LINE,
            hint="--nproc counts the processes of a node, --world_size those of all nodes",
        )
    base = flags.get("base_rank", "")
    if node is None and base.isdecimal():
        node = str(int(base) // int(processes))
    numbers = {} if node is None else {"node_rank": node}
    return {**counts, "nodes": str(int(total) // int(processes)), **numbers}


# The parser of composer 0.32.1.
FLAGS = FlagTable(
    valued=frozenset((
        "nproc", "stdout", "stderr", "world_size", "base_rank", "node_rank", "master_addr",
        "master_port",
    )),
    switches=frozenset(("help", "version", "verbose", "module_mode", "command_mode")),
    owned={
        "nproc": "`processes:`",
        "world_size": "`nodes:`",
        "node_rank": "`node_rank:` or `hosts:`",
        "base_rank": "`node_rank:` or `hosts:`",
        "module_mode": "`module:`",
    },
    short={"-n": "nproc", "-v": "verbose", "-m": "module_mode", "-c": "command_mode"},
    keys={"nproc": "processes", "world_size": "nodes", "node_rank": "node_rank"},
    implied=frozenset({"base_rank"}),
    one_node=frozenset({"master_addr"}),
    defaults=_DEFAULTS,
    count_processes=_count_processes,
    parser="",  # importing it takes all of Composer: compared with a recording
    module="module_mode",
    no_python="command_mode",
    abbreviates=True,
)  # fmt: skip

MODULE_FLAGS = {MODULES[1]: FLAGS}

binds_gpus = common.each_rank_its_gpu
ranks_per_node = common.planned_ranks


def command(launch: Launch) -> Command:
    """Return `python -m composer.cli ...` for one node. Raises ConfigError."""
    job, topology = launch.job, launch.job.topology
    warnings = check_flags(job, FLAGS)
    flags = flag_values(job.launcher_args, FLAGS)
    if topology.nodes > 1 and topology.processes is None:
        where = job.origin("gpus")
        raise ConfigError("`gpus: auto` on several nodes", where=where, hint="give `processes:`")
    words: list[Word] = [job.interpreter.word, "-m", MODULES[0], "--nproc", topology.count()]
    if topology.nodes > 1:
        words += ["--world_size", topology.count(topology.nodes)]
        words += ["--node_rank", launch.node]
    if "master_addr" not in flags:
        words += ["--master_addr", common.master_addr(job)]
    if "master_port" not in flags:
        words += ["--master_port", common.master_port(job)]
    words += job.launcher_args.words
    program = (*common.module_or_script(job, "--module_mode"), *job.args.words)
    return Command((*words, *program), program=len(words), warnings=warnings)


def imports(_job: Job) -> dict[str, str]:
    """Return Composer and torch."""
    return {"composer": "mosaicml", "torch": "torch"}


def rendezvous(job: Job, _env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port and the address that flags fix."""
    flags = flag_values(job.launcher_args, FLAGS)
    port = common.port_number(flags.get("master_port"))
    if port is None and job.starts_one_node:
        port = common.DEFAULT_PORT
    host = flags.get("master_addr")
    return Rendezvous(
        (common.flag_port("master_port", port),) if port is not None else (),
        ((host, "launcher_args: master_addr"),) if host else (),
    )
