"""The order of things that wait for each other by name: steps, services."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class OrderCycle(Exception):  # noqa: N818 - what it is
    """Names that wait for each other: `path` begins and ends with the same."""

    def __init__(self, path: Sequence[str]) -> None:
        super().__init__(" -> ".join(path))
        self.path = path


def in_order(after: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names, each after those that it waits for, else as they come. Raises OrderCycle.

    Each name that is waited for is one of them.
    """
    ordered: list[str] = []
    left = list(after)
    while left:
        free = next((name for name in left if all(need in ordered for need in after[name])), None)
        if free is None:
            raise OrderCycle(_cycle(after, left))
        ordered.append(free)
        left.remove(free)
    return ordered


def _cycle(after: Mapping[str, Sequence[str]], left: Sequence[str]) -> list[str]:
    """Return a path of names from one to itself, each waiting for the next."""
    path = [left[0]]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in after[path[-1]] if name in left))
    return path[path.index(path[-1]) :]
