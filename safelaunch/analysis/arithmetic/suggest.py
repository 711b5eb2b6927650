"""Suggests values that satisfy a rule: the next smaller and the next larger one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from safelaunch.analysis.arithmetic.expression import NoValue, value_of
from safelaunch.analysis.arithmetic.rules import SEARCH, derive, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.arithmetic.expression import Value
    from safelaunch.analysis.arithmetic.rules import Rule

_MAX_DISTANCE = 512  # numbers tried in each direction: batch sizes and degrees are small


def suggest_fix(rule: Rule, numbers: Mapping[str, Value], labels: Mapping[str, str]) -> str:
    """Return the fix as text; each suggested number alone resolves the problem."""
    settings = []
    for name, values in fitting_values(rule, numbers):
        label = labels.get(name, f"`{name}`")
        settings.append(f"{label} to {' or '.join(str(value) for value in values)}")
    parts = ["set " + ", or ".join(settings)] if settings else []
    if rule.fix:
        parts.append(rule.fix.format_map(derive(rule, numbers)))
    return "; ".join(parts)


def fitting_values(
    rule: Rule, numbers: Mapping[str, Value]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (name, ascending values) with which all conditions hold."""
    for name, texts in rule.change.items():
        if not isinstance(numbers.get(name), int):
            continue
        proposed = (value for text in texts for value in _proposals(rule, numbers, name, text))
        values = sorted({value for value in proposed if _fits(rule, numbers, name, value)})
        if values:
            yield name, tuple(values)


def _proposals(rule: Rule, numbers: Mapping[str, Value], name: str, text: str) -> Iterator[int]:
    """Yield the value of an expression, or the nearest values that satisfy the rule."""
    current = numbers[name]
    if text != SEARCH:
        try:
            value = value_of(text, derive(rule, numbers))
        except NoValue:
            return
        if isinstance(value, int) and value > 0:
            yield value
    elif isinstance(current, int):
        # more processes need more GPUs than the job has: only fewer are suggested
        larger = range(current + 1, current + _MAX_DISTANCE) if name != "processes" else range(0)
        for candidates in (range(current - 1, max(current - _MAX_DISTANCE, 0), -1), larger):
            yield from islice((v for v in candidates if _fits(rule, numbers, name, v)), 1)


def _fits(rule: Rule, numbers: Mapping[str, Value], name: str, value: int) -> bool:
    try:
        return holds(rule, derive(rule, {**numbers, name: value}))
    except NoValue:
        return False
