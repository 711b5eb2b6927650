"""A file's text as the rules see it: LF, no BOM, and what it had instead."""

from __future__ import annotations

import re
from typing import NamedTuple

_IGNORED = re.compile(r"(?:#|//)\s*safelaunch:\s*ignore(?:\[([\w\s,-]*)\])?")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Source(NamedTuple):
    """The text of a file. Bytes that are no UTF-8 are kept as lone surrogates."""

    file: str
    text: str
    has_bom: bool
    crlf_line: int | None  # the first line that ends in CR LF
    lines: tuple[str, ...]  # without their ends

    def ignores(self, line: int, rule: str) -> bool:
        """Whether a comment, in that line or alone in the one above, asks to ignore a rule."""
        lines = self.lines
        here = lines[line - 1] if 0 < line <= len(lines) else ""
        above = lines[line - 2].strip() if 1 < line <= len(lines) + 1 else ""
        for comment in (here, above if above.startswith("#") else ""):
            match = _IGNORED.search(comment)
            if match is not None:
                named = match[1]
                return named is None or rule in re.split(r"[\s,]+", named)
        return False


def read(file: str, data: bytes) -> Source | None:
    """Return the source of a file's bytes, or None where they are UTF-16."""
    if data.startswith(_UTF_16):
        return None
    text = data.decode("utf-8", "surrogateescape")
    has_bom = text.startswith("\ufeff")
    text = text.lstrip("\ufeff")  # editors that add one do so at each save
    at = text.find("\r\n")
    crlf_line = None if at < 0 else text.count("\n", 0, at) + 1
    text = text.replace("\r\n", "\n")
    return Source(file, text, has_bom, crlf_line, tuple(text.split("\n")))
