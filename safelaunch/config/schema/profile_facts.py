"""The facts of a profile: what a platform is, each with the source that says so."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.text_checks import check_kind, read_words
from safelaunch.config.schema.types import Text
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import ProfileFact

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

_FIELDS = ("value", "source")
DATE = Text("a date", r"20\d\d-[01]\d-[0-3]\d", "is no date such as 2026-11-23")


class FactsType:
    """Facts by name: a text, or {value, source}. A null removes an inherited one."""

    wants = "a mapping of facts"

    def read(self, node: Node) -> dict[str, ProfileFact]:
        check_kind(node, "map", self.wants)
        return {key.text: self._fact(key, value) for key, value in node.items if not value.is_null}

    def schema(self) -> Shape:
        text = json_types.text()
        fact = {**json_types.record(dict.fromkeys(_FIELDS, text)), "required": ["value"]}
        return json_types.mapped(json_types.nullable(json_types.either(text, fact)))

    def _fact(self, key: Node, value: Node) -> ProfileFact:
        if value.kind == "scalar":
            return ProfileFact(Text().read(value), "", value.origin)
        check_kind(value, "map", "a text or {value: ..., source: ...}")
        for field, _ in value.items:
            if field.text not in _FIELDS:
                hint = did_you_mean(field.text, _FIELDS) or f"known: {', '.join(_FIELDS)}"
                raise ConfigError(f"unknown key `{field.text}`", where=field.origin, hint=hint)
        text, source = value.get("value"), value.get("source")
        if text is None or text.is_null:
            raise ConfigError(f"`{key.text}` has no `value`", where=key.origin)
        words = "" if source is None or source.is_null else " ".join(read_words(source).split())
        return ProfileFact(Text().read(text), words, text.origin)
