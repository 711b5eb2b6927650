"""Parses cells of tool output: empty cells, numbers with units, terminal escape sequences."""

from __future__ import annotations

import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE

MAX_LENGTH = 1 << 21  # characters of a text; `-q -x` of 16 GPUs has 400,000
MAX_LINE_LENGTH = 1 << 15  # `--query-gpu` of every field has 6,000
_DIGITS = re.compile(r"(\d{40})\d+")  # longer than any number of a tool; int() has a limit too
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE)
_EMPTY = ("", "n/a", "[n/a]", "err!", "[not supported]", "not supported", "none",
          "[unknown error]", "unknown error", "[gpu is lost]", "[insufficient permissions]",
          "[gpu requires reset]", "requested functionality has been deprecated")  # fmt: skip


def clean(text: str) -> str:
    """Return a text without terminal escape sequences, with plain blanks and line ends."""
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = text.translate({0xA0: " ", 0xFEFF: None, 0: None})[:MAX_LENGTH]
    return "\n".join(line[:MAX_LINE_LENGTH] for line in _DIGITS.sub(r"\1", text).split("\n"))


def cell_text(cell: str | None) -> str | None:
    """Return the text of a cell; None for N/A, ERR!, [Not Supported] and the like."""
    text = (cell or "").strip()
    return None if text.lower() in _EMPTY else text


def parse_mib(cell: str | None) -> int | None:
    """Return a size in MiB from a cell such as `81559 MiB`, `81559` or `24 GiB`."""
    match = re.match(r"(\d+)(?:[.,]\d+)? *([KMG]i?B|B)?\b", cell_text(cell) or "", re.IGNORECASE)
    if match is None:
        return None
    shift = {"B": 0, "K": 10, "M": 20, "G": 30}[(match[2] or "MiB").upper()[0]]
    return int(match[1]) << shift >> 20


def parse_number(cell: str | None) -> int | None:
    """Return the whole number in a cell, or None."""
    text = cell_text(cell) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None  # noqa: PLR2004


def parse_version(cell: str | None) -> str | None:
    """Return the version at the start of a cell, or None."""
    match = re.match(r"\d+(?:\.\d+)+", cell_text(cell) or "")
    return match[0] if match else None
