"""`needs:` and `inputs:` of a job: what the machine must have, and the project must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.config import json_types
from safelaunch.config.keys import Key, Schema
from safelaunch.config.quantities import Glob, Size
from safelaunch.config.words import wrong
from safelaunch.model import Input, Needs

if TYPE_CHECKING:
    from safelaunch.config.json_types import Shape
    from safelaunch.config.load import Node

_SIZE = Size(1 << 20)
_PATH = Glob()
NEEDS = Schema(
    "needs",
    (
        Key("gpu_memory", _SIZE, "memory of each card"),
        Key("ram", _SIZE, "memory of the machine, or of its container"),
        Key("disk", _SIZE, "free space where the job writes"),
        Key("shm", _SIZE, "free space in /dev/shm"),
    ),
)


class NeedsType:
    """What each machine of the job must have: `{gpu_memory: 24GiB, ram: 64GiB}`."""

    wants = "a mapping such as {gpu_memory: 24GiB, disk: 200GiB}"

    def read(self, node: Node) -> Needs:
        """Return the sizes in bytes; None where nothing is needed."""
        if node.kind != "map":
            raise wrong(node, self.wants)
        return Needs(**NEEDS.read(node)[0])

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return NEEDS.schema()


class InputsType:
    """Paths, and globs that must match exactly one path, relative to workdir."""

    wants = "a list of paths or globs"

    def read(self, node: Node) -> tuple[Input, ...]:
        """Return the paths with their places."""
        if node.kind == "map" or node.is_null:
            raise wrong(node, self.wants)
        items = node.items if node.kind == "list" else (node,)
        return tuple(Input(_PATH.read(item), item.origin) for item in items)

    def schema(self) -> Shape:
        """Return the shape for editors."""
        return json_types.either(_PATH.schema(), json_types.listed(_PATH.schema()))
