"""Which hosts see one file system: what one of them has, the others need not be sent."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from safelaunch.remote.together import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.start import Machine


def groups(machines: Sequence[Machine], folders: Sequence[str]) -> list[list[int]]:
    """Return the indices of machines, those together whose folders are one and the same.

    Raises HostError.
    """
    everyone = range(len(machines))
    if len(machines) == 1:
        return [[0]]
    tokens = [secrets.token_hex(8) for _ in everyone]

    def ask(index: int, verb: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = machines[index].agent.call(
            f"shared.{verb}", folder=folders[index], **more
        )
        return found

    def take() -> None:
        together(lambda index: ask(index, "take", token=tokens[index]), everyone)

    try:
        together(lambda index: ask(index, "leave", token=tokens[index]), everyone)
        seen = together(lambda index: ask(index, "seen", tokens=tokens)["seen"], everyone)
    except Exception:  # not after Ctrl-C: the agents are busy then
        take()
        raise
    take()
    found: dict[int, list[int]] = {}
    for index in everyone:
        first = next((i for i in everyone if tokens[i] in seen[index]), index)
        found.setdefault(first, []).append(index)
    return list(found.values())
