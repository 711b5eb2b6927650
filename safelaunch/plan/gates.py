"""Which variables of a profile apply: gates, workarounds and the NCCL ladder.

Gates are evaluated on the topology, and on the facts that the host entry declares. In a plan an
undeclared fact counts as "applies", and the plan says so; a start reads the versions of its machine
and decides (`decide`).
"""
# ruff: noqa: PLC0415 - packaging takes 15 ms, and few gates compare versions

from __future__ import annotations

import operator
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import EnvVar, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from safelaunch.model import Gate, NodePlan, Profile, ProfileVar


_RELEASE = re.compile(r"[0-9]+(\.[0-9]+)*")  # a version of numbers alone
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
    open_gates: Mapping[str, tuple[Gate, ...]]  # of those variables, on the undeclared facts
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
    on_ladder = {e.var.name for step in profile.ladder for e in step} if climb else set()
    selected: list[EnvVar] = []
    undeclared: dict[str, list[str]] = {}
    open_gates: dict[str, tuple[Gate, ...]] = {}
    for entry in profile.env:
        var = entry.var
        if var.workaround and (not workarounds or ladder is not None or var.name in on_ladder):
            continue
        facts = _undeclared_facts(entry.gates, declared)
        if facts is not None:
            selected.append(var)
            for fact in facts:
                undeclared.setdefault(fact, []).append(var.name)
            if facts:
                open_gates[var.name] = tuple(g for g in entry.gates if g.key in facts)
    above = profile.ladder[ladder or 0 :] if climb else ()
    return SelectedVariables(
        env=tuple(selected),
        ladder=_ladder(profile, declared, ladder) if ladder is not None else (),
        rungs=tuple(_step(profile, declared, step, _CLIMBED) for step in above),
        undeclared=undeclared,
        open_gates=open_gates,
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


def decide(node: NodePlan, versions: Mapping[str, str]) -> tuple[NodePlan, tuple[str, ...]]:
    """Return a node with its open gates decided by the versions of its machine, and why.

    A variable stays where a version is not known, or its gate holds.
    """
    env, reasons = dict(node.env), []
    by_gate: dict[tuple[str, str], list[str]] = {}
    closed = closed_gates(node, versions)
    for name, open_gates in node.open_gates.items():
        # a closed gate decides alone: the variable's other gates do not matter then
        for gate in (closed[name],) if name in closed else open_gates:
            by_gate.setdefault((gate.key, gate.condition), []).append(name)
        if name in closed:
            beaten = env.pop(name).beats[:1] if name in env else ()
            env.update({var.name: var for var in beaten})
    is_direct = versions.get("p2p") == "yes" and "NCCL_P2P_DISABLE" not in env
    explained: set[str] = set()
    for (key, condition), names in by_gate.items():
        value, needed = versions.get(key), describe(condition)
        if value is None and explained.issuperset(names):
            continue  # the reason above says why they are set
        explained.update(names)
        is_slow = "NCCL_SHM_DISABLE" in names and not is_direct
        cost = "; slower: GPU traffic goes over TCP" if is_slow else ""
        if value is None:
            what = "peer access" if key == "p2p" else f"{LABELS.get(key, key)} version"
            reasons.append(
                f"{what} not found: {', '.join(names)} set to be safe (needed {needed})"
                f"{cost}; --no-workarounds lifts them"
            )
            continue
        fact = _PEERS[value] if key == "p2p" else f"{LABELS.get(key, key)} {value} found"
        if closed.keys() & set(names):
            reasons.append(f"{fact}: {', '.join(names)} not set (needed {needed})")
        else:
            reasons.append(f"{fact}: {', '.join(names)} set (needed {needed}){cost}")
    return replace(node, env=env, open_gates={}), tuple(reasons)


def closed_gates(node: NodePlan, versions: Mapping[str, str]) -> dict[str, Gate]:
    """Return the first open gate of each variable that the versions of the machine close."""
    closed: dict[str, Gate] = {}
    for name, open_gates in node.open_gates.items():
        for gate in open_gates:
            value = versions.get(gate.key)
            if value is not None and not holds(value, gate.condition, gate.origin):
                closed.setdefault(name, gate)
    return closed


def needs_peer_access(node: NodePlan, versions: Mapping[str, str]) -> bool:
    """Whether a variable hangs on peer access, which a command of the driver tells."""
    closed = closed_gates(node, versions)
    return "p2p" not in versions and any(
        name not in closed and any(gate.key == "p2p" for gate in open_gates)
        for name, open_gates in node.open_gates.items()
    )


LABELS = {"nccl": "NCCL", "driver": "NVIDIA driver", "torch": "PyTorch", "cuda": "CUDA",
          "p2p": "GPUs"}  # fmt: skip
_PEERS = {"yes": "the GPUs have peer access", "no": "the GPUs have no peer access"}
_CONDITIONS = {"yes": "with peer access", "no": "without peer access"}  # of `p2p`
_WORDS = {"<": "below", ">=": "from", "<=": "up to", ">": "above", "!=": "except", "==": "for"}


def describe(condition: str) -> str:
    """Return a gate's condition in words: `below 2.26.5, except 2.26.2.post1`."""
    if condition in _CONDITIONS:
        return _CONDITIONS[condition]
    parts = []
    for part in condition.split(","):
        bound = part.strip().lstrip("<>=!").strip()
        sign = part.strip().removesuffix(bound).strip()
        parts.append(f"{_WORDS.get(sign, 'for')} {bound}")
    return ", ".join(parts)


def holds(value: str, condition: str, where: Origin) -> bool:
    """Whether a number or version meets every part of a condition (`>1`, `<2.26.5,!=2.26.2.post1`).

    Versions compare in PEP 440's order, local parts (`+cu128`) left out. Raises ConfigError where
    the value is no version.
    """
    if condition in _CONDITIONS:
        return value == condition
    if value.isdigit() and condition.lstrip("<>=! ").isdigit():
        return _compare(int(value), condition)
    bounds = [part.strip().lstrip("<>=! ") for part in condition.split(",")]
    numbers = [_RELEASE.fullmatch(text) for text in (value.partition("+")[0], *bounds)]
    if all(numbers):  # as nearly all are; the import of packaging takes 12 ms
        return all(
            _compare(_release(value.partition("+")[0]), part.strip(), _release)
            for part in condition.split(",")
        )
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(Version(value).public)
    except InvalidVersion:
        raise ConfigError(f"`{value}` is no version", where=where) from None
    return all(_compare(version, part.strip(), Version) for part in condition.split(","))


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version; zeros at its end mean nothing (PEP 440)."""
    return tuple(map(int, re.sub(r"(\.0+)+$", "", text).split(".")))


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
    step: tuple[ProfileVar, ...],
    origin: Origin,
) -> tuple[EnvVar, ...]:
    """Return the variables of one step of the ladder for this topology."""
    entries = {entry.var.name: entry for entry in profile.env}
    variables = []
    for entry in step:
        default = entries.get(entry.var.name, entry)
        # a step is requested explicitly: only gates on the topology still count
        gates = (*entry.gates, *default.gates)
        topology = tuple(g for g in gates if g.key in ("gpus", "nodes"))
        if _undeclared_facts(topology, declared) is None:
            continue
        var = entry.var if entry.var.why else replace(default.var, value=entry.var.value)
        why = var.why or f"step of the {profile.name} ladder"
        variables.append(replace(var, origin=origin, why=why))
    return tuple(variables)
