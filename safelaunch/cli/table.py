"""How what was looked at is shown: a mark, what it is, what was seen, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import textwrap

import click

_QUOTED = re.compile(r"`[^`\n]*`")
_BLANK = "\0"  # no text of ours has it
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


def width() -> int:
    """Return the columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, columns: int, first: str, others: str) -> list[str]:
    """Return a text in lines; words are never broken, nor what stands between backquotes.

    A command that is longer than a line is pasted whole all the same.
    """
    whole = _QUOTED.sub(lambda match: match[0].replace(" ", _BLANK), text)
    lines = textwrap.wrap(
        whole,
        columns,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_BLANK, " ") for line in lines]


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
