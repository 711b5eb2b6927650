"""Pieces of JSON Schema (draft-07) for editors, which type values as YAML 1.2 does.

An editor sees a plain `1` as a number and `true` as a boolean where our reader takes the text. A
schema accepts whatever the reader accepts; where draft-07 cannot express it, it accepts more.
"""

from __future__ import annotations

import re
from typing import Any

Shape = dict[str, Any]

# examples of values to which YAML 1.2 gives another type than string
_TYPED = {"number": ("0", "7", "12", "1.5", "1e3"), "boolean": ("true", "false")}
# Python's \w matches letters of all scripts, ECMAScript's those of ASCII; a complement is portable
_CLASSES = {
    r"[^\W\d]": r"[^\x00-@\[-^`{-\x7f]",
    r"[\w-]": r"[^\x00-,./:-@\[-^`{-\x7f]",
    r"[\w.-]": r"[^\x00-,/:-@\[-^`{-\x7f]",
}


def text(pattern: str | None = None, message: str = "") -> Shape:
    """Return the shape of a single value, whose text a pattern matches as a whole.

    Editors of the VS Code family show `message` where the pattern does not match.
    """
    if pattern is None:
        return {"type": ["string", *_TYPED]}
    typed = [name for name, texts in _TYPED.items() if any(re.fullmatch(pattern, t) for t in texts)]
    shape: Shape = {"type": ["string", *typed] if typed else "string"}
    for python, ecma in _CLASSES.items():
        pattern = pattern.replace(python, ecma)
    if not re.search(r"\\[wWdDbB]", pattern):  # the two languages read these differently
        shape["pattern"] = f"^(?:{pattern})$"
        shape["patternErrorMessage"] = message
    return shape


def words(*names: str) -> Shape:
    """Return the shape of one of a few words; `true` and `false` also as booleans."""
    typed = [name == "true" for name in names if name in ("true", "false")]
    return {"enum": [*typed, *names]}


def either(*shapes: Shape) -> Shape:
    """Return the shape of a value that fits any of several shapes."""
    return {"anyOf": list(shapes)}


def listed(item: Shape, **more: Any) -> Shape:
    """Return the shape of a list."""
    return {"type": "array", "items": item, **more}


def mapped(value: Shape, names: Shape | None = None) -> Shape:
    """Return the shape of a mapping with any names, or with names of a shape."""
    shape: Shape = {"type": "object", "additionalProperties": value}
    return shape if names is None else {**shape, "propertyNames": names}


def record(properties: Shape) -> Shape:
    """Return the shape of a mapping that takes these keys only."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def nullable(shape: Shape) -> Shape:
    """Return the shape with null, which removes an inherited value."""
    if "enum" in shape:
        return {**shape, "enum": [*shape["enum"], None]}
    if "anyOf" in shape:
        return {**shape, "anyOf": [*shape["anyOf"], {"type": "null"}]}
    types = shape["type"]
    return {**shape, "type": [*(types if isinstance(types, list) else [types]), "null"]}
