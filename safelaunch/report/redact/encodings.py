"""A value that is known, in each form in which a text may hold it."""

from __future__ import annotations

import base64
import re

_SHORTEST_CODED = 6  # bytes from which on a value's base64 is its own
_CODED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
_LINE = 16  # characters from which on a line of a secret is one by itself
_RUN = 1 << 14  # characters of base64 around a value that go with it

_OTHER_WAYS = {
    " ": (r"\+",),
    "\t": (r"\\+t",),
    "\r": (r"\\+r",),
    "'": ("'\\\\*\"'\\\\*\"'", "&#x27;", "&#39;"),  # the first one is a shell's
    '"': ("&quot;",),
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
}


class Known:
    """A value and its placeholder. Secrets are found inside words and coded, names as words."""

    def __init__(self, kind: str, value: str, placeholder: str) -> None:
        self.value = value
        self.placeholder = placeholder
        inner = kind == "secret"
        runs = re.findall(r"[A-Za-z0-9]+", value)
        self._anchor = max(runs, key=len, default="") if inner else ""
        cases = (value, value.lower(), value.upper()) if kind in ("host", "email") else (value,)
        self._patterns = (
            [re.compile("".join(map(_written, value)))]
            if inner
            else [_word(kind, one) for one in dict.fromkeys(cases)]
        )
        self._coded = _coded(value.encode("utf-8", "replace")) if inner else ()
        # of a value of several lines each line that tells something
        self._lines = (
            [
                Known(kind, line.strip(), placeholder)
                for line in value.splitlines()
                if len(line) >= _LINE
            ]
            if inner and "\n" in value
            else []
        )

    def replace(self, text: str) -> str:
        """Return a text in which the placeholder stands for the value."""
        if self._anchor in text:
            for pattern in self._patterns:
                text = pattern.sub(lambda _: self.placeholder, text)
        for coded in self._coded:
            if coded in text:
                text = self._without(text, coded)
        for line in self._lines:
            text = line.replace(text)
        return text

    def _without(self, text: str, coded: str) -> str:
        """Return a text without the runs of base64 that a coded value is in."""
        parts, done = [], 0
        at = text.find(coded)
        while at >= 0:
            begin, end = at, at + len(coded)
            while begin > max(done, at - _RUN) and text[begin - 1] in _CODED:
                begin -= 1
            while end < min(len(text), at + len(coded) + _RUN) and text[end] in _CODED:
                end += 1
            parts += [text[done:begin], self.placeholder]
            done = end
            at = text.find(coded, end)
        return "".join([*parts, text[done:]])


def _word(kind: str, value: str) -> re.Pattern[str]:
    """Return a pattern for a name as a word; `alice_2` has the name in it, `malice` has not.

    What must stand before it is asked behind it: a pattern that begins with letters is found fast.
    """
    body = re.escape(value)
    if kind == "home":
        return re.compile(rf"{body}(?![\w-])")
    inside = "A-Za-z0-9" if len(value) > 3 else "A-Za-z0-9_"  # noqa: PLR2004 - `max_len` is no name
    before = rf"(?:(?<![{inside}]{body})|(?<=\\[nrtbf]{body}))"
    domain = r"(?:(?:\.[A-Za-z0-9-]{1,63}){1,7}\.[A-Za-z]{2,24}\b)?" if kind == "host" else ""
    return re.compile(rf"{body}{before}(?![{inside}]){domain}")


def _written(char: str) -> str:
    r"""Return a pattern for a character as JSON, URLs, shells, HTML and `repr` write it."""
    if char.isascii() and char.isalnum():
        return char
    if char == "\n":
        return r"(?:\\*\r?\n|\\+r?\\*n|\\+n|%0[aA])"
    code = ord(char)
    units = char.encode("utf-16-be", "replace")
    escaped = "".join(rf"\\+u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    quoted = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "replace"))
    ways = [rf"\\*{re.escape(char)}", f"(?i:{escaped})", f"(?i:{quoted})"]
    if code < 256:  # noqa: PLR2004
        ways.append(rf"(?i:\\+x{code:02x})")
    ways += _OTHER_WAYS.get(char, ())
    return f"(?:{'|'.join(ways)})"


def _coded(data: bytes) -> tuple[str, ...]:
    """Return the base64 of bytes, at each of three places in what was coded with them."""
    if len(data) < _SHORTEST_CODED:
        return ()
    found = []
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        # the first and last characters also hold bits of what stands beside
        core = text[(0, 2, 3)[offset] : (offset + len(data)) * 8 // 6]
        found += [core, core.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(found))
