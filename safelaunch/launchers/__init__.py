"""Launchers turn a resolved job into the argv of each node. One module each, imported when used.

A launcher module answers every question of `Launcher`: no other folder knows a launcher by its
name. A new launcher is one module here and its name in NAMES.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from safelaunch.model import EnvVar, Job, Origin, PlanWarning, Word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.launchers.flag_table import FlagTable

NAMES = ("accelerate", "torchrun", "python", "swift", "areal", "command")


class Launch(NamedTuple):
    """What a launcher is asked to start: this job, on this node, with this accelerator."""

    job: Job
    accelerator: str
    node_rank: int


class Command(NamedTuple):
    """What a node runs. `env` may be overridden by the job, `required` only by force.

    `program` is where the job's own words begin, behind those of the launcher. `single` says where
    the program runs as one process without RANK: "main", the launcher's own process is the program;
    "child", its first Python child is; "shell", as "main", or what a shell runs as Python; None,
    there are ranks, or nobody can tell.
    """

    argv: tuple[Word, ...]
    program: int = 1
    env: tuple[EnvVar, ...] = ()
    required: tuple[EnvVar, ...] = ()
    files: tuple[tuple[str, Word], ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    single: str | None = None


class FixedPort(NamedTuple):
    """A port that the job binds on its first machine, where the start does not choose it.

    `setting` names what fixes the port, for messages; in `remedy`, `{free}` stands for a free port.
    A job may get on without a port that is not `required`.
    """

    port: int
    setting: str
    remedy: str
    required: bool = True
    source: str = ""


class Rendezvous(NamedTuple):
    """What a job itself fixes of where its ranks meet; `addresses` are (host, setting)."""

    ports: tuple[FixedPort, ...] = ()
    addresses: tuple[tuple[str, str], ...] = ()


class Cluster(NamedTuple):
    """How a program spreads over machines by itself, from one start on the first of them."""

    node_options: tuple[str, ...]  # options of the program that count the machines
    shared_folders: tuple[str, ...]  # options that name a folder which all machines must share
    uses_ray: bool


class Launcher(Protocol):
    """The questions that a launcher module answers about itself."""

    SUMMARY: str
    TARGETS: tuple[str, ...]  # which of script, module, command it runs
    VERSIONS: tuple[str, ...]  # values of `version:`, where its command line differs by version
    STARTS_RANKS: bool  # it sets RANK, WORLD_SIZE ... for processes that it starts
    COUNT_REQUIRED: bool  # the job must state `processes:` or `gpus:`
    RUNS_PYTHON: bool  # the job's interpreter runs it; else `command:` begins with a program
    SETS_THREADS: bool  # OMP_NUM_THREADS becomes each process's share of the cores
    PROGRAMS: tuple[str, ...]  # its names in a shell: `torchrun`, `accelerate launch`
    MODULES: tuple[str, ...]  # its names behind `python -m`; FLAGS are those of the first
    FLAGS: FlagTable | None  # None: a pasted line of it becomes `launcher: command`
    TIMEOUT: str  # how the timeout of its collectives is set, as a hint
    HUB_SWITCH: str | None  # variable that must be 1 for models to come from Hugging Face's hub
    CLUSTER: Cluster | None  # None: it stays on its machine

    def command(self, launch: Launch, /) -> Command:
        """Return what a node runs. Raises ConfigError where the job does not fit."""

    def program(self, job: Job, /) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the words by which rules know the program, and the words that follow them."""

    def imports(self, job: Job, /) -> dict[str, str]:
        """Return {module: its package} of what the launcher itself imports to start this job."""

    def ranks_per_node(self, job: Job, /) -> int | None:
        """Return how many ranks each node gets; None where that is not known."""

    def binds_gpus(self, job: Job, /) -> bool:
        """Whether each rank takes the GPU of its local rank."""

    def topology_options(self, job: Job, /) -> dict[str, tuple[str, str]]:
        """Return {option: (value, job key)} of what the launcher adds to the program's options."""

    def rendezvous(self, job: Job, env: Mapping[str, EnvVar], /) -> Rendezvous:
        """Return what the job fixes of the rendezvous; `env` is the environment of the plan."""


def load(name: str) -> Launcher:
    """Return the launcher module of that name."""
    return cast("Launcher", importlib.import_module(f"safelaunch.launchers.{name}"))


@cache
def programs() -> dict[str, str]:
    """Return {what a shell line begins with: launcher} of all launchers."""
    return {program: name for name in NAMES for program in load(name).PROGRAMS}


def find_program(words: Sequence[str]) -> str | None:
    """Return the key of `programs` whose first word a shell line begins with."""
    first = words[0].rpartition("/")[2]
    return next((program for program in programs() if program.split()[0] == first), None)


def find_module(module: str) -> str | None:
    """Return the launcher that `python -m MODULE` starts."""
    for name in NAMES:
        if any(module == own or module.startswith(own + ".") for own in load(name).MODULES):
            return name
    return None


def from_launcher(name: str) -> Origin:
    """Where a launcher's own values come from."""
    return Origin(f"launcher {name}")
