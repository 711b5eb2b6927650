"""How what was looked at is shown: a mark, what it is, what was seen, and what to do."""

from __future__ import annotations

import os
import shutil

import click

from safelaunch.cli.output import wrap

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


def width() -> int:
    """Return the columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size().columns


def show(status: str, label: str, evidence: str, hint: str | None) -> None:
    """Print one thing; `label` is padded, and what follows it stands below itself."""
    mark = f"{status:<4}"
    if not os.environ.get("NO_COLOR"):
        mark = click.style(mark, fg=_COLOURS[status], bold=status not in ("ok", "skip"))
    room = width() - len("  ok    ")
    lines = wrap(evidence, room, label, " " * len(label))
    if hint:
        indent = " " * len(label)
        lines += wrap(f"-> {hint}", room, indent, indent + "   ")
    for number, line in enumerate(lines):
        click.echo(f"  {mark}  {line}" if not number else f"        {line}")
