"""Which numbers would do instead: the next smaller and the next larger one that fit a rule."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from safelaunch.analysis.arithmetic.expression import Unknown, value_of
from safelaunch.analysis.arithmetic.rules import SEARCH, derive, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.arithmetic.expression import Value
    from safelaunch.analysis.arithmetic.rules import Rule

_REACH = 512  # numbers tried in each direction: batch sizes and degrees of parallelism are small


def advice(rule: Rule, numbers: Mapping[str, Value], labels: Mapping[str, str]) -> str:
    """Return what to write instead: each number named cures the finding by itself."""
    said = []
    for name, fitting in changes(rule, numbers):
        label = labels.get(name, f"`{name}`")
        said.append(f"{label} to {' or '.join(str(value) for value in fitting)}")
    parts = ["set " + ", or ".join(said)] if said else []
    if rule.fix:
        parts.append(rule.fix.format_map(derive(rule, numbers)))
    return "; ".join(parts)


def changes(rule: Rule, numbers: Mapping[str, Value]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names with the values, ascending, under which all conditions hold."""
    for name, texts in rule.change.items():
        if not isinstance(numbers.get(name), int):
            continue
        proposed = (value for text in texts for value in _proposed(rule, numbers, name, text))
        fitting = sorted({value for value in proposed if _fits(rule, numbers, name, value)})
        if fitting:
            yield name, tuple(fitting)


def _proposed(rule: Rule, numbers: Mapping[str, Value], name: str, text: str) -> Iterator[int]:
    """Yield the value of an expression, or the nearest ones that fit."""
    now = numbers[name]
    if text != SEARCH:
        try:
            value = value_of(text, derive(rule, numbers))
        except Unknown:
            return
        if isinstance(value, int) and value > 0:
            yield value
    elif isinstance(now, int):
        # more processes than asked for need more GPUs: only fewer are proposed
        larger = range(now + 1, now + _REACH) if name != "processes" else range(0)
        for near in (range(now - 1, max(now - _REACH, 0), -1), larger):
            yield from islice((v for v in near if _fits(rule, numbers, name, v)), 1)


def _fits(rule: Rule, numbers: Mapping[str, Value], name: str, value: int) -> bool:
    try:
        return holds(rule, derive(rule, {**numbers, name: value}))
    except Unknown:
        return False
