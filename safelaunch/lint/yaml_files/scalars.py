"""How a plain YAML scalar is read by PyYAML (1.1), ruamel.yaml (1.2), and the 1.2 standard.

Implemented as rules, so that neither loader needs to be installed; tests compare with both. Hugging
Face, accelerate and most training scripts read YAML with PyYAML, where `1e-3` is text.
"""

from __future__ import annotations

import math
import re
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_DATE = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)|(?P<year>\d{4})-(?P<month>\d\d?)-(?P<day>\d\d?)(?:[Tt]|[ \t]+)"
    r"(?P<hour>\d\d?):(?P<minute>\d\d):(?P<second>\d\d)(?:\.\d*)?"
    r"(?:[ \t]*(?:Z|[-+](?P<zone>\d\d?)(?::(?P<rest>\d\d))?))?",
    re.ASCII,
)
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_TRUE_1_1 = (*_TRUE, "yes", "Yes", "YES", "on", "On", "ON")
_FALSE_1_1 = (*_FALSE, "no", "No", "NO", "off", "Off", "OFF")

# PyYAML: a float needs a dot, and a sign after the `e`
_FLOAT_1_1 = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_INT_1_1 = re.compile(
    r"[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+"
    r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+"
)
# ruamel.yaml: its variant of 1.2, with the underscores of 1.1
_FLOAT_1_2 = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|[-+]?\.[0-9_]+([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_INT_1_2 = re.compile(r"[-+]?0b[01_]+|[-+]?0o?[0-7_]+|[-+]?[0-9_]+|[-+]?0x[0-9a-fA-F_]+")
# the core schema of the standard, 10.3.2
_FLOAT_CORE = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_INT_CORE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")

_NUMERIC_START = frozenset("-+.0123456789")
_SCIENTIFIC = re.compile(r"([-+]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?)([0-9]+))?")


class ScalarValue(NamedTuple):
    """The value that a loader reads from a scalar; `value` is text, equal for equal values."""

    kind: str  # text, boolean, integer, float, null, date, time, error
    value: str = ""

    @property
    def description(self) -> str:
        """The value as a phrase for messages."""
        descriptions = {
            "text": "text", "null": "nothing", "date": "a date", "time": "a point in time",
            "error": "an error", "boolean": self.value, "integer": f"the integer {self.value}",
            "float": f"the number {self.value}",
        }  # fmt: skip
        return descriptions[self.kind]


TEXT = ScalarValue("text")
_ERROR = ScalarValue("error")


def pyyaml_value(text: str) -> ScalarValue:
    """Return the value that `yaml.safe_load` reads from a plain scalar."""
    if (value := _non_numeric(text, _TRUE_1_1, _FALSE_1_1)) is not None:
        return value
    if _FLOAT_1_1.fullmatch(text):
        return _float(text)
    return _int_1_1(text) if _INT_1_1.fullmatch(text) else _timestamp(text)


def ruamel_value(text: str) -> ScalarValue:
    """Return the value that `ruamel.yaml.YAML(typ="safe")` (YAML 1.2) reads from a plain scalar."""
    if (value := _non_numeric(text, _TRUE, _FALSE)) is not None:
        return value
    if _FLOAT_1_2.fullmatch(text):
        return _float(text)
    is_int = text[0] != "." and _INT_1_2.fullmatch(text)
    return _int_1_2(text) if is_int else _timestamp(text)


def standard_value(text: str) -> ScalarValue:
    """Return the value of a plain scalar by the core schema of YAML 1.2."""
    if text in _TRUE or text in _FALSE:
        return ScalarValue("boolean", "true" if text in _TRUE else "false")
    if text in _NULL:
        return ScalarValue("null")
    if _INT_CORE.fullmatch(text):
        return _int_1_2(text)
    if _FLOAT_CORE.fullmatch(text):
        return _float(text)
    return TEXT


def portable_float(text: str) -> str | None:
    """Return a spelling of a float that all loaders read as that float; None if not needed.

    `1e-3` becomes `1.0e-3`, `1.5e3` becomes `1.5e+3`, `-.5` becomes `-0.5`.
    """
    if pyyaml_value(text).kind != "text" or standard_value(text).kind != "float":
        return None
    match = _SCIENTIFIC.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = match.groups()
    spelling = f"{sign}{whole or '0'}.{fraction or '0'}"
    if exponent:
        spelling += f"e{exponent_sign or '+'}{exponent}"
    is_portable = pyyaml_value(spelling) == ruamel_value(spelling) == standard_value(text)
    return spelling if is_portable else None


def _non_numeric(text: str, true: Sequence[str], false: Sequence[str]) -> ScalarValue | None:
    if text in true or text in false:
        return ScalarValue("boolean", "true" if text in true else "false")
    if text[:1] in _NUMERIC_START:
        return None
    if text in ("=", "<<"):
        return _ERROR  # tags without a constructor
    return ScalarValue("null") if text in _NULL else TEXT


def _float(text: str) -> ScalarValue:
    plain = text.replace("_", "").lower()
    sign = "-" if plain.startswith("-") else ""
    plain = plain.lstrip("+-")
    if plain in (".inf", ".nan"):
        return ScalarValue("float", sign + plain)
    try:
        value = _sexagesimal(plain) if ":" in plain else float(plain)
    except ValueError:
        return _ERROR  # `._`
    return ScalarValue("float", sign + (".inf" if value == math.inf else repr(value)))


def _sexagesimal(text: str) -> float:
    return reduce(lambda value, part: value * 60 + float(part), text.split(":"), 0.0)


def _int_1_1(text: str) -> ScalarValue:
    plain = text.replace("_", "")
    sign, digits = (-1 if plain[0] == "-" else 1), plain.lstrip("+-")
    if ":" in digits:
        return ScalarValue("integer", str(sign * int(_sexagesimal(digits))))
    if digits[:2] in ("0b", "0x"):
        return _integer(sign, digits[2:], 2 if digits[1] == "b" else 16)
    return _integer(sign, digits, 8 if digits[0] == "0" else 10)


def _int_1_2(text: str) -> ScalarValue:
    plain = text.replace("_", "")
    sign, digits = (-1 if plain[:1] == "-" else 1), plain.lstrip("+-")
    base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2])
    return _integer(sign, digits[2:], base) if base else _integer(sign, digits, 10)


def _integer(sign: int, digits: str, base: int) -> ScalarValue:
    try:
        return ScalarValue("integer", str(sign * int(digits, base)))
    except ValueError:
        return _ERROR  # `0x_`


def _timestamp(text: str) -> ScalarValue:
    """Return a date or time, an error for an invalid one (`2026-13-45`), or text."""
    match = _DATE.fullmatch(text)
    if match is None:
        return TEXT
    parts = match.groupdict()
    day = parts["date"].split("-") if parts["date"] else match.group("year", "month", "day")
    try:
        date(*map(int, day))
    except ValueError:
        return _ERROR
    if parts["date"]:
        return ScalarValue("date")
    zone = int(parts["zone"] or 0) * 60 + int(parts["rest"] or 0)  # minutes
    clock = (*map(int, match.group("hour", "minute", "second")), zone)
    is_valid = all(part < limit for part, limit in zip(clock, (24, 60, 60, 24 * 60), strict=True))
    return ScalarValue("time") if is_valid else _ERROR
