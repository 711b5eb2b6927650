"""The keys of the parts of a job: pieces of its input, or combinations of values."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.text_checks import check_kind
from safelaunch.config.schema.types import Choice, Count, ListOf, MapOf, PathText, Text, WordsType
from safelaunch.model import FanOut, Merge
from safelaunch.runtime.parts import FORMATS, MERGES

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

_MERGE = Schema(
    "merge",
    (
        Key("output", PathText(), "the file, in the working directory"),
        Key("by", Choice(MERGES), "lines, jsonl, csv or json; default: by the name's ending"),
        Key("command", WordsType(), "a command instead, with {merge.inputs} and {merge.output}"),
    ),
)


class MergeType:
    """The file of the joined outputs, or a mapping."""

    wants = "a file, or a mapping such as {output: FILE}"

    def read(self, node: Node) -> Merge:
        if node.kind == "scalar":
            return _with_form(Merge(PathText().read(node)), None)
        check_kind(node, "map", self.wants)
        values = _MERGE.read(node)[0]
        merge = Merge(values.get("output", ""), command=tuple(values.get("command", ())))
        return _with_form(merge, values.get("by"))

    def schema(self) -> Shape:
        return json_types.either(PathText().schema(), _MERGE.schema())


def _with_form(merge: Merge, form: str | None) -> Merge:
    ending = merge.output.rpartition(".")[2]
    return replace(merge, by=form or (ending if ending in MERGES else "lines"))


SHARDS = Schema(
    "shards",
    (
        Key("parts", Count(), "how many"),
        Key("over", PathText(), "the file that is divided among them"),
        Key("by", Choice(FORMATS), "lines, jsonl or csv; default: lines"),
        Key("merge", MergeType(), "joins the outputs: a file, or {output: FILE, by: jsonl}"),
    ),
)


class ShardsType:
    """A number of parts, or a mapping."""

    wants = "a number of parts, or a mapping such as {over: FILE, parts: 8}"

    def read(self, node: Node) -> FanOut:
        if node.kind == "scalar":
            return FanOut(count=Count().read(node))
        check_kind(node, "map", self.wants)
        values = SHARDS.read(node)[0]
        form, merge = values.get("by", "lines"), values.get("merge")
        return FanOut(values.get("parts", 0), {}, values.get("over"), form, None, merge)

    def schema(self) -> Shape:
        return json_types.either(Count().schema(), SHARDS.schema())


FAN_OUT_KEYS = (
    Key("shards", ShardsType(), "parts of the job: 8, or {over: FILE, by: jsonl, parts: 8}"),
    Key("matrix", MapOf(ListOf(Text(), "values"), "names to values"), "a part per combination"),
    Key("part_gpus", Count(), "cards of each part; default: its `processes`, else 1"),
    Key("at_once", Count(), "parts that run at the same time; default: the usable cores"),
)
