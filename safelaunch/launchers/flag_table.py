"""A launcher's flags: those allowed in `launcher_args`, and the job keys of pasted flags."""
# ruff: noqa: PLC0415 - only jobs with launcher_args pay for difflib

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import Args, Job, Origin, PlanWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


PASTED_LINE = Origin("command line")

# ({job key: value} of a pasted line, {flag: value} of all its flags) -> {job key: value}, with the
# launcher's way of counting processes turned into `processes:` per node
CountProcesses = Callable[["Mapping[str, str]", "Mapping[str, str]"], "dict[str, str]"]


def _no_flags(_flags: Mapping[str, str]) -> Collection[str]:
    return ()


def _no_values(_flags: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({})


class LineFlag(NamedTuple):
    """A flag with its values, from a pasted line or from the config file that completes it.

    `values` None: a setting of the file for which the launcher has no flag.
    """

    name: str
    values: tuple[str, ...] | None
    origin: Origin


class Setting(NamedTuple):
    """A value of a config file: a scalar, a tuple or a dict of settings.

    `key` is the position of its key; of a value without one, its own.
    """

    value: object
    origin: Origin
    key: Origin


class ConfigFile(NamedTuple):
    """The file from which a launcher takes what the flags of a line leave open.

    `flag` names it on a line; `default` returns the path that is read without that flag, from the
    flags of the line and the environment. `complete` returns what the file adds to a line's flags,
    and raises ConfigError where the launcher would refuse the file.
    """

    flag: str
    default: Callable[[Mapping[str, str], Mapping[str, str]], str | None]
    complete: Callable[[Setting, Mapping[str, str]], list[LineFlag]]
    address: tuple[str, ...] = ()  # flags that say where node 0 is


class FlagTable(NamedTuple):
    """A launcher's flags in the underscore spelling, without dashes; `short` maps -m to module.

    `keys`, `implied`, `count_processes`, `config_file`, `abbreviates` and `unset` are for pasted
    lines. `parser` is the `module:function` that returns the parser which the flags were copied
    from, for the contract test that compares them; empty where the launcher has no such function.
    """

    valued: frozenset[str]
    switches: frozenset[str]
    owned: Mapping[str, str]  # flag that launcher_args may not have -> its job key, for a hint
    short: Mapping[str, str]
    keys: Mapping[str, str]  # flag -> the job key that it becomes
    implied: frozenset[str]  # flags that follow from the job's keys
    count_processes: CountProcesses
    parser: str
    config_file: ConfigFile | None = None
    one_node: frozenset[str] = frozenset()  # flags that the plan of a job on one node has anyway
    variables: str = ""  # prefix of variables that stand for flags: `PET_NNODES=2`
    defaults: Mapping[str, str] = MappingProxyType({})  # variable -> the flag that it stands for
    module: str = "module"
    no_python: str = ""  # the switch with which the program is run without Python
    abbreviates: bool = False  # whether the launcher takes the begin of a flag's name for it
    unset: frozenset[str] = frozenset()  # values that say no more than to leave the flag out
    keep: Callable[[Mapping[str, str]], Collection[str]] = _no_flags
    # flags whose default a pasted line relies on and the plan would not give
    default_values: Callable[[Mapping[str, str]], Mapping[str, str]] = _no_values
    mixes_flags: bool = False

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


def near_flags(name: str, table: FlagTable) -> list[str]:
    """Return the flags that a name may be meant for: much alike, begun, or with a word left out."""
    from difflib import get_close_matches

    near = get_close_matches(name, table.names, n=1, cutoff=0.8)
    near = near or sorted(flag for flag in table.names if flag.startswith(name))
    if near or "_" not in name:
        return near
    # `main_port` for `main_process_port`
    pattern = re.compile("_(?:[a-z0-9]+_)+".join(map(re.escape, name.split("_"))))
    longer = [flag for flag in table.names if pattern.fullmatch(flag)]
    return longer if len(longer) == 1 else []


def check_flags(job: Job, table: FlagTable) -> tuple[PlanWarning, ...]:
    """Refuse flags that a job key stands for, and near misses; warn about unknown flags."""
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
            takes_value = name in table.valued
            if (
                len(values) != takes_value
            ):  # the launcher would take a word too many for the program
                what = f"takes {'one' if takes_value else 'no'} value"
                raise ConfigError(
                    f"`--{name}` of {job.launcher} {what}, got {' '.join(values) or 'none'}",
                    where=where,
                    hint=None if takes_value else f"{name}: true",
                )
            continue
        near = near_flags(name, table)
        if len(near) == 1:
            raise ConfigError(
                f"{job.launcher} has no flag `--{name}`",
                where=where,
                hint=f"did you mean `--{near[0]}`?",
            )
        text = f"{job.launcher} is not known to take `--{name}`"
        warnings.append(PlanWarning("unknown-launcher-flag", text, str(where)))
    return tuple(warnings)
