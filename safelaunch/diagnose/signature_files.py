"""Reads and checks signature files: one YAML record for each kind of failure.

The files of `signatures/` are read in the order of their names. Of two signatures on one line the
first counts, unless the later one has conditions that hold. docs/signatures.md describes a record.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any

import yaml

from safelaunch.diagnose import pattern_dialect
from safelaunch.diagnose.library_options import OPTIONS
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
_OPTION = re.compile(r"\{\{([\w-]+)\}\}")
_MAX_DEPTH = 16  # levels of YAML: stream, document, list, mapping, `when`, `versions`


class SignatureError(ValueError):
    """A record is wrong; the message says which and why."""


@functools.cache
def source_records() -> tuple[Record, ...]:
    """Return the records of `signatures/`. Raises SignatureError."""
    names = sorted(name for name in os.listdir(FOLDER) if name.endswith(".yaml"))
    return tuple(read_files(os.path.join(FOLDER, name) for name in names))


def read_files(paths: Iterable[str]) -> Iterator[Record]:
    """Yield the records of files. Raises SignatureError, also for an id used twice."""
    paths_by_id: dict[str, str] = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            _check_depth(yaml.parse(text, loader), path)
            records = yaml.load(text, loader)  # noqa: S506 - a safe loader
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
            raise SignatureError(f"{path}: {e}") from None
        for record in records if isinstance(records, list) else [records]:
            parsed = parse_record(record, path)
            name = parsed["id"]
            if name in paths_by_id:
                raise SignatureError(f"{path}: `{name}` is in {paths_by_id[name]} already")
            paths_by_id[name] = path
            yield parsed


def _check_depth(events: Iterable[Any], path: str) -> None:
    """Raise SignatureError for deep nesting: the composer in C crashes on it."""
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _MAX_DEPTH:
            line = event.start_mark.line + 1
            raise SignatureError(f"{path}:{line}: nested more than {_MAX_DEPTH} levels deep")


def parse_record(record: Any, path: str) -> Record:
    """Return a checked record for `table.Signature`, its patterns with their literal texts.

    Raises SignatureError.
    """
    if not isinstance(record, dict):
        raise SignatureError(f"{path}: a signature is a mapping, not `{record}`")
    where = f"{path}: {record.get('id', 'a signature without id')}"
    if missing := _REQUIRED - record.keys():
        raise SignatureError(f"{where}: {', '.join(sorted(missing))} missing")
    if unknown := record.keys() - _KEYS:
        raise SignatureError(f"{where}: {', '.join(sorted(unknown))} is not a key of a signature")
    for key in _TEXTS:
        if not isinstance(record.get(key, ""), str):
            raise SignatureError(f"{where}: {key} must be a text")
    lists = {key: _texts(record[key], f"{where}: {key}") for key in _LISTS}
    lists["remedy"] = [_with_options(step, f"{where}: remedy") for step in lists["remedy"]]
    _check_choice(record["class"], classes.TABLE, f"{where}: class")
    _check_choice(record["role"], ROLES, f"{where}: role")
    _check_choice(record.get("restart", RESTARTS[0]), RESTARTS, f"{where}: restart")
    try:
        for pattern in lists["patterns"]:
            pattern_dialect.check(pattern)
        patterns = [[pattern, *pattern_dialect.literals(pattern)] for pattern in lists["patterns"]]
        when = _conditions(record.get("when", {}), where)
    except pattern_dialect.PatternError as e:
        raise SignatureError(f"{where}: {e}") from None
    optional = {"restart": record.get("restart"), "likely": bool(record.get("likely")),
                "even_as_warning": bool(record.get("even_as_warning")), "when": when}  # fmt: skip
    return {
        **{key: record[key] for key in ("id", "class", "role")},
        **lists,
        "patterns": patterns,
        "cause": " ".join(record["cause"].split()),
        **{key: value for key, value in optional.items() if value},
    }


def _texts(value: Any, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise SignatureError(f"{where}: must be a text or a list of texts")
    return texts


def _with_options(step: str, where: str) -> str:
    """Return a step with the options of libraries that it names, each with its versions."""
    for key in _OPTION.findall(step):
        _check_choice(key, OPTIONS, where)
    return _OPTION.sub(lambda match: OPTIONS[match[1]].text, step)


def _check_choice(value: Any, choices: Iterable[str], where: str) -> None:
    if value not in choices:
        raise SignatureError(f"{where}: `{value}` is not one of {', '.join(choices)}")


def _conditions(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() - _CONDITIONS:
        raise SignatureError(f"{where}: `when` takes only {', '.join(sorted(_CONDITIONS))}")
    for key in _PATTERNS:
        if key in value:
            pattern_dialect.check(str(value[key]))
    if "phase" in value:
        _check_choice(value["phase"], PHASES, f"{where}: phase")
    versions = value.get("versions", {})
    if not isinstance(versions, dict):
        raise SignatureError(f'{where}: versions is a mapping like {{nccl: "<2.26.3"}}')
    return dict(value)


def compile_records(records: Iterable[Record]) -> str:
    """Return signatures as JSON for the runtime: one record a line, without samples."""
    compiled = ({key: record[key] for key in _COMPILED if key in record} for record in records)
    lines = (json.dumps(record, separators=(",", ":")) for record in compiled)
    return "[\n" + ",\n".join(lines) + "\n]\n"
