"""Which variables of a profile apply: gates, workarounds and the NCCL ladder.

Gates are evaluated on the topology, and on the facts that the host entry declares. An undeclared
fact counts as "applies", and the plan warns about it.
"""
# ruff: noqa: PLC0415 - packaging takes 15 ms, and few gates compare versions

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import EnvVar, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from safelaunch.model import Gate, Profile, ProfileVar


_CLIMBED = Origin("recovery ladder")
_OPERATORS = {
    "": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class SelectedVariables(NamedTuple):
    """The variables that apply, and those that the plan warns about."""

    env: tuple[EnvVar, ...]
    ladder: tuple[EnvVar, ...]  # merged over the job by --nccl-ladder
    rungs: tuple[tuple[EnvVar, ...], ...]  # what `recovery: {ladder: true}` may still add, in order
    undeclared: Mapping[str, list[str]]  # fact -> variables that are set for want of it
    workarounds: tuple[str, ...]
    missing: tuple[ProfileVar, ...]  # site variables that nobody set


class DeclaredFacts(NamedTuple):
    """What gates are evaluated on. `gpus` None: not counted yet."""

    gpus: int | None
    nodes: int
    facts: Mapping[str, str]


def select(
    profile: Profile,
    declared: DeclaredFacts,
    *,
    ladder: int | None,
    workarounds: bool,
    climb: bool = False,
) -> SelectedVariables:
    """Return the variables of the profile for this topology and these facts.

    `climb`: the start is below the ladder, so variables of its steps are left out and become rungs.
    """
    on_ladder = {name for step in profile.ladder for name, _ in step} if climb else set()
    selected: list[EnvVar] = []
    undeclared: dict[str, list[str]] = {}
    for entry in profile.env:
        var = entry.var
        if var.workaround and (not workarounds or ladder is not None or var.name in on_ladder):
            continue
        facts = _undeclared_facts(entry.gates, declared)
        if facts is not None:
            selected.append(var)
            for fact in facts:
                undeclared.setdefault(fact, []).append(var.name)
    above = profile.ladder[ladder or 0 :] if climb else ()
    return SelectedVariables(
        env=tuple(selected),
        ladder=_ladder(profile, declared, ladder) if ladder is not None else (),
        rungs=tuple(_step(profile, declared, step, _CLIMBED) for step in above),
        undeclared=undeclared,
        workarounds=tuple(var.name for var in selected if var.workaround),
        missing=tuple(e for e in profile.site if _undeclared_facts(e.gates, declared) == []),
    )


def rungs(
    selection: SelectedVariables, env: Mapping[str, EnvVar], required: Iterable[EnvVar]
) -> tuple[tuple[EnvVar, ...], ...]:
    """Return what each rung adds to the environment below it; the top has NCCL_DEBUG=INFO.

    A step that changes nothing is no rung, and none changes what the launcher requires.
    """
    fixed = {var.name for var in required}
    values = {name: var.value for name, var in env.items()}
    added = []
    for step in selection.rungs:
        new = tuple(v for v in step if v.name not in fixed and values.get(v.name) != v.value)
        values.update((var.name, var.value) for var in new)
        if new:
            added.append(new)
    if values.get("NCCL_DEBUG") not in ("INFO", "TRACE"):
        added.append((EnvVar("NCCL_DEBUG", "INFO", _CLIMBED, why="shows what NCCL chose"),))
    return tuple(added)


def _undeclared_facts(gates: tuple[Gate, ...], declared: DeclaredFacts) -> list[str] | None:
    """Return the undeclared facts among the gates, or None where a gate is closed."""
    counts = {"nodes": str(declared.nodes), "gpus": str(declared.gpus or "")}
    undeclared = []
    for gate in gates:
        value = counts.get(gate.key) or declared.facts.get(gate.key)
        if value is None:
            if gate.key not in counts:
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
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(Version(value).public)
    except InvalidVersion:
        raise ConfigError(f"`{value}` is no version", where=where) from None
    return all(_compare(version, part.strip(), Version) for part in condition.split(","))


def _compare(value: Any, condition: str, kind: Any = int) -> bool:
    bound = condition.lstrip("<>=! ")
    compare: Callable[[Any, Any], bool] = _OPERATORS[condition.removesuffix(bound).strip()]
    return compare(value, kind(bound.strip()))


def _ladder(profile: Profile, declared: DeclaredFacts, steps: int) -> tuple[EnvVar, ...]:
    origin = Origin(f"--nccl-ladder {steps}")
    if not profile.ladder:
        raise ConfigError(f"profile `{profile.name}` has no ladder", where="--nccl-ladder")
    if steps > len(profile.ladder):
        raise ConfigError(
            f"the ladder of `{profile.name}` ends at {len(profile.ladder)}", where="--nccl-ladder"
        )
    climbed = (_step(profile, declared, step, origin) for step in profile.ladder[:steps])
    return tuple(var for step in climbed for var in step)


def _step(
    profile: Profile,
    declared: DeclaredFacts,
    step: tuple[tuple[str, str], ...],
    origin: Origin,
) -> tuple[EnvVar, ...]:
    """Return the variables of one step of the ladder for this topology."""
    entries = {entry.var.name: entry for entry in profile.env}
    variables = []
    for name, value in step:
        entry = entries.get(name)
        if entry is None:
            variables.append(EnvVar(name, value, origin, why=f"step of the {profile.name} ladder"))
            continue
        # a step is requested explicitly: only gates on the topology still count
        topology = tuple(g for g in entry.gates if g.key in ("gpus", "nodes"))
        if _undeclared_facts(topology, declared) is not None:
            variables.append(replace(entry.var, value=value, origin=origin))
    return tuple(variables)
