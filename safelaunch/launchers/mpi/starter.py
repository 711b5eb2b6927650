"""What the programs of this folder have in common, each described by a `Starter`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch
from safelaunch.launchers.common import module_or_script
from safelaunch.model import PlanWarning, Word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.launchers.mpi.options import LineOption, OptionSyntax
    from safelaunch.model import Job

# Where ranks meet, and how many there are: these programs leave it to the user's variables.
MEETING = ("MASTER_*", "WORLD_SIZE", "NNODES", "NPROC_PER_NODE")


class Starter(NamedTuple):
    """A program that starts a command as ranks."""

    syntax: OptionSyntax
    total: str  # the option that counts all ranks, as it is written
    totals: frozenset[str]  # its names
    per_node: frozenset[str] = frozenset()  # options that count the ranks of each node
    nodes: frozenset[str] = frozenset()  # options that count the nodes
    places: frozenset[str] = frozenset()  # options that change where the program is looked for
    others: frozenset[str] = frozenset()  # options with which the line is no `OPTIONS PROGRAM ARGS`
    variables: frozenset[str] = frozenset()  # options that name variables of the caller

    def split(self, words: Iterable[str]) -> tuple[list[LineOption], tuple[str, ...]] | None:
        """Return the options and the words from the program on; None where they are not clear."""
        split = self.syntax.split(tuple(words))
        if split is None or any(option.name in self.others for option in split[0]):
            return None
        return split

    def ranks(self, options: Iterable[LineOption]) -> int | None:
        """Return how many ranks options start; None where something else decides."""
        options = tuple(options)
        total, per_node, nodes = (
            _number([option for option in options if option.name in names])
            for names in (self.totals, self.per_node, self.nodes)
        )
        if total is not None or per_node is None or nodes is None:
            return total
        return per_node * nodes


def _number(options: list[LineOption]) -> int | None:
    """Return the value of the only option of a list that is a plain count."""
    value = options[0].values[0] if len(options) == 1 and options[0].values else ""
    return int(value) if value.isascii() and value.isdecimal() and int(value) else None


def job_keys(starter: Starter, line: CommandLine) -> JobKeys | None:
    """Return the job of a pasted line; None where its options are not all known."""
    split = starter.split(line.words)
    if split is None or not split[1] or ":" in line.words:  # `:` joins several programs
        return None
    options, program = split
    ranks = starter.ranks(options)
    counts = [option for option in options if option.name in starter.totals | starter.per_node]
    if ranks is not None and len(counts) == 1 and counts[0].name in starter.totals:
        # `processes:` says it, unless its word says more: `-ln8`
        at = options.index(counts[0])
        if counts[0].words and (at + 1 == len(options) or options[at + 1].words):
            options.remove(counts[0])
    words = tuple(word for option in options for word in option.words)
    keys: dict[str, str | tuple[str, ...]] = {"launcher_args": words} if words else {}
    if ranks is not None:
        keys["processes"] = str(ranks)
    moves = any(option.name in starter.places for option in options)
    return JobKeys(keys, program=program, is_opaque=moves)


def command(starter: Starter, launch: Launch) -> Command:
    """Return the program with its options, and the command of the ranks. Raises ConfigError."""
    job = launch.job
    where, words = job.origin("launcher_args"), job.launcher_args.words
    split = starter.split(words)
    warnings: list[PlanWarning] = []
    if split is None:
        what = f"not all `launcher_args` are known options of {job.launcher}"
        warnings.append(PlanWarning("unknown-launcher-flag", what, str(where)))
    elif split[1]:
        raise ConfigError(f"`{split[1][0]}` is no option of {job.launcher}", where=where)
    options = split[0] if split is not None else []
    argv: list[Word] = [job.launcher]
    if "processes" in job.origins:
        argv += _count(starter, job, options)
    argv += words
    if job.command:
        warnings += _inner_launcher(job)
        return Command((*argv, *job.command, *job.args.words), len(argv), warnings=tuple(warnings))
    # as PYTHONUNBUFFERED, which may not reach ranks on other machines
    argv += [job.interpreter.word, "-u"]
    return Command(
        (*argv, *module_or_script(job, "-m"), *job.args.words),
        program=len(argv),
        warnings=tuple(warnings),
        single="mpi",
    )


def _count(starter: Starter, job: Job, options: list[LineOption]) -> list[Word]:
    """Return the option that counts the ranks, unless others do. Raises ConfigError."""
    names = starter.totals | starter.per_node
    if not any(option.name in names for option in options):
        return [starter.total, str(job.topology.processes)]
    ranks = starter.ranks(options)
    if ranks is not None and ranks != job.topology.processes:
        raise ConfigError(
            f"`processes: {job.topology.processes}`, and `launcher_args` start {ranks} ranks",
            where=job.origin("processes"),
            hint=f"leave the counts out of `launcher_args`: `{starter.total}` is added",
        )
    return []


def _inner_launcher(job: Job) -> Iterable[PlanWarning]:
    """Say what is left to a launcher that the ranks' command begins with."""
    words = job.command
    name = launchers.find_program(words)
    if name is None and words[1:2] == ("-m",):
        name = next((word for word in words[2:3] if launchers.find_module(word)), None)
    if name is not None:
        message = f"{job.launcher} runs `{name}` as written: its ranks and its port are its own"
        yield PlanWarning("inner-launcher", message, str(job.origin("command")))


def variables(starter: Starter, job: Job) -> tuple[str, ...]:
    """Return the names in options such as `-x NAME`, whose values are the caller's."""
    split = starter.split(job.launcher_args.words)
    options = split[0] if split is not None else []
    names = (
        name
        for option in options
        if option.name in starter.variables
        for value in option.values
        for name in value.split(",")
    )
    return tuple(name for name in names if name and "=" not in name)


def ranks_per_node(job: Job) -> int | None:
    """Return how many ranks there are on all nodes; None for a command that starts its own."""
    return job.topology.processes if "processes" in job.origins and not job.command else None
