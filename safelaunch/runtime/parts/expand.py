"""The parts of a run, and the values of the words of each."""

from __future__ import annotations

import itertools

from safelaunch.runtime.parts import PartsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.runtime.records import FanOutSpec

LIMIT = 10_000  # parts of one run: each has a folder with the files of a run


def part_count(spec: FanOutSpec) -> int:
    """Return how many parts there are. Raises PartsError."""
    count = _combinations(spec.matrix) if spec.matrix else spec.count
    if count < 1:
        raise PartsError("a run of no parts")
    if count > LIMIT:
        raise PartsError(f"{count:,} parts; at most {LIMIT:,} in one run")
    return count


def _combinations(matrix: Mapping[str, Sequence[str]]) -> int:
    count = 1
    for name, values in matrix.items():
        if not values:
            raise PartsError(f"no values of `{name}`")
        if len(set(values)) < len(values):
            raise PartsError(f"a value of `{name}` is there twice")
        count *= len(values)
    return count


def part_words(spec: FanOutSpec) -> list[dict[str, str]]:
    """Return the values of the words of each part; the last key of a matrix changes fastest.

    Raises PartsError.
    """
    count = part_count(spec)
    rows = itertools.product(*spec.matrix.values()) if spec.matrix else [()] * count
    return [
        {
            "shard.index": str(index),
            "shard.count": str(count),
            **{f"matrix.{name}": row[at] for at, name in enumerate(spec.matrix)},
        }
        for index, row in enumerate(rows)
    ]


def share(spec: FanOutSpec, count: int) -> list[int]:
    """Return the numbers of the parts that the coordinator with this file runs, of `count`."""
    if spec.hosts <= 1:
        return list(range(count))
    own = sorted(set(spec.share))
    if own and not 0 <= own[0] <= own[-1] < count:
        raise PartsError(f"part {own[-1]} of {count}")
    return own


def lanes(spec: FanOutSpec, cores: int) -> list[str]:
    """Return the cards of each of the parts that run at once, "" where a part has none.

    `cores` are those of the machine that may be used. Raises PartsError.
    """
    size = spec.cards_each
    if not size:
        return [""] * (spec.at_once or cores)
    rows = [spec.cards[at : at + size] for at in range(0, len(spec.cards) - size + 1, size)]
    if not rows:
        raise PartsError(f"{size} cards for each part, and the run has {len(spec.cards)}")
    return [",".join(row) for row in rows][: spec.at_once or None]
