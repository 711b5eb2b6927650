"""torchtune: `tune run [FLAGS OF TORCHRUN] RECIPE --config X key=value`.

With a flag it is torchrun, with the recipe as its program; with none the recipe is run in its own
process (torchtune 0.6.1, _cli/run.py). It takes all flags of torchrun, and makes it `--standalone`
unless `--rdzv_endpoint` says where the ranks meet: it reads no `--master_addr` and `--master_port`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, Rendezvous, common, torchrun
from safelaunch.launchers.flag_table import check_flags, flag_values
from safelaunch.launchers.frameworks.torchrun_variables import states_processes
from safelaunch.model import Word, join_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import EnvVar, Job

SUMMARY = "torchtune: command: [RECIPE]; with processes the recipe runs under torchrun"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("tune",)
MODULES = ("torchtune._cli.tune",)
READS = torchrun.READS
NODE_0 = "`--rdzv_endpoint ADDRESS:PORT`, in a job file under `launcher_args`"

# its parser takes all flags of torchrun's; whether the recipe is a module it decides itself
RUN_FLAGS = torchrun.FLAGS._replace(
    owned={flag: key for flag, key in torchrun.FLAGS.owned.items() if flag != "module"}
)
_COUNTS = ("nproc_per_node", "nnodes", "node_rank")


def _is_distributed(job: Job) -> bool:
    """Whether torchrun runs the recipe: a job without a count is one process."""
    return states_processes(job) or bool(job.launcher_args.words)


def command(launch: Launch) -> Command:
    """Return `python -m torchtune._cli.tune run ...` for one node. Raises ConfigError."""
    job = launch.job
    warnings = check_flags(job, RUN_FLAGS)
    if job.command[:1] == ("run",):
        raise ConfigError(
            "torchtune has no recipe `run`",
            where=job.origin("command"),
            hint="`command: [RECIPE]`, without `run`",
        )
    words: list[Word] = [job.interpreter.word, "-m", MODULES[0], "run"]
    program = (*job.command, *job.args.words)
    if not _is_distributed(job):
        return Command((*words, *program), program=len(words), single="main")
    words += _flags(launch)
    return Command((*words, *common.for_elastic(program)), program=len(words), warnings=warnings)


def _flags(launch: Launch) -> list[Word]:
    """Return the flags of torchrun for one node. Raises ConfigError."""
    job, topology = launch.job, launch.job.topology
    flags = flag_values(job.launcher_args, RUN_FLAGS)
    words: list[Word] = ["--nnodes", str(topology.nodes), "--nproc_per_node", topology.count()]
    if topology.nodes > 1:
        if "standalone" in flags:
            where = job.origin("launcher_args")
            raise ConfigError("`--standalone` is for one node", where=where, hint="leave it out")
        if flags.get("rdzv_backend", "static") == "static":
            words += ["--node_rank", launch.node]
        if "rdzv_endpoint" not in flags:
            endpoint = (common.master_addr(job), ":", common.master_port(job))
            words += ["--rdzv_endpoint", join_words("", endpoint)]
    return [*words, *job.launcher_args.words]


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `tune run ...`; None for other subcommands, and what is not understood."""
    if line.words[:1] != ("run",) or any(name.startswith("PET_") for name in line.env):
        return None
    split = _split(line.words[1:])
    if split is None:
        return None
    flags, program = split
    keys = {"command": program[:1], "args": program[1:]}
    job: dict[str, str | tuple[str, ...]] = {key: words for key, words in keys.items() if words}
    counts = _counts(flags)
    if counts is None:
        return None
    launcher_args = tuple(w for name, words in flags if name not in _COUNTS for w in words)
    return JobKeys({**job, **counts, **({"launcher_args": launcher_args} if launcher_args else {})})


def _split(
    words: tuple[str, ...],
) -> tuple[list[tuple[str, tuple[str, ...]]], tuple[str, ...]] | None:
    """Return the flags in front of a recipe, each with its words, and the recipe with its own."""
    flags, at = list[tuple[str, tuple[str, ...]]](), 0
    while at < len(words) and words[at].startswith("-"):
        name = RUN_FLAGS.name(words[at])
        count = 1 + (name in RUN_FLAGS.valued and "=" not in words[at])
        if name not in RUN_FLAGS.names or name == "help":
            return None
        flags.append((name, words[at : at + count]))
        at += count
    return (flags, words[at:]) if at < len(words) else None


def _counts(flags: list[tuple[str, tuple[str, ...]]]) -> dict[str, str] | None:
    """Return the counts that flags say: those of torchrun's, where it is started at all.

    None where they mean more, as `--nproc_per_node gpu`. Of several nodes the line must say where
    they meet.
    """
    if not flags:
        return {}
    values = {name: words[-1].rpartition("=")[2] for name, words in flags}
    count = common.process_number(values.get("nproc_per_node", "1"))
    number = common.process_number(values.get("nnodes", "1"))
    if count is None or number is None:
        return None
    job = {"processes": count}
    if number == "1":
        return job
    rank, backend = values.get("node_rank"), values.get("rdzv_backend", "static")
    if "rdzv_endpoint" not in values:
        return None
    if backend != "static":
        return {**job, "nodes": number}
    is_rank = (rank or "").isdecimal() and int(rank or "") < int(number)
    return {**job, "nodes": number, "node_rank": rank or ""} if is_rank else None


numbers_nodes = torchrun.numbers_nodes


def rendezvous(job: Job, env: Mapping[str, EnvVar]) -> Rendezvous:
    """Return the port and the address that `--rdzv_endpoint` fixes: else it takes any port."""
    flags = flag_values(job.launcher_args, RUN_FLAGS)
    return torchrun.rendezvous(job, env) if "rdzv_endpoint" in flags else Rendezvous()


def ranks_per_node(job: Job) -> int | None:
    """Return the ranks of torchrun, or the one process of a recipe for a single device."""
    return job.topology.processes if _is_distributed(job) else 1


binds_gpus = _is_distributed


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `tune run RECIPE`, and the words after it."""
    return common.program_of_words(("tune", "run", *job.command))


def imports(_job: Job) -> dict[str, str]:
    """Return torchtune, and torchao, without which it cannot be imported."""
    return {name: name for name in ("torchtune", "torchao", "torch")}
