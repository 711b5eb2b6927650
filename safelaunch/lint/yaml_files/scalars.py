"""What a plain YAML scalar is to whom: PyYAML (1.1), ruamel.yaml (1.2), and the 1.2 standard.

Decided by rules, so that neither loader has to be there; tests compare them with both. Hugging
Face, accelerate and most training scripts read YAML with PyYAML, where `1e-3` is text.
"""

from __future__ import annotations

import math
import re
from datetime import date
from typing import NamedTuple

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

# PyYAML: a float needs a dot, and a sign behind the `e`
_FLOAT_1_1 = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_INT_1_1 = re.compile(
    r"[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+"
    r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+"
)
# ruamel.yaml: its reading of 1.2, with the underscores of 1.1
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


class Reading(NamedTuple):
    """What a loader makes of a scalar; `value` as text, equal where the values are."""

    kind: str  # text, boolean, integer, float, null, date, time, error
    value: str = ""

    @property
    def words(self) -> str:
        """How a message says it."""
        named = {
            "text": "text", "null": "nothing", "date": "a date", "time": "a point in time",
            "error": "an error", "boolean": self.value, "integer": f"the integer {self.value}",
            "float": f"the number {self.value}",
        }  # fmt: skip
        return named[self.kind]


TEXT = Reading("text")
_ERROR = Reading("error")


def by_pyyaml(text: str) -> Reading:
    """Return what `yaml.safe_load` makes of a plain scalar."""
    if text in _TRUE_1_1 or text in _FALSE_1_1:
        return Reading("boolean", "true" if text in _TRUE_1_1 else "false")
    if text[:1] not in _NUMERIC_START:
        return _word(text)
    if _FLOAT_1_1.fullmatch(text):
        return _float(text)
    return _int_1_1(text) if _INT_1_1.fullmatch(text) else _moment(text)


def by_ruamel(text: str) -> Reading:
    """Return what `ruamel.yaml.YAML(typ="safe")` makes of a plain scalar, by YAML 1.2."""
    if text in _TRUE or text in _FALSE:
        return Reading("boolean", "true" if text in _TRUE else "false")
    if text[:1] not in _NUMERIC_START:
        return _word(text)
    if _FLOAT_1_2.fullmatch(text):
        return _float(text)
    is_int = text[0] != "." and _INT_1_2.fullmatch(text)
    return _int_1_2(text) if is_int else _moment(text)


def by_standard(text: str) -> Reading:
    """Return what the core schema of YAML 1.2 says; values are given for numbers as elsewhere."""
    if text in _TRUE or text in _FALSE:
        return Reading("boolean", "true" if text in _TRUE else "false")
    if text in _NULL:
        return Reading("null")
    if _INT_CORE.fullmatch(text):
        return _int_1_2(text)
    if _FLOAT_CORE.fullmatch(text):
        return _float(text)
    return TEXT


def differs(text: str) -> bool:
    """Whether PyYAML and a YAML 1.2 loader (ruamel.yaml) read a plain scalar differently."""
    return by_pyyaml(text) != by_ruamel(text)


def rewritten(text: str) -> str | None:
    """Return the spelling of a float that all loaders read alike; None where it is no such float.

    `1e-3` becomes `1.0e-3`, `1.5e3` becomes `1.5e+3`, `-.5` becomes `-0.5`.
    """
    if by_pyyaml(text).kind != "text" or by_standard(text).kind != "float":
        return None
    match = _SCIENTIFIC.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = match.groups()
    said = f"{sign}{whole or '0'}.{fraction or '0'}"
    if exponent:
        said += f"e{exponent_sign or '+'}{exponent}"
    return said if by_pyyaml(said) == by_ruamel(said) == by_standard(text) else None


def _word(text: str) -> Reading:
    if text in ("=", "<<"):
        return _ERROR  # tags without a constructor
    return Reading("null") if text in _NULL else TEXT


def _float(text: str) -> Reading:
    plain = text.replace("_", "").lower()
    sign = "-" if plain.startswith("-") else ""
    plain = plain.lstrip("+-")
    if plain in (".inf", ".nan"):
        return Reading("float", sign + plain)
    try:
        value = _sexagesimal(plain) if ":" in plain else float(plain)
    except ValueError:
        return _ERROR  # `._`
    return Reading("float", sign + (".inf" if value == math.inf else repr(value)))


def _sexagesimal(text: str) -> float:
    value = 0.0
    for part in text.split(":"):
        value = value * 60 + float(part)
    return value


def _int_1_1(text: str) -> Reading:
    plain = text.replace("_", "")
    sign, digits = (-1 if plain[0] == "-" else 1), plain.lstrip("+-")
    if ":" in digits:
        value = int(_sexagesimal(digits))
    elif digits[:2] in ("0b", "0x"):
        return _based(sign, digits[2:], 2 if digits[1] == "b" else 16)
    else:
        return _based(sign, digits, 8 if digits[0] == "0" else 10)
    return Reading("integer", str(sign * value))


def _int_1_2(text: str) -> Reading:
    plain = text.replace("_", "")
    sign, digits = (-1 if plain[:1] == "-" else 1), plain.lstrip("+-")
    base = {"0b": 2, "0o": 8, "0x": 16}.get(digits[:2])
    return _based(sign, digits[2:], base) if base else _based(sign, digits, 10)


def _based(sign: int, digits: str, base: int) -> Reading:
    try:
        return Reading("integer", str(sign * int(digits, base)))
    except ValueError:
        return _ERROR  # `0x_`


def _moment(text: str) -> Reading:
    """Return a date or time, an error where it names none (`2026-13-45`), or text."""
    match = _DATE.fullmatch(text)
    if match is None:
        return TEXT
    parts = match.groupdict()
    try:
        if parts["date"]:
            date(*(int(part) for part in parts["date"].split("-")))
            return Reading("date")
        date(int(parts["year"]), int(parts["month"]), int(parts["day"]))
    except ValueError:
        return _ERROR
    clock = tuple(int(parts[name]) for name in ("hour", "minute", "second"))
    zone = int(parts["zone"] or 0) * 60 + int(parts["rest"] or 0)  # minutes
    runs = all(
        part < most for part, most in zip((*clock, zone), (24, 60, 60, 24 * 60), strict=True)
    )
    return Reading("time") if runs else _ERROR
