"""Text that any terminal shows as it is: escape sequences removed, control characters visible."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# CSI, OSC, character sets and the two-character sequences of ECMA-48 and xterm; no group, so that
# it can stand in a larger pattern, and ASCII, so that it can be encoded for bytes
ESCAPE_SEQUENCE = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()][0-9A-Z]|[@-Z\\-_=>])"
)


def printable(text: str, keep: str = "") -> str:
    r"""Return a text with control characters and lone surrogates escaped, as in `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


# C0 without tab and line feed, DEL, C1 (xterm takes U+009B for CSI), and marks that turn the
# direction of text: what is read would not be what is there
_CONTROLS = {
    *range(9), *range(11, 32), *range(127, 160),
    0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),
}  # fmt: skip
_VISIBLE = {code: chr(code).encode("unicode_escape").decode() for code in _CONTROLS}
_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS}


def without_controls(text: str) -> str:
    r"""Return text of any number of lines with each control character visible, as in `\x1b`."""
    return text.translate(_VISIBLE)


def json_without_controls(text: str) -> str:
    """Return a JSON text with each control character in its strings escaped as JSON does."""
    return text.translate(_JSON)


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Return names as a list of a few: `a.py, b.py and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def clipped(text: str, most: int = 240) -> str:
    """Return a text without its middle where it is longer, as one with a path of 4,000 bytes."""
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"
