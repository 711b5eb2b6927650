"""Writes plain data as YAML that every reader takes for the same.

kubectl reads YAML 1.1 with go-yaml: there `y`, `on`, `1e3`, `0o7`, `1_000` and dates are no text.
So text is quoted unless it is a plain word, and never one that some reader knows.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
# yaml.org/type/bool.html, null.html, float.html; by go-yaml also in other cases
_TYPED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"))
_INDENT = "  "
_MAX_SHORT = 0xFFFF  # what \\uXXXX can say


def dump(documents: Sequence[dict[str, Any]]) -> str:
    """Return documents as YAML, each behind `---`."""
    return "".join("---\n" + "\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: Any) -> Iterator[str]:
    """Yield the lines of a mapping or list that is not empty."""
    pairs = value.items() if isinstance(value, dict) else (("-", item) for item in value)
    for key, item in pairs:
        start = "-" if isinstance(value, list) else f"{_scalar(key)}:"
        if isinstance(item, str) and _is_block(item):
            yield f"{start} |"
            yield from (_INDENT + line if line else "" for line in item[:-1].split("\n"))
        elif not isinstance(item, (dict, list)) or not item:
            yield f"{start} {_scalar(item)}"
        elif isinstance(value, list):
            first, *others = _lines(item)
            yield f"- {first}"
            yield from (_INDENT + line if line else "" for line in others)
        else:
            yield start
            yield from (_INDENT + line if line else "" for line in _lines(item))


def _is_block(text: str) -> bool:
    """Whether a text of several lines can stand as it is: nothing in it is lost or folded."""
    first, *others = text.split("\n")
    is_whole = text.endswith("\n") and not text.endswith("\n\n")
    lines = text.replace("\n", "").replace("\t", "")
    return bool(others) and is_whole and first[:1] not in ("", " ", "\t") and lines.isprintable()


def _scalar(value: Any) -> str:
    if value in ({}, []):
        return json.dumps(value)
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _TYPED:
        return str(value)
    escaped = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escape(char) for char in escaped)


def _escape(char: str) -> str:
    """Return a character for double quotes; json.dumps has escaped those below the blank."""
    code = ord(char)
    return f"\\u{code:04x}" if code <= _MAX_SHORT else f"\\U{code:08x}"
