"""Text that any terminal shows as it is: escape sequences removed, control characters visible."""

from __future__ import annotations

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
