"""Prints: data on stdout, messages and errors on stderr, JSON with its version."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch import __version__

if TYPE_CHECKING:
    from safelaunch.errors import SafelaunchError

_BLANK = "\0"  # stands for a blank that is no place to break a line


def report(error: SafelaunchError) -> None:
    """Print an expected error: what, where, and what to do next."""
    kept = f"; details: {_kept(error.details)}" if error.details else ""
    click.echo(_style("error:", "red") + f" {error}{kept}", err=True)
    if error.hint:
        click.echo(_style("hint:", "cyan") + f" {error.hint}", err=True)


def warn(message: str) -> None:
    """Print a warning to stderr."""
    click.echo(_style("warning:", "yellow") + f" {message}", err=True)


def say(message: str) -> None:
    """Print talk (not data) to stderr."""
    click.echo(message, err=True)


def _style(text: str, colour: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, bold=True)


def _kept(details: str) -> str:
    """Write a traceback to a file for whoever mends it, and return where."""
    import tempfile  # noqa: PLC0415 - few machines; who asked closes it

    where = "nowhere (no folder is writable)"
    try:
        fd, where = tempfile.mkstemp(prefix="safelaunch-error-", suffix=".txt")
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"safelaunch {__version__}, Python {sys.version}\n{details}")
    except OSError:
        pass
    return where


def print_json(data: Any) -> None:
    """Print data as JSON on stdout."""
    import json  # noqa: PLC0415 - few ask

    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def wrap(
    text: str,
    columns: int,
    first: str = "",
    others: str = "",
    *,
    max_lines: int | None = None,
    break_words: bool = False,
) -> list[str]:
    """Return a text in lines with indents; a command in backquotes stays on one line.

    Words that are longer than a line stand out, or are broken where `break_words` asks for it.
    Beyond `max_lines` the rest is left out, and ` ...` says so.
    """
    import re  # noqa: PLC0415 - a dry-run into a file wraps nothing
    import textwrap  # noqa: PLC0415 - a dry-run into a file wraps nothing

    def join(match: re.Match[str]) -> str:
        breaks = break_words and len(match[0]) > columns - len(others)
        return match[0] if breaks else match[0].replace(" ", _BLANK)

    lines = textwrap.wrap(
        re.sub(r"`[^`\n]*`", join, text),
        columns,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=break_words,
        break_on_hyphens=False,
        max_lines=max_lines,
        placeholder=" ...",
        tabsize=4,
    )
    return [line.replace(_BLANK, " ") for line in lines]
