"""How variables are written: in jobs and hosts, and in profiles with their reasons and gates."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import (
    MAX_WORD,
    check_kind,
    check_secret,
    read_words,
    wrong,
)
from safelaunch.config.schema.types import Choice, ListOf, Text
from safelaunch.config.yaml_io.node import Node
from safelaunch.environ import check_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import EnvVar, Gate, ProfileVar

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape

_NAME = {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
_FIELDS = ("value", "why", "cost", "source", "workaround", "when", "example")
_GATES = ("gpus", "nodes", "nccl", "driver", "torch", "cuda", "p2p")
_PART = r"(==|!=|<=|>=|<|>)?\s*[0-9]+(\.[0-9]+)*(\.post[0-9]+|rc[0-9]+)?"
_CONDITION = rf"\s*{_PART}(\s*,\s*{_PART})*\s*"
_YES_OR_NO = ("yes", "no")  # the condition of `p2p`
_PATHS = ListOf(Text(), "paths", single=True)


class EnvType:
    """Variables: `NAME: value` in the file's spelling, null removes, `{prepend: ...}`."""

    wants = "a mapping of variables"

    def read(self, node: Node) -> tuple[EnvVar, ...]:
        check_kind(node, "map", self.wants)
        return tuple(self._variable(key, value) for key, value in node.items)

    def schema(self) -> Shape:
        paths = {**_PATHS.schema(), "description": "put before the target's own"}
        prepend = {**json_types.record({"prepend": paths}), "required": ["prepend"]}
        value = json_types.either(json_types.nullable(json_types.text()), prepend)
        return json_types.mapped(value, _NAME)

    def _variable(self, key: Node, value: Node) -> EnvVar:
        check_name(key.text, key.origin)
        check_secret(key.text, value)
        if value.is_null:
            return EnvVar(key.text, None, value.origin)
        if value.kind == "map":
            return self._prepend(key, value)
        check_kind(value, "scalar", "a single value, null or {prepend: ...}")
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
        words = _PATHS.read(paths)
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
    """Variables of a profile: a value, or {value, why, cost, source, workaround, when, example}.

    A null removes an inherited one. `valued`: a mapping must give a value.
    """

    wants = "a mapping of variables"

    def __init__(self, *, valued: bool = True) -> None:
        self.valued = valued

    def read(self, node: Node) -> tuple[ProfileVar, ...]:
        check_kind(node, "map", self.wants)
        variables = (self._variable(key, value) for key, value in node.items)
        return tuple(var for var in variables if var is not None)

    def schema(self) -> Shape:
        note = json_types.nullable(json_types.text())
        condition = json_types.text(_CONDITION, 'expected a condition such as ">1"')
        gates = dict.fromkeys(_GATES, json_types.nullable(condition))
        gates["p2p"] = json_types.nullable(json_types.words(*_YES_OR_NO))
        fields = {
            **dict.fromkeys(_FIELDS, note),
            "workaround": json_types.words("true", "false"),
            "when": json_types.nullable(json_types.record(gates)),
        }
        return json_types.mapped(json_types.either(note, json_types.record(fields)), _NAME)

    def _variable(self, key: Node, value: Node) -> ProfileVar | None:
        check_name(key.text, key.origin)
        if value.is_null:
            return None
        if value.kind == "scalar":
            return ProfileVar(EnvVar(key.text, env_text(key.text, value), value.origin))
        check_kind(value, "map", "a value or a mapping")
        for entry, _ in value.items:
            if entry.text not in _FIELDS:
                hint = did_you_mean(entry.text, _FIELDS)
                raise ConfigError(f"unknown key `{entry.text}`", where=entry.origin, hint=hint)
        return self._from_fields(key, value)

    def _from_fields(self, key: Node, fields: Node) -> ProfileVar:
        value = fields.get("value")
        if self.valued and (value is None or value.is_null):
            raise ConfigError(f"`{key.text}` has no `value`", where=key.origin)
        workaround = fields.get("workaround")
        var = EnvVar(
            key.text,
            env_text(key.text, value) if value is not None else None,
            key.origin,
            why=_note(fields, "why"),
            cost=_note(fields, "cost"),
            source=_note(fields, "source"),
            workaround=workaround is not None
            and Choice(("true", "false")).read(workaround) == "true",
        )
        return ProfileVar(var, _gates(fields.get("when")), _note(fields, "example"))


def _note(fields: Node, key: str) -> str:
    node = fields.get(key)
    return "" if node is None or node.is_null else " ".join(read_words(node).split())


def _gates(when: Node | None) -> tuple[Gate, ...]:
    if when is None or when.is_null:
        return ()
    check_kind(when, "map", 'conditions such as {gpus: ">1", nccl: "<2.26.5"}')
    gates = []
    for key, value in when.items:
        if value.is_null:
            continue  # removes an inherited gate
        if key.text not in _GATES:
            hint = did_you_mean(key.text, _GATES)
            raise ConfigError(f"unknown condition `{key.text}`", where=key.origin, hint=hint)
        if key.text == "p2p":
            gates.append(Gate(key.text, Choice(_YES_OR_NO).read(value), value.origin))
            continue
        condition = read_words(value)
        if not re.fullmatch(_CONDITION, condition):
            raise wrong(value, 'a condition such as ">1" or "<2.26.5,!=2.26.2.post1"')
        gates.append(Gate(key.text, condition.strip(), value.origin))
    return tuple(gates)
