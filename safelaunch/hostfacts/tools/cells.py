"""The words of tools: cells that say nothing, numbers with units, what terminals leave behind."""

from __future__ import annotations

import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE

LONGEST = 1 << 21  # characters of a text; `-q -x` of 16 cards has 400,000
LONGEST_LINE = 1 << 15  # `--query-gpu` of every field has 6,000
_DIGITS = re.compile(r"(\d{40})\d+")  # no number of a tool; int() refuses some thousand
_ESCAPE_SEQUENCE = re.compile(ESCAPE_SEQUENCE)
_EMPTY = ("", "n/a", "[n/a]", "err!", "[not supported]", "not supported", "none",
          "[unknown error]", "unknown error", "[gpu is lost]", "[insufficient permissions]",
          "[gpu requires reset]", "requested functionality has been deprecated")  # fmt: skip


def clean(text: str) -> str:
    """Return a text without colours and other marks of terminals, with plain blanks."""
    text = (
        _ESCAPE_SEQUENCE.sub("", text)
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\xa0", " ")
    )
    text = text.replace("\ufeff", "").replace("\0", "")[:LONGEST]
    text = _DIGITS.sub(r"\1", text)
    return "\n".join(line[:LONGEST_LINE] for line in text.split("\n"))


def told(cell: str | None) -> str | None:
    """Return what a cell says; None for N/A, ERR!, [Not Supported] and the like."""
    text = (cell or "").strip()
    return None if text.lower() in _EMPTY else text


def mib(cell: str | None) -> int | None:
    """Return a size in MiB: `81559 MiB`, `81559`, `24 GiB`."""
    match = re.match(r"(\d+)(?:[.,]\d+)? *([KMG]i?B|B)?\b", told(cell) or "", re.IGNORECASE)
    if match is None:
        return None
    unit = (match[2] or "MiB").upper()[0]
    size = int(match[1])
    return {"B": size >> 20, "K": size >> 10, "M": size, "G": size << 10}[unit]


def number(cell: str | None) -> int | None:
    """Return a whole number, None where there is none."""
    text = (told(cell) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None  # noqa: PLR2004


def version(cell: str | None) -> str | None:
    """Return the version that a cell begins with; a remark behind it does not matter."""
    match = re.match(r"\d+(?:\.\d+)+", (told(cell) or "").strip())
    return match[0] if match else None
