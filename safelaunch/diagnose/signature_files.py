"""Reads the signatures: one YAML record for each mechanism of failure, checked when it is read.

The files of `signatures/` are read in the order of their names. Of two signatures on one line the
first counts, unless the later one has conditions that hold. docs/signatures.md describes a record.
"""

from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING, Any

from safelaunch.diagnose import pattern_dialect
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    Record: TypeAlias = dict[str, Any]

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
_COMPILED = ("id", "class", "role", "patterns", "cause", "remedy", "source", "restart", "likely",
             "even_as_warning", "when")  # fmt: skip


_DEEPEST = 16  # levels of YAML: stream, document, list, mapping, `when`, `versions`


class BadSignature(ValueError):  # noqa: N818 - reads as what it is
    """A record is wrong; the message says which and why."""


@functools.cache
def source_records() -> tuple[Record, ...]:
    """Return the records of `signatures/`, which a checkout has. Raises BadSignature."""
    names = sorted(name for name in os.listdir(FOLDER) if name.endswith(".yaml"))
    return tuple(read_files(os.path.join(FOLDER, name) for name in names))


def read_files(paths: Iterable[str]) -> Iterator[Record]:
    """Yield the records of files. Raises BadSignature, also for an id that is taken."""
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
            checked = read(record, path)
            name = checked["id"]
            if name in taken:
                raise BadSignature(f"{path}: `{name}` is in {taken[name]} already")
            taken[name] = path
            yield checked


def _check_depth(events: Iterable[Any], path: str) -> None:
    """Raise BadSignature for deep nesting: the composer in C crashes on it."""
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _DEEPEST:
            line = event.start_mark.line + 1
            raise BadSignature(f"{path}:{line}: nested more than {_DEEPEST} levels deep")


def read(record: Any, path: str) -> Record:
    """Return a record as `table.Signature` takes it, its patterns with their literal texts.

    Raises BadSignature.
    """
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
        patterns = [[pattern, *pattern_dialect.literals(pattern)] for pattern in lists["patterns"]]
        when = _conditions(record.get("when", {}), where)
    except pattern_dialect.BadPattern as e:
        raise BadSignature(f"{where}: {e}") from None
    optional = {"restart": record.get("restart"), "likely": bool(record.get("likely")),
                "even_as_warning": bool(record.get("even_as_warning")), "when": when}  # fmt: skip
    return {
        "id": record["id"],
        "class": record["class"],
        "role": record["role"],
        **lists,
        "patterns": patterns,
        "cause": " ".join(record["cause"].split()),
        **{key: value for key, value in optional.items() if value},
    }


def _texts(value: Any, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise BadSignature(f"{where}: a text, or a list of them")
    return texts


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


def compiled(records: Iterable[Record]) -> str:
    """Return signatures as the runtime reads them: JSON, a record a line, without the samples."""
    lines = (
        json.dumps({key: record[key] for key in _COMPILED if key in record}, separators=(",", ":"))
        for record in records
    )
    return "[\n" + ",\n".join(lines) + "\n]\n"
