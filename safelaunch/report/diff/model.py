"""Data of a comparison of two runs, and changes between values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runtime.records import (
        CodeRecord,
        Failure,
        PlanRecord,
        Provenance,
        RunRecord,
        Status,
    )


class Change(NamedTuple):
    """One difference; None where a run has no such value."""

    what: str
    was: str | None
    now: str | None


class Group(NamedTuple):
    """Changes of one kind; `unknown` names runs without records, `basis` what was compared."""

    name: str
    changes: tuple[Change, ...] = ()
    unknown: str = ""
    basis: str = ""


class NodeSnapshot(NamedTuple):
    """The files of a node of a run, None if missing."""

    plan: PlanRecord | None
    run: RunRecord | None
    record: Provenance | None
    facts: Mapping[str, Any]
    code: CodeRecord | None = None


class RunSnapshot(NamedTuple):
    """A run to compare."""

    id: str
    status: Status
    failure: Failure | None
    nodes: tuple[NodeSnapshot, ...]
    code_files: Mapping[str, str] | None = None  # {path: hash} of all files it was launched with


def diff_mappings(was: Mapping[str, Any], now: Mapping[str, Any], head: str = "") -> list[Change]:
    """Return the changes between two mappings, a key each."""
    return [
        Change(head + str(key), to_text(was.get(key)), to_text(now.get(key)))
        for key in dict.fromkeys([*was, *now])
        if was.get(key) != now.get(key)
    ]


def to_text(value: object) -> str | None:
    """Return a value as text, None for None."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{k}: {to_text(v)}" for k, v in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_mapping(value: object) -> dict[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []
