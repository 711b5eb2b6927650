"""Finds tokens, keys and passwords written into a file. Never repeats what it found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.lint.finding import ERROR, Finding
from safelaunch.secrets_in_text import PASSWORD_IN_ADDRESS, is_secret_name, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.file_text import Source
    from safelaunch.lint.yaml_files.rules import Document

ID = "secret"
_SHORTEST = 8  # characters of a secret that only its key tells
_PLACEHOLDER = re.compile(
    r"(?i)|empty|dummy|none|null|true|false|changeme|secret|password|token|api[_-]?key|\d{1,4}"
    r"|x+|\*+|\.+|<.*>|\[.*\]|\{.*\}|.*\b(your|my|some|example|placeholder|replace|todo|insert)\b.*"
    r"|(your|my|some|example|placeholder|replace|todo|insert)[_-].*|.*[_-](here|placeholder)"
)
_FIX = "take it out, revoke it if others saw the file, and give it at the start: `env_from: [NAME]`"


def check_text(text: Source) -> Iterator[Finding]:
    """Yield tokens and private keys that can be told by their look, wherever they stand."""
    for number, line in enumerate(text.lines, 1):
        for what, at in _in_line(line):
            yield found(text.file, number, at + 1, what)


def check_keys(document: Document, file: str) -> Iterator[Finding]:
    """Yield values of a YAML file whose key says that they are secret, and that look like it."""
    for scalar in document.scalars:
        name = scalar.path[-1] if scalar.path else ""
        likely = len(scalar.text) >= _SHORTEST and any(c.isdigit() for c in scalar.text)
        if not scalar.is_key and likely and is_secret_name(name) and is_value(scalar.text):
            yield found(file, scalar.line, scalar.column, f"the value of `{name}`")


def _in_line(line: str) -> Iterator[tuple[str, int]]:
    for what, match in tokens(line):
        if not re.fullmatch(r"[A-Za-z]+[_-](.)\1*", match.group()):  # hf_xxxxxxxx
            yield what, match.start()
    if "://" in line:
        for match in re.finditer(PASSWORD_IN_ADDRESS, line):
            if is_value(match["password"]):
                yield "a password in an address", match.start("password")


def found(file: str, line: int, column: int, what: str) -> Finding:
    """Return the finding for a secret: what it is, never the secret."""
    return Finding(file, line, column, ID, f"{what} in the file, hidden here", _FIX, ERROR)


def is_value(value: str) -> bool:
    """Whether a value is a secret where the name says so: no `$NAME`, no placeholder, no path."""
    if value.startswith(("$", "~", "/", "./")) or "$(" in value or "${" in value:
        return False
    if re.search(r"\s", value):  # a command, a sentence
        return False
    return _PLACEHOLDER.fullmatch(value) is None
