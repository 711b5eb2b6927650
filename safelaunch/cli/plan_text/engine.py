"""Prints what a start gives to an engine: its script, the line that submits it, each launch.sh."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import click

from safelaunch import engines
from safelaunch.plan.serialize import script_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.model import Plan

_TITLE = 1  # the line of launch.sh that names the node


def print_file(plan: Plan) -> bool:
    """Print the file for another program that a dry-run is, and nothing else, where it is one."""
    engine = engines.of_plan(plan)
    if engine is None or not engine.PRINTS_FILE:
        return False
    text = engine.file(plan, [script_of(plan, node) for node in plan.nodes])
    click.echo(text.encode(), nl=False)  # bytes: LF on Windows too
    return True


def print_submission(plan: Plan) -> None:
    """Print what is handed to the engine, and what that starts on each node."""
    engine = engines.of_plan(plan)
    for title, text in () if engine is None else engine.sections(plan):
        click.echo(f"\n# {title}")
        click.echo(text.rstrip("\n"))
    first, *others = (script_of(plan, node) for node in plan.nodes)
    click.echo("\n# launch.sh of node 0")
    click.echo(first, nl=False)
    for numbers, lines in _groups(first, others):
        shown = (
            f"node {numbers[0]}" if len(numbers) == 1 else f"nodes {numbers[0]} to {numbers[-1]}"
        )
        end = ", where it differs" if lines else ": the same"
        click.echo(f"\n# launch.sh of {shown}{end}")
        for line in lines:
            click.echo(line)


def _groups(first: str, others: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
    """Yield numbers of nodes in a row, and the lines that differ alike from the first node's.

    For several nodes their number in these lines is `<node-rank>`.
    """
    scripts = enumerate((_differing_lines(first, script) for script in others), 1)
    for alike, group in itertools.groupby(scripts, lambda pair: _without_number(*pair)):
        members = list(group)
        numbers = [number for number, _ in members]
        yield numbers, list(alike) if len(members) > 1 else members[0][1]


def _without_number(number: int, lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(re.sub(rf"(?<![\w.-]){number}(?![\w.-])", "<node-rank>", line) for line in lines)


def _differing_lines(first: str, other: str) -> list[str]:
    """Return the lines of a script that differ from those of the first node; all if one is more."""
    ours, theirs = first.splitlines(), other.splitlines()
    if len(ours) != len(theirs):
        return theirs
    pairs = list(zip(ours, theirs, strict=True))
    del pairs[_TITLE]
    return [their for our, their in pairs if our != their]


def print_origins(plan: Plan) -> None:
    """Print each part of what is asked of the engine with its origin."""
    engine = engines.of_plan(plan)
    if engine is not None:
        click.echo(engine.REQUEST)
        for text, origin in engine.origins(plan):
            click.echo(f"  {text}    {origin}")
