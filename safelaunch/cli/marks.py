"""How what was looked at is shown: a mark, what it is, what was seen, and what to do."""

from __future__ import annotations

import os
import shutil
import textwrap

import click

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


def width() -> int:
    """Return the columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, columns: int, first: str, others: str) -> list[str]:
    """Return a text in lines; words are never broken."""
    return textwrap.wrap(
        text,
        columns,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def show(status: str, label: str, evidence: str, hint: str | None) -> None:
    """Print one thing; `label` is padded, and what follows it stands below itself."""
    mark = f"{status:<4}"
    if not os.environ.get("NO_COLOR"):
        mark = click.style(mark, fg=_COLOURS[status], bold=status not in ("ok", "skip"))
    room = width() - len("  ok    ")
    lines = wrapped(evidence, room, label, " " * len(label))
    if hint:
        indent = " " * len(label)
        lines += wrapped(f"-> {hint}", room, indent, indent + "   ")
    for number, line in enumerate(lines):
        click.echo(f"  {mark}  {line}" if not number else f"        {line}")
