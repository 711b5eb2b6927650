"""Decodes a file for the rules: text with LF and without BOM, and what the file had instead."""

from __future__ import annotations

import re
from typing import NamedTuple

_IGNORE_COMMENT = re.compile(r"(?:#|//)\s*safelaunch:\s*ignore(?:\[([\w\s,-]*)\])?")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class TextFile(NamedTuple):
    """The text of a file. Bytes that are not UTF-8 are lone surrogates."""

    file: str
    text: str
    has_bom: bool
    crlf_line: int | None  # the first line that ends in CR LF
    lines: tuple[str, ...]  # without line ends

    def is_ignored(self, line: int, rule: str) -> bool:
        """Whether a comment in that line, or alone in the line above, disables a rule."""
        lines = self.lines
        comment_line = lines[line - 1] if 0 < line <= len(lines) else ""
        above = lines[line - 2].strip() if 1 < line <= len(lines) + 1 else ""
        for comment in (comment_line, above if above.startswith("#") else ""):
            match = _IGNORE_COMMENT.search(comment)
            if match is not None:
                rules = match[1]
                return rules is None or rule in re.split(r"[\s,]+", rules)
        return False


def decode(file: str, data: bytes) -> TextFile | None:
    """Return the text of a file, or None if it is UTF-16."""
    if data.startswith(_UTF_16):
        return None
    text = data.decode("utf-8", "surrogateescape")
    has_bom = text.startswith("\ufeff")
    text = text.lstrip("\ufeff")  # some editors add one more at each save
    index = text.find("\r\n")
    crlf_line = None if index < 0 else text.count("\n", 0, index) + 1
    text = text.replace("\r\n", "\n")
    return TextFile(file, text, has_bom, crlf_line, tuple(text.split("\n")))
