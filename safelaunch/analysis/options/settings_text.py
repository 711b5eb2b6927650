"""Reads the keys of a YAML or JSON settings file with their values and line numbers."""

# ruff: noqa: PLC0415 - yaml and json are imported only for programs that read such a file

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple


class SettingsEntry(NamedTuple):
    """A key of a settings file at its top level, and its value as the file's format reads it."""

    key: str
    value: Any
    line: int
    text: str  # the value as written, of a scalar in YAML


@lru_cache(maxsize=8)  # the job, its resume and its smoke run name the same file
def read_entries(path: str, data: bytes) -> tuple[SettingsEntry, ...] | None:
    """Return the entries of a mapping in the order of the file; None where it is no mapping."""
    try:
        return _json_entries(data) if path.endswith(".json") else _yaml_entries(data)
    except Exception:  # noqa: BLE001 - whatever a file may contain: other checks report it
        return None


def _yaml_entries(data: bytes) -> tuple[SettingsEntry, ...] | None:
    """Return what `yaml.safe_load` reads: PyYAML, as in transformers and TRL."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(data)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            return None
        loader.flatten_mapping(node)  # `<<: *defaults`
        entries: dict[str, SettingsEntry] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            value = loader.construct_object(value_node, deep=True)
            text = value_node.value if isinstance(value_node, yaml.ScalarNode) else ""
            if not isinstance(key, str):
                return None
            entries.pop(key, None)  # the last of two wins
            entries[key] = SettingsEntry(key, value, key_node.start_mark.line + 1, text)
        return tuple(entries.values())
    finally:
        loader.dispose()


def _json_entries(data: bytes) -> tuple[SettingsEntry, ...] | None:
    import json

    text = data.decode("utf-8")
    values = json.loads(text)
    if not isinstance(values, dict):
        return None
    return tuple(
        SettingsEntry(key, value, _line(text, key), "" if value is None else str(value))
        for key, value in values.items()
    )


def _line(text: str, key: str) -> int:
    """Return the first line with a key of a JSON file."""
    import json

    match = re.search(re.escape(json.dumps(key)) + r"\s*:", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1
