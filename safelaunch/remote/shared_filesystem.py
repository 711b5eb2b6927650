"""Which hosts see one file system: what one of them has, the others need not be sent."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from safelaunch.remote.parallel import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.host_pool import Machine


def groups(machines: Sequence[Machine], folders: Sequence[str]) -> list[list[int]]:
    """Return the indices of machines, those together whose folders are one and the same.

    The folders are made. Raises HostError.
    """
    return [[0]] if len(machines) == 1 else _compare(machines, folders, make=True)[0]


def existing_groups(machines: Sequence[Machine], folders: Sequence[str]) -> list[list[int]] | None:
    """Return what `groups` does, and make no folder; None where one cannot be written.

    Instead of a folder that does not exist the nearest one above it is tried. Raises HostError.
    """
    indices, are_writable = _compare(machines, folders, make=False)
    return indices if all(are_writable) else None


def _compare(
    machines: Sequence[Machine], folders: Sequence[str], *, make: bool
) -> tuple[list[list[int]], list[bool]]:
    """Return the groups, and whether each folder could be written: by a marker file in each."""
    everyone = range(len(machines))
    tokens = [secrets.token_hex(8) for _ in everyone]

    def ask(index: int, verb: str, **words: Any) -> Any:
        folder = folders[index]
        return machines[index].agent.call(f"shared.{verb}", folder=folder, make=make, **words)

    def remove_markers() -> None:
        together(lambda index: ask(index, "take", token=tokens[index]), everyone)

    try:
        left = together(lambda index: ask(index, "leave", token=tokens[index])["left"], everyone)
        markers = together(lambda index: ask(index, "seen", tokens=tokens)["seen"], everyone)
    except Exception:  # not after Ctrl-C: the agents are busy then
        remove_markers()
        raise
    remove_markers()
    by_first: dict[int, list[int]] = {}
    for index in everyone:
        first = next((i for i in everyone if tokens[i] in markers[index]), index)
        by_first.setdefault(first, []).append(index)
    return list(by_first.values()), left
