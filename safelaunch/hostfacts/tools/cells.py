"""Parses cells of tool output: empty cells, numbers with units, terminal escape sequences."""

from __future__ import annotations

import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE

MAX_LENGTH = 1 << 21  # characters of a text; `-q -x` of 16 GPUs has 400,000
MAX_LINE_LENGTH = 1 << 15  # `--query-gpu` of every field has 6,000
_DIGITS = re.compile(r"(\d{40})\d+")  # no tool's number is so long; int() refuses some thousand
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE)
_EMPTY = ("", "n/a", "[n/a]", "err!", "[not supported]", "not supported", "none",
          "[unknown error]", "unknown error", "[gpu is lost]", "[insufficient permissions]",
          "[gpu requires reset]", "requested functionality has been deprecated")  # fmt: skip


def clean(text: str) -> str:
    """Return a text without terminal escape sequences, with plain blanks and line ends."""
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = text.replace("\xa0", " ").replace("\ufeff", "").replace("\0", "")[:MAX_LENGTH]
    text = _DIGITS.sub(r"\1", text)
    return "\n".join(line[:MAX_LINE_LENGTH] for line in text.split("\n"))


def cell_text(cell: str | None) -> str | None:
    """Return the text of a cell; None for N/A, ERR!, [Not Supported] and the like."""
    text = (cell or "").strip()
    return None if text.lower() in _EMPTY else text


def parse_mib(cell: str | None) -> int | None:
    """Return a size in MiB from a cell such as `81559 MiB`, `81559` or `24 GiB`."""
    match = re.match(r"(\d+)(?:[.,]\d+)? *([KMG]i?B|B)?\b", cell_text(cell) or "", re.IGNORECASE)
    if match is None:
        return None
    unit = (match[2] or "MiB").upper()[0]
    size = int(match[1])
    return {"B": size >> 20, "K": size >> 10, "M": size, "G": size << 10}[unit]


def parse_number(cell: str | None) -> int | None:
    """Return the whole number in a cell, or None."""
    text = cell_text(cell) or ""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def parse_version(cell: str | None) -> str | None:
    """Return the version at the start of a cell, or None."""
    match = re.match(r"\d+(?:\.\d+)+", cell_text(cell) or "")
    return match[0] if match else None
