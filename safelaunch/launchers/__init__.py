"""Launchers turn a resolved job into the argv of each node. One module each, loaded when named.

A launcher module states SUMMARY, TARGETS (which of script, module, command it runs), RANKS (whether
it starts ranks of its own), COUNT_REQUIRED, VERSIONS, and `command(launch) -> Command`.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple, Protocol, cast

from safelaunch.model import EnvVar, Job, Origin, PlanWarning, Word

NAMES = ("accelerate", "torchrun", "python", "swift", "areal", "command")


class Launch(NamedTuple):
    """What a launcher is asked: this job, on this node, with this accelerator."""

    job: Job
    accelerator: str
    node_rank: int


class Command(NamedTuple):
    """What a launcher answers. `env` may be overridden by the job, `required` only by force.

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


class Launcher(Protocol):
    """The shape of a launcher module."""

    SUMMARY: str
    TARGETS: tuple[str, ...]
    RANKS: bool
    COUNT_REQUIRED: bool
    VERSIONS: tuple[str, ...]

    def command(self, launch: Launch, /) -> Command:
        """Return what a node runs. Raises ConfigError where the job does not fit."""


def load(name: str) -> Launcher:
    """Return the launcher module of that name."""
    return cast("Launcher", importlib.import_module(f"safelaunch.launchers.{name}"))


def from_launcher(name: str) -> Origin:
    """Where a launcher's own values come from."""
    return Origin(f"launcher {name}")
