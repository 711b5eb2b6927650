"""What command lines of the form `PROGRAM SUBCOMMAND ...` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers.common import is_single

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Job


def check(job: Job, names: Sequence[str]) -> str:
    """Return the subcommand of a job. Raises ConfigError unless it is one of the names."""
    word = job.command[0] if job.command else ""
    if word not in names:
        raise ConfigError(
            f"{job.launcher} has no subcommand `{word}`",
            where=job.origin("command"),
            hint=did_you_mean(word, names) or "known: " + ", ".join(names),
        )
    return word


def refuse_launcher_args(job: Job, hint: str = "use `args:`") -> None:
    """Refuse `launcher_args` of a program whose flags are all its own. Raises ConfigError."""
    if job.launcher_args.words:
        where = job.origin("launcher_args")
        raise ConfigError(f"{job.launcher} takes no `launcher_args`", where=where, hint=hint)


def ranks_per_node(job: Job) -> int | None:
    """Return the job's processes per node, each of which is a rank; None for one process."""
    single = launchers.load(job.launcher).SINGLE
    return None if is_single(single, job.command) else job.topology.processes


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: one process chooses among all."""
    return not is_single(launchers.load(job.launcher).SINGLE, job.command)
