"""Reads the signatures: one YAML record for each mechanism of failure, checked when it is read.

The files of `signatures/` are read in the order of their names. Of two signatures on one line the
first counts, unless the later one has conditions that hold. docs/signatures.md describes a record.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safelaunch.diagnose import pattern_dialect
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "signatures")
ROLES = ("root", "unknown", "late", "cascade", "warning", "confirmation")
RESTARTS = ("useless", "may-help", "helps")
PHASES = ("start", "meet", "load", "train", "generate", "save", "evaluate")
_PATTERNS = ("near", "not_near", "before", "after", "gpu", "op")
_CONDITIONS = frozenset((*_PATTERNS, "versions", "rank", "phase"))
_TEXTS = ("id", "class", "role", "cause", "restart")
_LISTS = ("patterns", "remedy", "source", "samples", "near_misses")
_REQUIRED = frozenset(("id", "class", "role", "cause", *_LISTS))
_KEYS = _REQUIRED | {"restart", "when", "likely", "even_as_warning"}


_DEEPEST = 16  # levels of YAML: stream, document, list, mapping, `when`, `versions`

_MODULE = """\
# ruff: noqa: E501
\"\"\"The signatures as data. Written by scripts/signatures from diagnose/signatures/*.yaml.\"\"\"

from __future__ import annotations

RECORDS = r\"\"\"[
{records}
]\"\"\"
"""


class BadSignature(ValueError):  # noqa: N818 - reads as what it is
    """A record is wrong; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Signature:
    """One mechanism of failure: how it is recognised, what it means, what to do."""

    id: str
    name: str  # of its class
    role: str
    patterns: tuple[str, ...]
    cause: str
    remedy: tuple[str, ...]
    source: tuple[str, ...]
    samples: tuple[str, ...]
    near_misses: tuple[str, ...]
    restart: str = ""  # where it differs from its class
    likely: bool = False
    even_as_warning: bool = False
    when: dict[str, Any] = field(default_factory=dict)


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """Return the signatures that come with the package. Raises BadSignature."""
    names = sorted(name for name in os.listdir(FOLDER) if name.endswith(".yaml"))
    return tuple(of_files(os.path.join(FOLDER, name) for name in names))


def of_files(paths: Iterable[str]) -> Iterator[Signature]:
    """Yield the signatures of files. Raises BadSignature, also for an id that is taken."""
    import yaml  # noqa: PLC0415 - a run reads what was compiled

    taken: dict[str, str] = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            _check_depth(yaml.parse(text, loader), path)
            records = yaml.load(text, loader)  # noqa: S506 - a safe loader
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
            raise BadSignature(f"{path}: {e}") from None
        for record in records if isinstance(records, list) else [records]:
            found = read(record, path)
            if found.id in taken:
                raise BadSignature(f"{path}: `{found.id}` is in {taken[found.id]} already")
            taken[found.id] = path
            yield found


def _check_depth(events: Iterable[Any], path: str) -> None:
    """Raise BadSignature for deep nesting: the composer in C crashes on it."""
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _DEEPEST:
            line = event.start_mark.line + 1
            raise BadSignature(f"{path}:{line}: nested more than {_DEEPEST} levels deep")


def read(record: Any, path: str) -> Signature:
    """Return a record as a signature. Raises BadSignature."""
    if not isinstance(record, dict):
        raise BadSignature(f"{path}: a signature is a mapping, not `{record}`")
    where = f"{path}: {record.get('id', 'a signature without id')}"
    if missing := _REQUIRED - record.keys():
        raise BadSignature(f"{where}: {', '.join(sorted(missing))} missing")
    if unknown := record.keys() - _KEYS:
        raise BadSignature(f"{where}: {', '.join(sorted(unknown))} is no key of a signature")
    for key in _TEXTS:
        if not isinstance(record.get(key, ""), str):
            raise BadSignature(f"{where}: {key} is a text")
    lists = {key: _texts(record[key], f"{where}: {key}") for key in _LISTS}
    _choice(record["class"], classes.TABLE, f"{where}: class")
    _choice(record["role"], ROLES, f"{where}: role")
    _choice(record.get("restart", RESTARTS[0]), RESTARTS, f"{where}: restart")
    try:
        for pattern in lists["patterns"]:
            pattern_dialect.check(pattern)
            pattern_dialect.literals(pattern)
        when = _conditions(record.get("when", {}), where)
    except pattern_dialect.BadPattern as e:
        raise BadSignature(f"{where}: {e}") from None
    return Signature(
        id=record["id"],
        name=record["class"],
        role=record["role"],
        cause=" ".join(record["cause"].split()),
        restart=record.get("restart", ""),
        likely=bool(record.get("likely", False)),
        even_as_warning=bool(record.get("even_as_warning", False)),
        when=when,
        **lists,
    )


def _texts(value: Any, where: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise BadSignature(f"{where}: a text, or a list of them")
    return tuple(texts)


def _choice(value: Any, choices: Iterable[str], where: str) -> None:
    if value not in choices:
        raise BadSignature(f"{where}: `{value}` is none of {', '.join(choices)}")


def _conditions(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() - _CONDITIONS:
        raise BadSignature(f"{where}: `when` knows {', '.join(sorted(_CONDITIONS))}")
    for key in _PATTERNS:
        if key in value:
            pattern_dialect.check(str(value[key]))
    if "phase" in value:
        _choice(value["phase"], PHASES, f"{where}: phase")
    versions = value.get("versions", {})
    if not isinstance(versions, dict):
        raise BadSignature(f'{where}: versions is a mapping like {{nccl: "<2.26.3"}}')
    return dict(value)


def records(found: Iterable[Signature]) -> list[dict[str, Any]]:
    """Return signatures as the runtime and the engine read them: no samples, literals instead."""
    return [
        {
            "id": one.id,
            "class": one.name,
            "role": one.role,
            "patterns": [[pattern, *pattern_dialect.literals(pattern)] for pattern in one.patterns],
            "cause": one.cause,
            "remedy": list(one.remedy),
            "source": list(one.source),
            **({"restart": one.restart} if one.restart else {}),
            **({"likely": True} if one.likely else {}),
            **({"even_as_warning": True} if one.even_as_warning else {}),
            **({"when": one.when} if one.when else {}),
        }
        for one in found
    ]


def module(found: Iterable[Signature]) -> str:
    """Return the text of the runtime's module that holds signatures: one record a line."""
    lines = (json.dumps(one, separators=(",", ":")) for one in records(found))
    text = ",\n".join(lines)
    if '"' * 3 in text:  # JSON has no place for it
        raise BadSignature("three quotes in a row would end the text")
    return _MODULE.format(records=text)
