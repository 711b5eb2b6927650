"""Replaces a known value in all encodings in which a text may contain it."""

from __future__ import annotations

import base64
import re

_MIN_ENCODED_BYTES = 6  # shorter values have ambiguous base64
_BASE64_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
_MIN_LINE_CHARS = 16  # a longer line of a secret is a secret by itself
_MIN_WORD_PART = 4  # characters of a name that is also replaced between underscores
_MAX_BASE64_RUN = 1 << 14  # base64 around a value that is replaced with it

_ALTERNATIVE_FORMS = {
    " ": (r"\+",),
    "\t": (r"\\+t",),
    "\r": (r"\\+r",),
    "'": ("'\\\\*\"'\\\\*\"'", "&#x27;", "&#39;"),  # the first one is a shell's
    '"': ("&quot;",),
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
}


class KnownValue:
    """A value and its placeholder. Secrets match inside words and encoded, names as words."""

    def __init__(self, kind: str, value: str, placeholder: str) -> None:
        self.value = value
        self.placeholder = placeholder
        is_secret = kind == "secret"
        runs = re.findall(r"[A-Za-z0-9]+", value)
        self._anchor = max(runs, key=len, default="") if is_secret else ""
        spellings = (value, value.lower(), value.upper()) if kind in ("host", "email") else (value,)
        self._patterns = (
            [re.compile("".join(map(_char_pattern, value)))]
            if is_secret
            else [_word_pattern(kind, form) for form in dict.fromkeys(spellings)]
        )
        self._encoded_forms = _encoded_forms(value.encode("utf-8", "replace")) if is_secret else ()
        lines = value.splitlines() if is_secret and "\n" in value else ()
        long_lines = (line.strip() for line in lines if len(line) >= _MIN_LINE_CHARS)
        self._lines = [KnownValue(kind, line, placeholder) for line in long_lines]

    def replace(self, text: str) -> str:
        """Return a text in which the placeholder stands for the value."""
        if self._anchor in text:
            for pattern in self._patterns:
                text = pattern.sub(lambda _: self.placeholder, text)
        for encoded in self._encoded_forms:
            if encoded in text:
                text = self._without_encoded(text, encoded)
        for line in self._lines:
            text = line.replace(text)
        return text

    def _without_encoded(self, text: str, encoded: str) -> str:
        """Return a text without the base64 runs that contain an encoded value."""
        parts, copied_to = [], 0
        position = text.find(encoded)
        while position >= 0:
            start, end = position, position + len(encoded)
            first, last = max(copied_to, start - _MAX_BASE64_RUN), end + _MAX_BASE64_RUN
            while start > first and text[start - 1] in _BASE64_CHARS:
                start -= 1
            while end < min(len(text), last) and text[end] in _BASE64_CHARS:
                end += 1
            parts += [text[copied_to:start], self.placeholder]
            copied_to = end
            position = text.find(encoded, end)
        return "".join([*parts, text[copied_to:]])


def _word_pattern(kind: str, value: str) -> re.Pattern[str]:
    """Return a pattern for a name as a word; `alice_2` has the name in it, `malice` has not.

    The check of what precedes it comes last: a pattern that starts with letters is searched fast.
    """
    body = re.escape(value)
    if kind == "home":
        return re.compile(rf"{body}(?![\w-])")
    # in `max_len` the short name `max` is no word
    word_chars = "A-Za-z0-9" if len(value) >= _MIN_WORD_PART else "A-Za-z0-9_"
    lookbehind = rf"(?:(?<![{word_chars}]{body})|(?<=\\[nrtbf]{body}))"
    domain = r"(?:(?:\.[A-Za-z0-9-]{1,63}){1,7}\.[A-Za-z]{2,24}\b)?" if kind == "host" else ""
    return re.compile(rf"{body}{lookbehind}(?![{word_chars}]){domain}")


def _char_pattern(char: str) -> str:
    r"""Return a pattern for a character as JSON, URLs, shells, HTML and `repr` write it."""
    if char.isascii() and char.isalnum():
        return char
    if char == "\n":
        return r"(?:\\*\r?\n|\\+r?\\*n|\\+n|%0[aA])"
    units = char.encode("utf-16-be", "replace")
    escaped = "".join(rf"\\+u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    quoted = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "replace"))
    alternatives = [rf"\\*{re.escape(char)}", f"(?i:{escaped})", f"(?i:{quoted})"]
    if char <= "\xff":
        alternatives.append(rf"(?i:\\+x{ord(char):02x})")
    alternatives += _ALTERNATIVE_FORMS.get(char, ())
    return f"(?:{'|'.join(alternatives)})"


def _encoded_forms(data: bytes) -> tuple[str, ...]:
    """Return the base64 of bytes, at each of the three possible offsets."""
    if len(data) < _MIN_ENCODED_BYTES:
        return ()
    forms = []
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + data).decode()
        # the first and last characters also hold bits of adjacent bytes
        core = text[(0, 2, 3)[offset] : (offset + len(data)) * 8 // 6]
        forms += [core, core.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(forms))
