"""The blocks of a job file with keys of their own: success, hang, recovery, needs, inputs.

Each block is a schema of its own. What depends on the rest of the job is checked in supervision.py.
"""
# ruff: noqa: D102 - types.Type describes `read` and `schema`
# ruff: noqa: PLC0415 - the failure classes are imported only by files and schemas that name them

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.text_checks import check_kind, wrong
from safelaunch.config.schema.types import ArgsType, Choice, Count, ListOf, Text
from safelaunch.config.schema.units import Bool, Duration, Glob, Pattern, Size
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Hang, Input

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node


class FailureClasses:
    """Failure classes and what to do about each: `{port-in-use: restart, cuda-oom: stop}`."""

    wants = "a mapping of failure classes to restart or stop"
    action = Choice(("restart", "stop"))

    def read(self, node: Node) -> dict[str, str]:
        """Return {class: "restart" or "stop"}; a null removes an inherited entry."""
        from safelaunch.runtime.signatures import classes

        check_kind(node, "map", self.wants)
        for key, _ in node.items:
            if key.text not in classes.TABLE:
                raise ConfigError(
                    f"unknown failure class `{key.text}`",
                    where=key.origin,
                    hint=did_you_mean(key.text, classes.TABLE) or "docs/job-file.md lists them",
                )
        return {k.text: self.action.read(value) for k, value in node.items if not value.is_null}

    def schema(self) -> Shape:
        from safelaunch.runtime.signatures import classes

        action = json_types.nullable(self.action.schema())
        shapes = {name: {**action, "description": c.meaning} for name, c in classes.TABLE.items()}
        return json_types.record(shapes)


_SIZE = Size(1 << 20)
_PATH = Glob()
NEEDS = Schema(
    "needs",
    (
        Key("gpu_memory", _SIZE, "memory of each GPU"),
        Key("ram", _SIZE, "memory of the machine, or of its container"),
        Key("disk", _SIZE, "free space where the job writes"),
        Key("shm", _SIZE, "free space in /dev/shm"),
    ),
)
SUCCESS = Schema(
    "success",
    (
        Key("artifacts", ListOf(Glob(inside=True), "globs", single=True), "files of a good run"),
        Key("min_steps", Count(), "steps that a good run has made"),
    ),
)
HANG = Schema(
    "hang",
    (
        Key("action", Choice(("report", "restart", "stop")), "what to do about a suspected hang"),
        Key("first_progress", Duration(), "the limit until two steps have been seen"),
        Key("factor", Count(), "so many median steps without progress are a hang"),
        Key("floor", Duration(), "never suspect a hang before"),
    ),
)
RECOVERY = Schema(
    "recovery",
    (
        Key("max_restarts", Count(0), "so many restarts at most"),
        Key("backoff", Duration(zero=True), "pause before the first restart, doubled each time"),
        Key("backoff_max", Duration(zero=True), "the longest pause"),
        Key("budget", Duration(), "no restart later than this after the start"),
        Key("classes", FailureClasses(), "restart or stop, by failure class"),
        Key("checkpoint", Glob(), "a new match is progress"),
        Key("progress", Pattern(), "a line of the log that is progress"),
        Key("no_progress", Count(), "stop after so many attempts without progress"),
        Key("resume_args", ArgsType(), "merged over `args` from the second attempt on"),
        Key("fingerprint", ListOf(Text("a name"), "names"), "more arguments that must not change"),
        Key("ladder", Bool(), "climb the profile's ladder on illegal memory access"),
    ),
)
BLOCKS = {schema.name: schema for schema in (SUCCESS, HANG, RECOVERY, NEEDS)}


class HangType:
    """`off`, which reads as None, or a mapping of which every part has a default."""

    wants = "`off` or a mapping such as {action: stop}"

    def read(self, node: Node) -> Hang | None:
        if node.kind == "scalar" and node.text == "off":
            return None
        if node.kind != "map":
            error = wrong(node, self.wants)
            if node.kind == "scalar" and node.text in ("report", "restart", "stop"):
                error.hint = f"hang: {{action: {node.text}}}"
            elif node.kind == "scalar" and node.text == "false":
                error.hint = "hang: off"
            raise error
        return Hang(**HANG.read(node)[0])

    def schema(self) -> Shape:
        return json_types.either(json_types.words("off"), HANG.schema())


class InputsType:
    """Paths, and globs that must match exactly one path, relative to workdir."""

    wants = "a list of paths or globs"

    def read(self, node: Node) -> tuple[Input, ...]:
        if node.kind == "map" or node.is_null:
            raise wrong(node, self.wants)
        items = node.items if node.kind == "list" else (node,)
        return tuple(Input(_PATH.read(item), item.origin) for item in items)

    def schema(self) -> Shape:
        return json_types.either(_PATH.schema(), json_types.listed(_PATH.schema()))
