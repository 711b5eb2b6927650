"""Checks `launcher_args` against the flags that a launcher is known to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import Args, Job, PlanWarning

if TYPE_CHECKING:
    from collections.abc import Mapping


class FlagTable(NamedTuple):
    """A launcher's flags in the underscore spelling, without dashes; `short` maps -m to module."""

    valued: frozenset[str]
    switches: frozenset[str]
    owned: Mapping[str, str]  # flag -> the job key that says it
    short: Mapping[str, str]

    @property
    def known(self) -> frozenset[str]:
        """All long flags."""
        return self.valued | self.switches

    def name(self, word: str) -> str:
        """Return the long name of a flag as typed (`--nproc-per-node=4`, `-m`)."""
        flag = word.split("=", 1)[0]
        if not flag.startswith("--"):
            return self.short.get(flag, flag.lstrip("-"))
        return flag[2:].replace("-", "_")


def flag_names(args: Args, table: FlagTable) -> list[str]:
    """Return the long names of all flags among the arguments, in order."""
    if args.is_mapping:
        return [key.replace("-", "_") for key, _ in args.options]
    return [table.name(word) for word in args.words if word.startswith("-")]


def check_flags(job: Job, table: FlagTable) -> tuple[PlanWarning, ...]:
    """Refuse flags that a job key says, and near misses; warn about flags nobody knows."""
    import difflib  # noqa: PLC0415 - only jobs with launcher_args pay for it

    where = job.origin("launcher_args")
    warnings = []
    for name in flag_names(job.launcher_args, table):
        if name in table.owned:
            raise ConfigError(
                f"`--{name}` is said by the job itself",
                where=where,
                hint=f"use {table.owned[name]}",
            )
        if name in table.known:
            continue
        near = difflib.get_close_matches(name, table.known, n=1, cutoff=0.8)
        prefixed = sorted(known for known in table.known if known.startswith(name))
        if near or len(prefixed) == 1:
            raise ConfigError(
                f"{job.launcher} has no flag `--{name}`",
                where=where,
                hint=f"did you mean `--{(near or prefixed)[0]}`?",
            )
        warnings.append(
            PlanWarning(
                "unknown-launcher-flag",
                f"{job.launcher} is not known to take `--{name}`",
                str(where),
            )
        )
    return tuple(warnings)
