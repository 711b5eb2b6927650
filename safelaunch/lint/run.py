"""Asks the rules for a file's kind, and leaves out what a comment in the file asks to ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.lint import file_kinds, file_text
from safelaunch.lint.env.model import Facts
from safelaunch.lint.file_kinds import Kind
from safelaunch.lint.finding import ERROR, Finding

if TYPE_CHECKING:
    from safelaunch.lint.file_text import Source


class Checked(NamedTuple):
    """What a file is, and what is wrong in it."""

    kind: Kind | None
    findings: tuple[Finding, ...]


def check(file: str, data: bytes, known: Facts | None = None) -> Checked:
    """Return what is wrong in a file's bytes. `file` names it in findings.

    `known`: what is known of the machine that it is for; variables are judged by it.
    """
    kind = file_kinds.by_name(file, data[:200])
    if kind is None:
        return Checked(None, ())
    text = file_text.read(file, data)
    if text is None:
        message = "UTF-16: bash, json and pip read UTF-8"
        return Checked(kind, (Finding(file, 1, 1, "encoding", message, "save as UTF-8", ERROR),))
    kind, found = _check(kind, text, known)
    kept = [f for f in found if not text.ignores(f.line, f.id)]
    return Checked(kind, tuple(sorted(kept, key=lambda f: (f.line, f.column, f.id))))


def _check(kind: Kind, text: Source, known: Facts | None) -> tuple[Kind, list[Finding]]:
    # each kind loads its own rules: regular expressions are most of a start's time
    if kind is Kind.SHELL:
        return kind, _shell(text, known)
    if kind is Kind.REQUIREMENTS:
        from safelaunch.lint import requirements, secrets  # noqa: PLC0415 - as above

        return kind, [*requirements.check(text), *secrets.check_text(text)]
    from safelaunch.lint.yaml_files import check as yaml_files_check  # noqa: PLC0415 - as above

    if kind is Kind.JSON:
        return yaml_files_check.check_json(text)
    return yaml_files_check.check_yaml(text, known or Facts())


def _shell(text: Source, known: Facts | None) -> list[Finding]:
    from safelaunch.lint import secrets  # noqa: PLC0415 - as above
    from safelaunch.lint.shell import rules  # noqa: PLC0415 - as above

    script = rules.read(text)
    by_look = list(secrets.check_text(text))
    seen = {f.line for f in by_look}
    found = [f for f in rules.check(text, script) if f.id != secrets.ID or f.line not in seen]
    if rules.settings(script):
        from safelaunch.lint import file_variables  # noqa: PLC0415

        found += file_variables.in_shell(text, script, known or Facts())
    return [*found, *by_look]
