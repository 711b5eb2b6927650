"""Where the mounts of a `container:` block are on the machine, and in the container."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.model import Container, Mount, Origin, Slot, Word, text
from safelaunch.runtime.containers.command_line import HOME

if TYPE_CHECKING:
    from collections.abc import Callable


def place_mounts(block: Container, absolute: Callable[[str, Origin], Word]) -> Container:
    """Return the block with absolute paths; `absolute` resolves one of a file. Raises ConfigError.

    `~/x` without a target is `~/x` in the container too, whose home is another folder.
    """
    return replace(block, mounts=tuple(_place(mount, absolute) for mount in block.mounts))


def _place(mount: Mount, absolute: Callable[[str, Origin], Word]) -> Mount:
    path = str(mount.source)
    if path != "~" and not path.startswith("~/"):
        return replace(mount, source=absolute(path, mount.origin))
    target = text(Slot.STORE, f"/{HOME}{path[1:]}") if mount.target is None else mount.target
    return replace(mount, source=text(Slot.HOME, path[1:]), target=target)
