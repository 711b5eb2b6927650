"""How variables are written: in jobs and hosts, and in profiles with their reasons and gates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import MAX_WORD, check_secret, read_words, wrong
from safelaunch.config.schema.types import Choice, ListOf, Text
from safelaunch.config.yaml_io.node import Node
from safelaunch.environ import check_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import EnvVar, Gate, ProfileVar

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape

_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
_RECORD = ("value", "why", "cost", "source", "workaround", "when", "example")


class EnvType:
    """Variables: `NAME: value` in the file's spelling, null removes, `{prepend: ...}`."""

    wants = "a mapping of variables"

    def read(self, node: Node) -> tuple[EnvVar, ...]:
        """Return the variables in file order."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        return tuple(self._variable(key, value) for key, value in node.items)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        paths = ListOf(Text(), "paths", single=True).schema()
        before = {
            "type": "object",
            "additionalProperties": False,
            "required": ["prepend"],
            "properties": {"prepend": {**paths, "description": "put before the target's own"}},
        }
        value = json_types.either(json_types.nullable(json_types.text()), before)
        return json_types.mapped(value, {"pattern": _NAME})

    def _variable(self, key: Node, value: Node) -> EnvVar:
        check_name(key.text, key.origin)
        check_secret(key.text, value)
        if value.is_null:
            return EnvVar(key.text, None, value.origin)
        if value.kind == "map":
            return self._prepend(key, value)
        if value.kind == "list":
            raise wrong(value, "a single value, null or {prepend: ...}")
        return EnvVar(key.text, env_text(key.text, value), value.origin)

    def _prepend(self, key: Node, value: Node) -> EnvVar:
        for entry, _ in value.items:
            if entry.text != "prepend":
                raise ConfigError(
                    f"unknown key `{entry.text}`", where=entry.origin, hint="known here: `prepend`"
                )
        paths = value.get("prepend")
        if paths is None:
            raise wrong(value, "a single value, null or {prepend: ...}")
        check_secret(key.text, paths)
        words = ListOf(Text(), "paths", single=True).read(paths)
        if not any(words):
            raise ConfigError("nothing to prepend", where=paths.origin)
        joined = Node("scalar", paths.origin, text=":".join(words))
        return EnvVar(key.text, env_text(key.text, joined), value.origin, prepend=True)


def env_text(name: str, node: Node) -> str:
    """Return the value of a variable; it must fit into one string of execve."""
    value = read_words(node)
    if len(value) > MAX_WORD // 4 and len(f"{name}={value}".encode()) > MAX_WORD:
        raise ConfigError(
            f"`{name}` is longer than Linux takes ({MAX_WORD:,} bytes with its name)",
            where=node.origin,
        )
    return value


class ProfileEnvType:
    """Variables of a profile: a value, or {value, why, cost, source, workaround, when, example}."""

    wants = "a mapping of variables"

    def __init__(self, *, valued: bool = True) -> None:
        self.valued = valued

    def read(self, node: Node) -> tuple[ProfileVar, ...]:
        """Return the variables with their gates; a null removes an inherited one."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        found = (self._variable(key, value) for key, value in node.items)
        return tuple(var for var in found if var is not None)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        note = json_types.nullable(json_types.text())
        condition = json_types.nullable(
            json_types.text(_CONDITION, 'expected a condition such as ">1"')
        )
        known: dict[str, Shape] = {
            **dict.fromkeys(_RECORD, note),
            "workaround": json_types.words("true", "false"),
            "when": {
                "type": ["object", "null"],
                "additionalProperties": False,
                "properties": dict.fromkeys(_GATES, condition),
            },
        }
        record = {"type": "object", "additionalProperties": False, "properties": known}
        return json_types.mapped(json_types.either(note, record), {"pattern": _NAME})

    def _variable(self, key: Node, value: Node) -> ProfileVar | None:
        check_name(key.text, key.origin)
        if value.is_null:
            return None
        if value.kind == "scalar":
            return ProfileVar(EnvVar(key.text, env_text(key.text, value), value.origin))
        if value.kind != "map":
            raise wrong(value, "a value or a mapping")
        for entry, _ in value.items:
            if entry.text not in _RECORD:
                raise ConfigError(
                    f"unknown key `{entry.text}`",
                    where=entry.origin,
                    hint=did_you_mean(entry.text, _RECORD),
                )
        return self._record(key, value)

    def _record(self, key: Node, record: Node) -> ProfileVar:
        value = record.get("value")
        if self.valued and (value is None or value.is_null):
            raise ConfigError(f"`{key.text}` has no `value`", where=key.origin)
        workaround = record.get("workaround")
        when = record.get("when")
        var = EnvVar(
            key.text,
            env_text(key.text, value) if value is not None else None,
            key.origin,
            why=_note(record, "why"),
            cost=_note(record, "cost"),
            source=_note(record, "source"),
            workaround=workaround is not None
            and Choice(("true", "false")).read(workaround) == "true",
        )
        gates = _gates(when) if when is not None and not when.is_null else ()
        return ProfileVar(var, gates, _note(record, "example"))


def _note(record: Node, key: str) -> str:
    node = record.get(key)
    return "" if node is None or node.is_null else " ".join(read_words(node).split())


_GATES = ("gpus", "nodes", "nccl", "driver", "torch", "cuda")
_ONE = r"(==|!=|<=|>=|<|>)?\s*[0-9]+(\.[0-9]+)*(\.post[0-9]+|rc[0-9]+)?"
_CONDITION = rf"\s*{_ONE}(\s*,\s*{_ONE})*\s*"


def _gates(when: Node) -> tuple[Gate, ...]:
    if when.kind != "map":
        raise wrong(when, 'conditions such as {gpus: ">1", nccl: "<2.26.5"}')
    gates = []
    for key, value in when.items:
        if value.is_null:
            continue  # lifts an inherited gate
        if key.text not in _GATES:
            raise ConfigError(
                f"unknown condition `{key.text}`",
                where=key.origin,
                hint=did_you_mean(key.text, _GATES),
            )
        condition = read_words(value)
        if not re.fullmatch(_CONDITION, condition):
            raise wrong(value, 'a condition such as ">1" or "<2.26.5,!=2.26.2.post1"')
        gates.append(Gate(key.text, condition.strip(), value.origin))
    return tuple(gates)
