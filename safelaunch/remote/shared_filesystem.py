"""Which hosts see one file system: what one of them has, the others need not be sent."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from safelaunch.remote.parallel import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.machine import Machine


def groups(machines: Sequence[Machine], folders: Sequence[str]) -> list[list[int]]:
    """Return the indices of machines, those together whose folders are one and the same.

    The folders are made. Raises HostError.
    """
    return [[0]] if len(machines) == 1 else _compared(machines, folders, make=True)[0]


def seen(machines: Sequence[Machine], folders: Sequence[str]) -> list[list[int]] | None:
    """Return what `groups` does, and make no folder; None where one cannot be written.

    Of a folder that is not there the nearest one above it is looked at. Raises HostError.
    """
    found, are_left = _compared(machines, folders, make=False)
    return found if all(are_left) else None


def _compared(
    machines: Sequence[Machine], folders: Sequence[str], *, make: bool
) -> tuple[list[list[int]], list[bool]]:
    everyone = range(len(machines))
    tokens = [secrets.token_hex(8) for _ in everyone]

    def ask(index: int, verb: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = machines[index].agent.call(
            f"shared.{verb}", folder=folders[index], make=make, **more
        )
        return found

    def remove_markers() -> None:
        together(lambda index: ask(index, "take", token=tokens[index]), everyone)

    try:
        left = together(lambda index: ask(index, "leave", token=tokens[index])["left"], everyone)
        looked = together(lambda index: ask(index, "seen", tokens=tokens)["seen"], everyone)
    except Exception:  # not after Ctrl-C: the agents are busy then
        remove_markers()
        raise
    remove_markers()
    found: dict[int, list[int]] = {}
    for index in everyone:
        first = next((i for i in everyone if tokens[i] in looked[index]), index)
        found.setdefault(first, []).append(index)
    return list(found.values()), left
