"""A launcher's flags: what `launcher_args` may hold, and what a pasted line's flags become."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import Args, Job, Origin, PlanWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


PASTED_LINE = Origin("command line")

# ({job key: value} of a pasted line, its flags that stay launcher_args) -> {job key: value}, with
# the launcher's way of counting processes turned into `processes:` per node
CountProcesses = Callable[["Mapping[str, str]", "Collection[str]"], "dict[str, str]"]


class FlagTable(NamedTuple):
    """A launcher's flags in the underscore spelling, without dashes; `short` maps -m to module.

    `keys`, `implied` and `count_processes` are for pasted lines. `parser` is the `module:function`
    that returns the parser which the flags were copied from, for the contract test that compares
    them; empty where the launcher has no such function.
    """

    valued: frozenset[str]
    switches: frozenset[str]
    owned: Mapping[
        str, str
    ]  # flag that launcher_args may not have -> the job key for it, as a hint
    short: Mapping[str, str]
    keys: Mapping[str, str]  # flag -> the job key that it becomes
    implied: frozenset[str]  # flags that a plan has by itself, the same for every job of one node
    count_processes: CountProcesses
    parser: str

    @property
    def names(self) -> frozenset[str]:
        """All long flags."""
        return self.valued | self.switches

    def name(self, word: str) -> str:
        """Return the long name of a flag as typed (`--nproc-per-node=4`, `-m`)."""
        flag = word.split("=", 1)[0]
        if not flag.startswith("--"):
            return self.short.get(flag, flag.lstrip("-"))
        return flag[2:].replace("-", "_")


def flag_values(args: Args, table: FlagTable) -> dict[str, str]:
    """Return {long name of each flag: its value}; a switch has an empty value."""
    return {name: values[-1] if values else "" for name, values in _grouped(args.words, table)}


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
    """Refuse flags that a job key stands for, and near misses; warn about unknown flags."""
    import difflib  # noqa: PLC0415 - only jobs with launcher_args pay for it

    where = job.origin("launcher_args")
    words = job.launcher_args.words
    if words and not words[0].startswith("-"):
        raise ConfigError(f"`{words[0]}` is no flag of {job.launcher}", where=where)
    warnings = []
    for name, values in _grouped(words, table):
        if name in table.owned:
            raise ConfigError(
                f"`--{name}` is not for `launcher_args`: a key of the job sets it",
                where=where,
                hint=f"use {table.owned[name]}",
            )
        if name in table.names:
            _check_values(job, name, values, table)
            continue
        near = difflib.get_close_matches(name, table.names, n=1, cutoff=0.8)
        prefixed = sorted(flag for flag in table.names if flag.startswith(name))
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
    takes = 1 if name in table.valued else 0
    if len(values) == takes:
        return
    if takes:
        what, hint = f"`--{name}` of {job.launcher} takes one value", None
    else:
        what, hint = f"`--{name}` of {job.launcher} takes no value", f"{name}: true"
    got = " ".join(values) or "none"
    raise ConfigError(f"{what}, got {got}", where=job.origin("launcher_args"), hint=hint)
