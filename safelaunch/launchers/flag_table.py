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
    return [name for name, _ in _grouped(args.words, table)]


def _grouped(words: tuple[str, ...], table: FlagTable) -> list[tuple[str, list[str]]]:
    """Return each flag with the words after it that are its values."""
    flags: list[tuple[str, list[str]]] = []
    for word in words:
        awaited = bool(flags) and flags[-1][0] in table.valued and not flags[-1][1]
        if not awaited and (word.startswith("-") or not flags):
            name, equals, value = word.partition("=")
            flags.append((table.name(name), [value] if equals else []))
        else:
            flags[-1][1].append(word)
    return flags


def check_flags(job: Job, table: FlagTable) -> tuple[PlanWarning, ...]:
    """Refuse flags that a job key says, and near misses; warn about flags nobody knows."""
    import difflib  # noqa: PLC0415 - only jobs with launcher_args pay for it

    where = job.origin("launcher_args")
    words = job.launcher_args.words
    if words and not words[0].startswith("-"):
        raise ConfigError(f"`{words[0]}` is no flag of {job.launcher}", where=where)
    warnings = []
    for name, values in _grouped(words, table):
        if name in table.owned:
            raise ConfigError(
                f"`--{name}` is said by the job itself",
                where=where,
                hint=f"use {table.owned[name]}",
            )
        if name in table.known:
            _check_values(job, name, values, table)
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


def _check_values(job: Job, name: str, values: list[str], table: FlagTable) -> None:
    """Refuse a word too many or too few: the launcher would take it for the program."""
    wanted = 1 if name in table.valued else 0
    if len(values) == wanted:
        return
    if wanted:
        what, hint = f"`--{name}` of {job.launcher} takes one value", None
    else:
        what, hint = f"`--{name}` of {job.launcher} takes no value", f"{name}: true"
    got = " ".join(values) or "none"
    raise ConfigError(f"{what}, got {got}", where=job.origin("launcher_args"), hint=hint)
