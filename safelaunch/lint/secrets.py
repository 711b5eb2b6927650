"""Finds tokens, keys and passwords written into a file. Never repeats what it found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.lint.finding import ERROR, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.source import Source
    from safelaunch.lint.yaml_rules import Document

ID = "secret"
_SHORTEST = 8  # characters of a secret that only its key tells
_KINDS = (
    ("a Hugging Face token", r"hf_[A-Za-z0-9]{20,}"),
    ("an API key", r"sk-(?=[a-z-]{0,40}[A-Z0-9])[A-Za-z0-9_-]{20,}"),
    ("a GitHub token", r"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"),
    ("an AWS access key", r"AKIA[A-Z0-9]{16}"),
    ("a GitLab token", r"glpat-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"xox[abp]-[A-Za-z0-9-]{20,}"),
    ("a Google API key", r"AIza[A-Za-z0-9_-]{35}"),
)
_TOKENS = tuple(
    (what, re.compile(f"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])")) for what, pattern in _KINDS
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_IN_ADDRESS = re.compile(r"[a-z]://[^/\s:@$\"']*:(?P<password>[^/\s:@$\"'<{]+)@")

_NAME = re.compile(
    r"(^|[_.-])(api[_-]?key|token|passwd|password|passphrase|secret|secret[_-]?key"
    r"|access[_-]?key|private[_-]?key|credentials?)$"
)
# names that end in "token" and mean a piece of text
_PIECE = re.compile(
    r"(^|[_.-])(bos|eos|pad|unk|sep|cls|mask|image|video|audio|stop|start|end|think|special|max"
    r"|new|per)[_-]token$"
)
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
        if not scalar.is_key and likely and is_name(name) and is_value(scalar.text):
            yield found(file, scalar.line, scalar.column, f"the value of `{name}`")


def _in_line(line: str) -> Iterator[tuple[str, int]]:
    for what, pattern in _TOKENS:
        for match in pattern.finditer(line):
            if not re.fullmatch(r"[A-Za-z]+[_-](.)\1*", match.group()):  # hf_xxxxxxxx
                yield what, match.start()
    key, address = _PRIVATE_KEY.search(line), _IN_ADDRESS.search(line)
    if key is not None:
        yield "a private key", key.start()
    if address is not None and is_value(address["password"]):
        yield "a password in an address", address.start("password")


def found(file: str, line: int, column: int, what: str) -> Finding:
    """Return the finding for a secret: what it is, never the secret."""
    return Finding(file, line, column, ID, f"{what} in the file, hidden here", _FIX, ERROR)


def is_name(name: str) -> bool:
    """Whether a name says that its value is a password, token or key."""
    lower = name.lower()
    return _NAME.search(lower) is not None and _PIECE.search(lower) is None


def is_value(value: str) -> bool:
    """Whether a value is a secret where the name says so: no `$NAME`, no placeholder, no path."""
    if value.startswith(("$", "~", "/", "./")) or "$(" in value or "${" in value:
        return False
    if re.search(r"\s", value):  # a command, a sentence
        return False
    return _PLACEHOLDER.fullmatch(value) is None
