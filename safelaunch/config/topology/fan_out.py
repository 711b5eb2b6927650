"""The parts of a job: how many, over which input, and what they cannot be combined with."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.config.schema.members.words import late_words
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Ending, EndKeys, FanOut
from safelaunch.runtime.parts import PartsError, expand
from safelaunch.runtime.records import FanOutSpec
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Host, Job, Origin

KEYS = ("shards", "matrix", "part_gpus", "at_once")
SHARD_FIELDS = ("index", "count", "input", "output")
_WORD = re.compile(r"(?<!\$)\{(shard|matrix)\.([^.{}]*)\}")
_PLAIN = re.compile(r"[A-Za-z0-9._:@+,/%=-]+")  # what stands in a script without quotes


def read(values: Mapping[str, Any], tree: Node, job: Job, machines: Sequence[Host]) -> FanOut:
    """Return the parts of a job on these machines. Raises ConfigError."""
    key = next(name for name in KEYS if values.get(name))
    where = job.origin(key)
    if values.get("shards") and values.get("matrix"):
        raise ConfigError("`shards` and `matrix` in one job", where=where, hint="choose one")
    _check_others(values, job, where, key)
    _check_place(job, machines, where, key)
    fan_out: FanOut = replace(
        values.get("shards") or FanOut(matrix=values["matrix"]), at_once=values.get("at_once")
    )
    if not fan_out.matrix and not fan_out.count:
        raise ConfigError("`shards` without `parts`", where=where, hint="parts: 8")
    if fan_out.merge is not None and not fan_out.merge.output:
        raise ConfigError("`merge` without `output`", where=where, hint="merge: {output: FILE}")
    matrix = {name: list(row) for name, row in fan_out.matrix.items()}
    try:
        count = expand.part_count(FanOutSpec(count=fan_out.count, matrix=matrix))
    except PartsError as e:
        raise ConfigError(str(e), where=where) from e
    if len(machines) > 1:
        _check_hosts(fan_out, count, job, machines, where)
    fan_out = replace(fan_out, cards_each=_cards_each(values, job))
    for name, row in matrix.items():
        for value in row:
            if not _PLAIN.fullmatch(value):
                raise ConfigError(
                    f"value `{value}` of `{name}` is no plain word",
                    where=where,
                    hint="letters, digits and ._:@+,/%=-; let the program look up anything else",
                )
    _check_words(fan_out, tree)
    return fan_out


def _check_others(values: Mapping[str, Any], job: Job, where: Origin | None, key: str) -> None:
    if key in ("part_gpus", "at_once"):
        raise ConfigError(
            f"`{key}` without `shards` or `matrix`", where=where, hint="add one of them"
        )
    if values.get("services") or job.queue is not None:
        other = "services" if values.get("services") else "queue"
        hint = "start the server, or wait for the cards, as a job of its own"
        raise ConfigError(f"`{key}` and `{other}` in one job", where=where, hint=hint)


def _check_place(job: Job, machines: Sequence[Host], where: Origin | None, key: str) -> None:
    hint = "`safelaunch run`, `safelaunch remote` with the hosts that share the parts, "
    hint += "or `--on slurm`"
    boxes = [job.container or host.container for host in machines]
    if job.engine not in (None, "slurm") or any(box is not None and not box.off for box in boxes):
        what = f"--on {job.engine}" if job.engine else "a container"
        raise ConfigError(f"`{key}` and {what}", where=where, hint=hint)
    if job.topology.nodes > 1 or job.starts_one_node:
        raise ConfigError(f"`{key}` of a job on several nodes", where=where, hint=hint)


def _check_hosts(
    fan_out: FanOut, count: int, job: Job, machines: Sequence[Host], where: Origin | None
) -> None:
    """Refuse what parts on several hosts do not have. Raises ConfigError."""
    if count < len(machines):
        what = f"{len(machines)} hosts for {quantity(count, 'part')}"
        raise ConfigError(what, where=where, hint="name fewer hosts")
    if fan_out.merge is not None and fan_out.merge.command:
        raise ConfigError(
            "`merge: command` of parts on several hosts: no machine has all outputs",
            where=where,
            hint="`merge: {output: FILE, by: jsonl}`, which the client does",
        )
    keys = [host.end_keys or EndKeys() for host in machines]
    ends = [job.supervision.ending, *(own.ending for own in keys)]
    if any(end is not None and end != Ending(timeout=end.timeout) for end in ends):
        raise ConfigError(
            "`on_end`, `upload`, `pull` or `shutdown` of parts on several hosts",
            where=where,
            hint="no host knows when the others have ended; `--after` it, or one host",
        )


def _cards_each(values: Mapping[str, Any], job: Job) -> int:
    """Return how many cards each part has, where the job names some. Raises ConfigError."""
    processes = job.topology.processes
    own: int | None = values.get("part_gpus")
    if own is None:
        return processes if processes and "processes" in job.origins else 1
    if not job.gpus:
        hint = "gpus: [0, 1, 2, 3]: the cards of all parts that run at the same time"
        raise ConfigError("`part_gpus` without `gpus`", where=job.origin("part_gpus"), hint=hint)
    if own > len(job.gpus):
        what = f"`part_gpus: {own}` of {quantity(len(job.gpus), 'card')}"
        raise ConfigError(what, where=job.origin("part_gpus"), hint="name more in `gpus`")
    return own


def _check_words(fan_out: FanOut, tree: Node) -> None:
    names = {"shard": list(SHARD_FIELDS), "matrix": list(fan_out.matrix)}
    if fan_out.over is None:
        names["shard"].remove("input")
    words = list(late_words(tree, _WORD))
    used = {word.match.groups() for word in words}
    for name in fan_out.matrix:
        if ("matrix", name) not in used:
            raise ConfigError(
                f"no word uses `{name}` of `matrix`: parts would be alike",
                where=_origin(tree, "matrix"),
                hint=f"`{{matrix.{name}}}` in args or env",
            )
    for field, is_needed in (("input", fan_out.over), ("output", fan_out.merge)):
        if is_needed is not None and ("shard", field) not in used:
            raise ConfigError(
                f"no word uses `{{shard.{field}}}`",
                where=_origin(tree, "shards"),
                hint=f"`{{shard.{field}}}` in args: the part's own file",
            )
    for word in words:
        kind, name = word.match.groups()
        if name not in names[kind]:
            listed = ", ".join(f"{{{kind}.{field}}}" for field in names[kind]) or "none"
            hint = did_you_mean(name, names[kind]) or f"known: {listed}"
            raise ConfigError(f"no `{{{kind}.{name}}}` here", where=word.node.origin, hint=hint)


def _origin(tree: Node, key: str) -> Origin | None:
    node = tree.get(key)
    return None if node is None else node.origin
