"""Prints: data on stdout, messages and errors on stderr, JSON with its version."""

# ruff: noqa: PLC0415 - a dry-run into a file needs none of json, re, shutil, tempfile and textwrap

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch import __version__

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from safelaunch.errors import SafelaunchError

_SPACE = "\0"  # stands for a space at which a line must not be broken
_WIDE_SPACES = "\xa0\u3000"  # of French and East Asian text
_INTERNAL = 5  # exit code of a fault of ours
_printed: list[bool] = []  # not empty once an object is printed
_STATUS_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "cyan"}


def report(error: SafelaunchError, *, with_hint: bool = True) -> None:
    """Print an expected error: what, where, and what to do next."""
    _report(error, _write_details(error.details) if error.details else None, with_hint=with_hint)


def report_end(error: SafelaunchError, *, as_json: bool) -> None:
    """Print the error that ends a command, with `as_json` also as an object on stdout."""
    path = _write_details(error.details) if error.details else None
    _report(error, path)
    if as_json:
        print_error(error, path)


def print_error(error: SafelaunchError, details: str | None = None) -> None:
    """Print an error as an object on stdout, unless the command has printed its own object there.

    `details` is the file with its traceback.
    """
    if _printed:
        return
    values: dict[str, Any] = {
        "code": "internal" if error.exit_code == _INTERNAL else error.code,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }
    with contextlib.suppress(OSError):  # a full disk behind it, or nobody who reads
        print_json_line({"version": 1, "error": values | ({"details": details} if details else {})})


def _report(error: SafelaunchError, path: str | None, *, with_hint: bool = True) -> None:
    details = "" if path is None else f"; details: {path}"
    click.echo(f"{style('error:', 'red')} {_indented(str(error))}{details}", err=True)
    if error.hint and with_hint:
        click.echo(f"{style('hint:', 'cyan')} {_indented(error.hint)}", err=True)


def warn(message: str) -> None:
    """Print a warning to stderr."""
    click.echo(f"{style('warning:', 'yellow')} {_indented(message)}", err=True)


def _indented(message: str) -> str:
    """Return a message whose further lines, perhaps of a host, cannot pass for messages of ours."""
    return message.replace("\n", "\n  ").replace("\n    ", "\n  ")


def say(message: str) -> None:
    """Print a message (not data) to stderr."""
    click.echo(message, err=True)


def style(text: str, colour: str) -> str:
    """Return a bold text in a colour; plain with NO_COLOR."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, bold=True)


def _write_details(details: str) -> str:
    """Write a traceback to a file for a bug report, and return its path."""
    import tempfile

    path = "nowhere (no folder is writable)"
    with contextlib.suppress(OSError):
        fd, path = tempfile.mkstemp(prefix="safelaunch-error-", suffix=".txt")
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"safelaunch {__version__}, Python {sys.version}\n{details}")
    return path


def print_json(data: Any) -> None:
    """Print data as JSON on stdout; what is no text, such as half an emoji, as JSON's escape."""
    _printed.append(True)
    _echo_json(data, indent=2)


def print_json_line(data: Any) -> None:
    """Print data as JSON in one line on stdout, at once: one of several objects."""
    _echo_json(data)
    sys.stdout.flush()


def _echo_json(data: Any, indent: int | None = None) -> None:
    import json

    from safelaunch.runtime.plain_text import json_without_controls

    text = json_without_controls(json.dumps(data, indent=indent, ensure_ascii=False))
    click.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def terminal_width() -> int:
    """Return the columns of the terminal; 80 without one."""
    import shutil

    return shutil.get_terminal_size().columns


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

    Words longer than a line stay whole, or are broken with `break_words`. Beyond `max_lines` the
    text ends in ` ...`. Control characters are escaped: a log cannot change the terminal.
    """
    import re
    import textwrap

    def join(match: re.Match[str]) -> str:
        breaks = break_words and len(match[0]) > columns - len(others)
        return match[0] if breaks else match[0].replace(" ", _SPACE)

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
    return [escape(line.replace(_SPACE, " ")) for line in lines]


def escape(text: str) -> str:
    """Return a line with its control characters escaped: it cannot change the terminal."""
    from safelaunch.runtime.plain_text import printable

    return printable(text, keep=_WIDE_SPACES)


def terminal_text(text: str) -> str:
    """Return what may be written to a terminal: no control character but line ends and our styles.

    The last gate of all text output: a message of a host, a path or an error cannot set a title,
    fill the clipboard or hide lines. Data, such as a log or a script, is written as bytes.
    """
    if text.isprintable() or (text[-1:] == "\n" and text[:-1].isprintable()):
        return text
    import re

    from safelaunch.runtime.plain_text import without_controls

    if "\x1b" not in text:
        return without_controls(text)
    pieces = re.split(r"(\x1b\[(?:[01]|3[1-6])m)", text)  # those of `style`
    return "".join(p if i % 2 else without_controls(p) for i, p in enumerate(pieces))


def table(
    rows: Sequence[Sequence[str]], gap: str = "  ", min_widths: Sequence[int] = ()
) -> list[str]:
    """Return the lines of a table, its columns as wide as their longest cells."""
    rows = [[escape(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = [max(pair) for pair in itertools.zip_longest(widths, min_widths, fillvalue=0)]
    pad = [[cell.ljust(w) for cell, w in zip(row, widths, strict=True)] for row in rows]
    return [gap.join(cells).rstrip() for cells in pad]


def print_check(status: str, label: str, evidence: str, hint: str | None) -> None:
    """Print the result of a check; the lines after the first are indented by its label."""
    mark = f"{status:<4}"
    if not os.environ.get("NO_COLOR"):
        mark = click.style(mark, fg=_STATUS_COLOURS[status], bold=status not in ("ok", "skip"))
    indent, columns = " " * len(label), terminal_width() - len("  ok    ")
    lines = wrap(evidence, columns, label, indent)
    if hint:
        lines += wrap(f"-> {hint}", columns, indent, indent + "   ")
    for number, line in enumerate(lines):
        click.echo(f"  {mark}  {line}" if not number else f"        {line}")
