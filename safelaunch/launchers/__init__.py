"""Launchers turn a resolved job into the argv of each node. One module each, imported when used.

A launcher module answers the questions of `Launcher`; what it leaves out has a default in
common.py. No other folder knows a launcher by its name: a new one is one module here and its line
in NAMES.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from safelaunch.model import Slot, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.launchers.flag_table import FlagTable
    from safelaunch.model import Args, DirectStart, EnvVar, Job, PlanWarning, Word

# launcher -> its module in this package
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "accelerate": "accelerate",
        "torchrun": "torchrun",
        "deepspeed": "deepspeed",
        "composer": "composer",
        "fabric": "fabric",
        "srun": "mpi.srun",
        "mpirun": "mpi.mpirun",
        "mpiexec": "mpi.mpiexec",
        "horovodrun": "mpi.horovodrun",
        "python": "python",
        "swift": "frameworks.swift",
        "megatron": "frameworks.megatron",
        "llamafactory": "frameworks.llamafactory",
        "trl": "frameworks.trl",
        "axolotl": "frameworks.axolotl",
        "torchtune": "frameworks.torchtune",
        "xtuner": "frameworks.xtuner",
        "areal": "frameworks.areal",
        "ray": "frameworks.ray",
        "command": "command",
    }
)


class Launch(NamedTuple):
    """The start of a job on one node, for which a launcher returns the command."""

    job: Job
    accelerator: str
    node_rank: int
    serves_all: bool = False  # the script of this node is that of all others too

    @property
    def node(self) -> Word:
        """The number of the node, as a word."""
        return text(Slot.NODE_RANK) if self.serves_all else str(self.node_rank)


class Command(NamedTuple):
    """The command of a node. The job may override `env`, and `required` only by force.

    `program` is the index of the job's own words, after those of the launcher. `single` is set for
    a program that runs as one process without RANK. "main": the launcher's own process is the
    program; "child": its first Python child; "shell": its own process, or the Python that a shell
    starts. "mpi": there are ranks whose number has another name (OMPI_COMM_WORLD_RANK,
    SLURM_PROCID). None: there are ranks, or it is unknown. `has_workers`: it divides the cores
    itself, among workers that it starts; vLLM and Ray do where OMP_NUM_THREADS is unset.
    `ray_cluster`: how many words behind the job's prefix bring up a Ray before the program.
    """

    argv: tuple[Word, ...]
    program: int = 1
    env: tuple[EnvVar, ...] = ()
    required: tuple[EnvVar, ...] = ()
    files: tuple[tuple[str, Word], ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    single: str | None = None
    has_workers: bool = False
    ray_cluster: int = 0


class FixedPort(NamedTuple):
    """A port that the job itself fixes, and binds on its first machine.

    `setting` names the setting that fixes it, for messages; in `remedy`, `{free}` stands for a free
    port. A job may also work without a port that is not `required`.
    """

    port: int
    setting: str
    remedy: str
    required: bool = True
    source: str = ""


class Rendezvous(NamedTuple):
    """Ports and addresses of the rendezvous that a job itself fixes: (host, setting)."""

    ports: tuple[FixedPort, ...] = ()
    addresses: tuple[tuple[str, str], ...] = ()


class Cluster(NamedTuple):
    """Options of a program that itself starts on all machines, from the first one."""

    node_options: tuple[str, ...]  # options of the program that count the machines
    shared_folders: tuple[str, ...]  # options that name a folder which all machines must share
    uses_ray: bool


class CommandLine(NamedTuple):
    """A pasted line: the words after the program's name, and the variables before it.

    A variable whose value is None is removed. `module` is that of `python -m MODULE`. `settings`
    returns the scalars of a YAML file that the line names, for None those of accelerate's own file
    of the user; nothing where it cannot be read.
    """

    words: tuple[str, ...]
    env: Mapping[str, str | None]
    module: str | None = None
    settings: Callable[[str | None], Mapping[str, str]] = lambda _: {}


class JobKeys(NamedTuple):
    """The keys of the job that a line means, and the variables that they replace.

    `program` are the last words of a line that starts another one, which gives keys of its own;
    `is_opaque` is set where that one stays a command, as its files are not those of this machine.
    """

    keys: Mapping[str, str | tuple[str, ...]]
    variables: frozenset[str] = frozenset()
    program: tuple[str, ...] = ()
    is_opaque: bool = False


class Launcher(Protocol):
    """The questions that a launcher module answers about itself."""

    SUMMARY: str
    TARGETS: tuple[str, ...]  # which of script, module, command it runs
    VERSIONS: tuple[str, ...]  # values of `version:`, where its command line differs by version
    STARTS_RANKS: bool  # it sets RANK, WORLD_SIZE ... for processes that it starts
    COUNT_REQUIRED: bool  # the job must state `processes:` or `gpus:`, but for SINGLE
    SINGLE: tuple[str, ...]  # its subcommands that are one process, and need no count
    RUNS_PYTHON: bool  # the job's interpreter runs it; else `command:` begins with a program
    PLACES_RANKS: bool  # the ranks may be on machines that it chooses: none counts as one of here
    SETS_THREADS: bool  # OMP_NUM_THREADS becomes each rank's share of the cores
    PROGRAMS: tuple[str, ...]  # its names in a shell: `torchrun`, `accelerate launch`
    MODULES: tuple[str, ...]  # its names after `python -m`; FLAGS are those of the first
    CONSOLE_MODULES: dict[str, str]  # module -> the program that `python -m` of it is
    FLAGS: FlagTable | None  # of `PROGRAM [FLAGS] SCRIPT`; None: `job_keys` reads a pasted line
    MODULE_FLAGS: dict[str, FlagTable]  # of modules whose flags differ, in a pasted line
    READS: tuple[str, ...]  # variables, also `PREFIX_*`, that stand for its flags
    NODE_0: str  # how a node that is started by hand is told where node 0 is, as a hint
    MACHINE_LIST: str  # the flag without which it knows of no other machine; empty: it asks none
    TIMEOUT: str  # how the timeout of its collectives is set, as a hint
    HUB_SWITCH: str | None  # variable that must be 1 for models to come from Hugging Face's hub
    CLUSTER: Cluster | None  # None: it stays on its machine

    def command(self, launch: Launch, /) -> Command:
        """Return what a node runs. Raises ConfigError where the job does not fit."""

    def direct_start(self, launch: Launch, /) -> DirectStart | str:
        """Return how a node's ranks are started without the launcher, or why they are not."""

    def job_keys(self, line: CommandLine, /) -> JobKeys | None:
        """Return the job that a pasted line means; None: it becomes `launcher: command`."""

    def program(self, job: Job, /) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the words by which rules know the program, and the words that follow them."""

    def imports(self, job: Job, /) -> dict[str, str]:
        """Return {module: its package} of what the launcher itself imports to start this job."""

    def ranks_per_node(self, job: Job, /) -> int | None:
        """Return how many ranks each node gets; None where that is not known."""

    def binds_gpus(self, job: Job, /) -> bool:
        """Whether each rank takes the GPU of its local rank."""

    def numbers_nodes(self, launcher_args: Args, /) -> bool:
        """Whether its nodes number themselves in a rendezvous that these flags name."""

    def rank_options(self, job: Job, /) -> dict[str, str]:
        """Return {option that each rank's program gets beside its own: how to do without}."""

    def environment(self, job: Job, /) -> tuple[str, ...]:
        """Return names and `PREFIX_*` of the caller's variables that only this launcher may see."""

    def topology_options(self, job: Job, /) -> dict[str, tuple[str, str]]:
        """Return {option: (value, job key)} of what the launcher adds to the program's options."""

    def rendezvous(self, job: Job, env: Mapping[str, EnvVar], /) -> Rendezvous:
        """Return what the job fixes of the rendezvous; `env` is the environment of the plan."""


@cache
def load(name: str) -> Launcher:
    """Return the answers of a launcher module, and the defaults of common.py for all others."""
    modules = (
        importlib.import_module(f"safelaunch.launchers.{n}") for n in ("common", NAMES[name])
    )
    defaults, answers = map(vars, modules)
    return cast("Launcher", SimpleNamespace(**defaults | answers))


@cache
def programs() -> dict[str, str]:
    """Return {what a shell line begins with: launcher} of all launchers."""
    return {program: name for name in NAMES for program in load(name).PROGRAMS}


def find_program(words: Sequence[str]) -> str | None:
    """Return the key of `programs` whose first word is that of a shell line."""
    first = words[0].rpartition("/")[2]
    return next((program for program in programs() if program.split()[0] == first), None)


def find_console_module(module: str) -> str | None:
    """Return the program that `python -m MODULE` is, with the same words behind it."""
    return next(
        (own[module] for name in NAMES if module in (own := load(name).CONSOLE_MODULES)), None
    )


def find_module(module: str) -> str | None:
    """Return the launcher that `python -m MODULE` starts."""
    names = ((own, name) for name in NAMES for own in load(name).MODULES)
    return next((name for own, name in names if f"{module}.".startswith(f"{own}.")), None)
