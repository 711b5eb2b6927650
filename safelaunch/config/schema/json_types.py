"""Pieces of JSON Schema (draft-07) for editors: our values as they look once YAML 1.2 typed them.

An editor sees a plain `1` as a number and `true` as a boolean where our reader takes the text. A
schema accepts whatever the reader accepts; where draft-07 cannot say it exactly, it accepts more.
"""

from __future__ import annotations

import re
from typing import Any

Shape = dict[str, Any]

# values that YAML 1.2 types, by the type that editors give them
_TYPED = {"number": ("0", "7", "12", "1.5", "1e3"), "boolean": ("true", "false")}
# Python's \w takes letters of all scripts, ECMAScript's those of ASCII: here by what they leave out
_CLASSES = {
    r"[^\W\d]": r"[^\x00-@\[-^`{-\x7f]",
    r"[\w-]": r"[^\x00-,./:-@\[-^`{-\x7f]",
    r"[\w.-]": r"[^\x00-,/:-@\[-^`{-\x7f]",
}


def text(pattern: str | None = None, said: str = "") -> Shape:
    """Return the shape of a single value, whose text a pattern matches as a whole.

    `said` is what editors of the VS Code family show, in the place of a pattern that does not fit.
    """
    if pattern is None:
        return {"type": ["string", *_TYPED]}
    typed = [
        name for name, each in _TYPED.items() if any(re.fullmatch(pattern, one) for one in each)
    ]
    shape: Shape = {"type": ["string", *typed] if typed else "string"}
    for python, ecma in _CLASSES.items():
        pattern = pattern.replace(python, ecma)
    if not re.search(r"\\[wWdDbB]", pattern):  # what the two languages read otherwise is left out
        shape["pattern"] = f"^(?:{pattern})$"
        shape["patternErrorMessage"] = said
    return shape


def words(*names: str) -> Shape:
    """Return the shape of one of a few words; `true` and `false` also as booleans."""
    typed = [name == "true" for name in names if name in ("true", "false")]
    return {"enum": [*typed, *names]}


def either(*shapes: Shape) -> Shape:
    """Return the shape of what one of several shapes fits."""
    return {"anyOf": list(shapes)}


def listed(item: Shape, **more: Any) -> Shape:
    """Return the shape of a list."""
    return {"type": "array", "items": item, **more}


def mapped(value: Shape, names: Shape | None = None) -> Shape:
    """Return the shape of a mapping with any names, or with names of a shape."""
    shape: Shape = {"type": "object", "additionalProperties": value}
    return shape if names is None else {**shape, "propertyNames": names}


def nullable(shape: Shape) -> Shape:
    """Return the shape with null, which takes an inherited value away."""
    if "enum" in shape:
        return {**shape, "enum": [*shape["enum"], None]}
    if "anyOf" in shape:
        return {**shape, "anyOf": [*shape["anyOf"], {"type": "null"}]}
    types = shape["type"]
    return {**shape, "type": [*(types if isinstance(types, list) else [types]), "null"]}
