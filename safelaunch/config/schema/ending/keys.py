"""The keys about the end of a run: commands, upload, shutdown, and what ends it from outside."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.keys import Block, Key, Schema
from safelaunch.config.schema.text_checks import check_kind, read_command_words, shorten, wrong
from safelaunch.config.schema.types import Choice, ListOf, PathText, SetupType, Text
from safelaunch.config.schema.units import Duration, Glob
from safelaunch.errors import ConfigError
from safelaunch.model import MaxCost, Preemption, Shutdown, Upload

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

OFF = "off"
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_EXPANDED = re.compile(r"\$[A-Za-z_{(]|^~(/|$)")
_LINE = SetupType()


class CommandType:
    """A line of bash as text, or the words of a program as a list."""

    wants = "a line of bash, or a list of words"

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the words; those of a line are bash's. Raises ConfigError."""
        if node.kind == "scalar" and not node.is_null:
            line = _LINE.read(node)[0]
            if not line.strip():
                raise ConfigError("an empty command", where=node.origin)
            return ("bash", "-c", line)
        check_kind(node, "list", self.wants)
        words = read_command_words(node)
        if not words or not words[0]:
            raise wrong(node, self.wants)
        for word, item in zip(words, node.items, strict=True):
            if _EXPANDED.search(word):
                raise ConfigError(
                    f"`{shorten(word)}` in a list of words: no shell replaces it",
                    where=item.origin,
                    hint="write the whole command as one line of text, as for a shell",
                )
        return words

    def schema(self) -> Shape:
        return json_types.either(
            json_types.text(), json_types.listed(json_types.text(), minItems=1)
        )


class CommandsType(ListOf):
    """One command, or a list of them; a list of words stands in a list of its own."""

    def __init__(self) -> None:
        super().__init__(CommandType(), 'commands, such as ["./notify.sh"]', single=True)

    def schema(self) -> Shape:
        return json_types.either(json_types.listed(self.item.schema()), json_types.text())


class Amount:
    """A number above zero: of money, in the currency of the user's."""

    wants = "a number above 0, such as 40 or 1.2"

    def read(self, node: Node) -> float:
        match = node.kind == "scalar" and _NUMBER.fullmatch(node.text)
        value = float(node.text) if match else 0.0
        if not value or not math.isfinite(value):
            raise wrong(node, self.wants)
        return value

    def schema(self) -> Shape:
        return {"type": "number", "exclusiveMinimum": 0}


_TARGET = Text(
    "a place",
    r":?[^\s:-][^\s:]*:\S*",
    "is no place such as `remote:bucket/path` or `s3://bucket/path`",
)
_GLOBS = ListOf(Glob(inside=True), "globs", single=True)
UPLOAD = Schema(
    "upload",
    (
        Key("to", _TARGET, "remote:path as rclone names it, or a URL of fsspec: s3://bucket/path"),
        Key("with", Choice(("rclone", "fsspec")), "default: fsspec for a URL, rclone otherwise"),
        Key("files", _GLOBS, "globs relative to the working directory"),
        Key("timeout", Duration(), "what it may take at most; default: 1d"),
    ),
)
SHUTDOWN = Schema(
    "shutdown",
    (
        Key(
            "command", CommandType(), "what turns the machine off, such as `runpodctl stop pod ..`"
        ),
        Key("grace", Duration(zero=True), "in which a person can keep it on; default: 5m"),
        Key("pull_wait", Duration(zero=True), "wait for a client to fetch `pull`; default: 1h"),
        Key("others", Choice(("wait", "ignore")), "whether people, and runs of others, keep it on"),
    ),
)
MAX_COST = Schema(
    "max_cost",
    (
        Key("per_hour", Amount(), "what the machines of the run cost together for an hour"),
        Key("total", Amount(), "the budget: the run is stopped when it is used up"),
    ),
)
PRESETS = {
    # seconds between the notice and the end, less some for what comes after the ranks
    "aws": Preemption(url="http://169.254.169.254/latest/meta-data/spot/instance-action",
                      kind="aws", grace=100),
    "gcp": Preemption(url="http://169.254.169.254/computeMetadata/v1/instance/preempted",
                      kind="gcp", grace=20),
    "azure": Preemption(url="http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
                        kind="azure", grace=20),
    "sigterm": Preemption(sigterm=True, grace=8),
}  # fmt: skip
PREEMPTION = Schema(
    "preemption",
    (
        Key("preset", Choice(tuple(PRESETS)), "aws, gcp, azure, or sigterm: that of a container"),
        Key("file", PathText(), "absolute path of a file that is there from the notice on"),
        Key("url", Text("a URL", r"https?://\S+", "is no http:// URL"), "answers 200 from then on"),
        Key("every", Duration(), "time between two looks; default: 5s"),
        Key("grace", Duration(), "time between TERM and KILL of the ranks; default: 25s"),
    ),
)


class UploadType:
    """Where to, which files, and by what program."""

    wants = "a mapping such as {to: s3://bucket/run, files: [out/**]}"

    def read(self, node: Node) -> Upload:
        check_kind(node, "map", self.wants)
        values, _ = UPLOAD.read(node)
        for key in ("to", "files"):
            if not values.get(key):
                raise ConfigError(f"`upload` without `{key}`", where=node.origin, hint=self.wants)
        to = values["to"]
        program = values.pop("with", "fsspec" if "://" in to else "rclone")
        if program == "rclone" and "://" in to:
            hint = "rclone names a place as `remote:path`; `rclone listremotes` lists yours"
            raise ConfigError(
                f"`{shorten(to)}` is no place of rclone", where=node.origin, hint=hint
            )
        return Upload(program=program, **values)

    def schema(self) -> Shape:
        return UPLOAD.schema()


class ShutdownType:
    """`off`, or the command and its conditions."""

    wants = "`off`, or a mapping such as {command: 'sudo shutdown -h now', grace: 10m}"

    def read(self, node: Node) -> Shutdown:
        if node.kind == "scalar" and node.text == OFF:
            return Shutdown(())
        check_kind(node, "map", self.wants)
        values, _ = SHUTDOWN.read(node)
        if not values.get("command"):
            raise ConfigError("`shutdown` without `command`", where=node.origin, hint=self.wants)
        return Shutdown(**values)

    def schema(self) -> Shape:
        return json_types.either(json_types.words(OFF), SHUTDOWN.schema())


class PreemptionType:
    """`off`, a preset, or where the notice comes from."""

    wants = "off, aws, gcp, azure, sigterm, or a mapping such as {file: /run/preempted}"

    def read(self, node: Node) -> Preemption:
        if node.kind == "scalar" and (node.text == OFF or node.text in PRESETS):
            return PRESETS.get(node.text, Preemption())
        check_kind(node, "map", self.wants)
        values, origins = PREEMPTION.read(node)
        base = PRESETS.get(values.pop("preset", ""), Preemption())
        own = {
            key: getattr(base, key) for key in ("file", "url", "kind", "sigterm", "every", "grace")
        }
        source = Preemption(**{**own, **values})
        if not (source.file or source.url or source.sigterm):
            raise ConfigError("`preemption` has no source", where=node.origin, hint=self.wants)
        if source.file and not source.file.startswith("/"):
            raise ConfigError(f"`{source.file}` is not absolute", where=origins["file"])
        return source

    def schema(self) -> Shape:
        return json_types.either(json_types.words(OFF, *PRESETS), PREEMPTION.schema())


_COMMANDS = CommandsType()
_COST = Block(MAX_COST, "a mapping such as {per_hour: 1.2, total: 40}", MaxCost)
HOST_END_KEYS = (
    Key("on_success", _COMMANDS, "commands after a good end"),
    Key("on_failure", _COMMANDS, "commands after a failure"),
    Key("on_end", _COMMANDS, "commands after any end"),
    Key("upload", UploadType(), "files that are copied to a store at the end, and compared"),
    Key("shutdown", ShutdownType(), "what turns a rented machine off, once results are safe"),
    Key("max_cost", _COST, "price per hour and budget, which stops the run"),
    Key("preemption", PreemptionType(), "where a spot machine says that it is taken away"),
)
END_KEYS = (
    *HOST_END_KEYS[:3],
    Key("end_timeout", Duration(), "what each of these commands may take; default: 10m"),
    *HOST_END_KEYS[3:],
    Key("pull", _GLOBS, "files that the client which waits for the end fetches"),
)
