"""Which variables of a profile apply here: gates, workarounds and the NCCL ladder.

Judged only on what the plan knows: the topology, and the facts that the host entry declares. An
undeclared fact counts as "applies", and the plan says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import EnvVar, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from safelaunch.model import Gate, Profile, ProfileVar


class Selection(NamedTuple):
    """The variables that apply, and what is to be said about them."""

    env: tuple[EnvVar, ...]
    ladder: tuple[EnvVar, ...]  # laid over the job by --nccl-ladder
    rungs: tuple[tuple[EnvVar, ...], ...]  # what `recovery: {ladder: true}` may still add, in order
    undeclared: Mapping[str, tuple[str, ...]]  # fact -> variables that it keeps on
    workarounds: tuple[str, ...]
    missing: tuple[ProfileVar, ...]  # site variables that nobody set


class Known(NamedTuple):
    """What gates are judged on. `gpus` None: not counted yet."""

    gpus: int | None
    nodes: int
    facts: Mapping[str, str]


def select(
    profile: Profile, known: Known, *, ladder: int | None, workarounds: bool, climb: bool = False
) -> Selection:
    """Return the variables of the profile for this topology and these facts.

    `climb`: the start is below the ladder, so what its steps name is left out and becomes rungs.
    """
    named = {name for step in profile.ladder for name, _ in step} if climb else set()
    chosen: list[EnvVar] = []
    undeclared: dict[str, list[str]] = {}
    for entry in profile.env:
        if entry.var.workaround and (not workarounds or ladder is not None):
            continue
        if entry.var.workaround and entry.var.name in named:
            continue
        open_facts = _judge(entry.gates, known)
        if open_facts is None:
            continue
        chosen.append(entry.var)
        for fact in open_facts:
            undeclared.setdefault(fact, []).append(entry.var.name)
    steps = _ladder(profile, known, ladder) if ladder is not None else ()
    above = profile.ladder[ladder or 0 :] if climb else ()
    return Selection(
        env=tuple(chosen),
        ladder=steps,
        rungs=tuple(_step(profile, known, step, _CLIMBED) for step in above),
        undeclared={fact: tuple(names) for fact, names in undeclared.items()},
        workarounds=tuple(var.name for var in chosen if var.workaround),
        missing=tuple(e for e in profile.site if _judge(e.gates, known) == []),
    )


def rungs(
    chosen: Selection, env: Mapping[str, EnvVar], required: Iterable[EnvVar]
) -> tuple[tuple[EnvVar, ...], ...]:
    """Return what each rung adds to the environment below it; the top has NCCL_DEBUG=INFO.

    A step that changes nothing is no rung, and none changes what the launcher requires.
    """
    fixed = {var.name for var in required}
    values = {name: var.value for name, var in env.items()}
    found = []
    for step in chosen.rungs:
        new = tuple(v for v in step if v.name not in fixed and values.get(v.name) != v.value)
        values.update((var.name, var.value) for var in new)
        if new:
            found.append(new)
    if values.get("NCCL_DEBUG") not in ("INFO", "TRACE"):
        found.append((EnvVar("NCCL_DEBUG", "INFO", _CLIMBED, why="shows what NCCL chose"),))
    return tuple(found)


def _judge(gates: tuple[Gate, ...], known: Known) -> list[str] | None:
    """Return the undeclared facts among the gates, or None where a gate is closed."""
    undeclared = []
    for gate in gates:
        if gate.key == "nodes":
            value: str | None = str(known.nodes)
        elif gate.key == "gpus":
            value = None if known.gpus is None else str(known.gpus)
        else:
            value = known.facts.get(gate.key)
        if value is None:
            if gate.key not in ("gpus", "nodes"):  # those are counted, not declared
                undeclared.append(gate.key)
        elif not holds(value, gate.condition, gate.origin):
            return None
    return undeclared


def holds(value: str, condition: str, where: Origin) -> bool:
    """Whether a number or version meets every part of a condition (`>1`, `<2.26.5,!=2.26.2.post1`).

    Versions compare in PEP 440's order, local parts (`+cu128`) left out. Raises ConfigError where
    the value is no version.
    """
    if value.isdigit() and condition.lstrip("<>=! ").isdigit():
        return _compare(int(value), condition)
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - 15 ms, rarely needed

    try:
        version = Version(Version(value).public)
    except InvalidVersion:
        raise ConfigError(f"`{value}` is no version", where=where) from None
    return all(_compare(version, part.strip(), Version) for part in condition.split(","))


def _compare(value: Any, condition: str, kind: Any = int) -> bool:
    operator = condition.rstrip("0123456789.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    other = kind(condition[len(operator) :].strip())
    checks: dict[str, Callable[[], bool]] = {
        "": lambda: value == other,
        "==": lambda: value == other,
        "!=": lambda: value != other,
        "<": lambda: value < other,
        "<=": lambda: value <= other,
        ">": lambda: value > other,
        ">=": lambda: value >= other,
    }
    return checks[operator.strip()]()


def _ladder(profile: Profile, known: Known, steps: int) -> tuple[EnvVar, ...]:
    origin = Origin(f"--nccl-ladder {steps}")
    if not profile.ladder:
        raise ConfigError(f"profile `{profile.name}` has no ladder", where="--nccl-ladder")
    if steps > len(profile.ladder):
        raise ConfigError(
            f"the ladder of `{profile.name}` ends at {len(profile.ladder)}", where="--nccl-ladder"
        )
    chosen = (_step(profile, known, step, origin) for step in profile.ladder[:steps])
    return tuple(var for step in chosen for var in step)


_CLIMBED = Origin("recovery ladder")


def _step(
    profile: Profile, known: Known, step: tuple[tuple[str, str], ...], origin: Origin
) -> tuple[EnvVar, ...]:
    """Return the variables of one step of the ladder for this topology."""
    records = {entry.var.name: entry for entry in profile.env}
    chosen = []
    for name, value in step:
        record = records.get(name)
        if record is None:
            chosen.append(EnvVar(name, value, origin, why=f"step of the {profile.name} ladder"))
            continue
        # asked for by hand: only the topology can still close the gate
        topology = tuple(g for g in record.gates if g.key in ("gpus", "nodes"))
        if _judge(topology, known) is not None:
            chosen.append(replace(record.var, value=value, origin=origin))
    return tuple(chosen)
