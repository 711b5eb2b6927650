"""Finds tokens, keys and passwords in a file. Never repeats them in a message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.lint.finding import ERROR, LintFinding
from safelaunch.secrets_in_text import PASSWORD_IN_ADDRESS, is_secret_name, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.lint.text_file import TextFile
    from safelaunch.lint.yaml_files.rules import Document

ID = "secret"
_MIN_LENGTH = 8  # characters of a secret that only its key tells
# in any part of a value: `sk-xxxx`, `hf_...`, `fakeapikey`
_FILLER = re.compile(
    r"(?i)x{4}|\*{3}|\.{3}|\u2026|<.*>|fake|dummy|redacted"
    r"|(your|my)[_-]?(api|hf|key|token|wandb|password|secret)"
)
_PLACEHOLDER = re.compile(
    r"(?i)|empty|dummy|none|null|true|false|changeme|secret|password|token|api[_-]?key|\d{1,4}"
    r"|x+|\*+|\.+|<.*>|\[.*\]|\{.*\}|.*\b(your|my|some|example|placeholder|replace|todo|insert)\b.*"
    r"|(your|my|some|example|placeholder|replace|todo|insert)[_-].*|.*[_-](here|placeholder)"
    # the name of a variable, and the beginning of a token before `<your key>`
    r"|(?-i:[A-Z]+(_[A-Z]+)+)|[\w-]*[_-]"
)
_FIX = "remove it, revoke it if others saw the file, and pass it with `env_from: [NAME]`"


def check_text(text: TextFile) -> Iterator[LintFinding]:
    """Yield tokens and private keys that are recognisable by their format, anywhere in a file."""
    for number, line in enumerate(text.lines, 1):
        for what, at in _in_line(line):
            yield secret_finding(text.file, number, at + 1, what)


def with_tokens(text: TextFile, findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Return the findings of `check_text`, and others unless they are about the same secret."""
    tokens_found = list(check_text(text))
    lines = {f.line for f in tokens_found}
    return tokens_found + [f for f in findings if f.id != ID or f.line not in lines]


def check_keys(document: Document, file: str) -> Iterator[LintFinding]:
    """Yield values of a YAML file with the key of a secret that look like one."""
    for scalar in document.scalars:
        name = scalar.path[-1] if scalar.path else ""
        is_value = not scalar.is_key and is_random(scalar.text) and is_literal(scalar.text)
        if is_value and is_secret_name(name):
            yield secret_finding(file, scalar.line, scalar.column, f"the value of `{name}`")


def _in_line(line: str) -> Iterator[tuple[str, int]]:
    for what, match in tokens(line):
        is_repeated = re.fullmatch(r"[A-Za-z]+[_-](.)\1*", match.group())  # hf_aaaaaaaa
        if not is_repeated and not _FILLER.search(match.group()):
            yield what, match.start()
    if "://" in line:
        for match in re.finditer(PASSWORD_IN_ADDRESS, line):
            if is_literal(match["password"]):
                yield "a password in an address", match.start("password")


def secret_finding(file: str, line: int, column: int, what: str) -> LintFinding:
    """Return the finding for a secret: its kind, never its value."""
    return LintFinding(file, line, column, ID, f"{what} in the file (not shown)", _FIX, ERROR)


def is_random(value: str) -> bool:
    """Whether a value may be one that a program has made: long enough, and with a digit."""
    return len(value) >= _MIN_LENGTH and any(c.isdigit() for c in value)


def is_literal(value: str) -> bool:
    """Whether a value under a secret's name is the secret itself: no variable, no placeholder."""
    is_reference = value.startswith(("$", "~", "/", "./")) or "$(" in value or "${" in value
    is_text = re.search(r"\s", value)  # a command, a sentence
    is_placeholder = _PLACEHOLDER.fullmatch(value) or _FILLER.search(value)
    return not is_reference and not is_text and not is_placeholder
