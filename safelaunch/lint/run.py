"""Applies the rules for a file's kind, without those that comments in the file disable."""

# ruff: noqa: PLC0415 - each kind of file imports its own rules: their regular expressions are slow

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.lint import kinds, text_file
from safelaunch.lint.env.model import Facts
from safelaunch.lint.finding import ERROR, LintFinding
from safelaunch.lint.kinds import FileKind

if TYPE_CHECKING:
    from safelaunch.lint.text_file import TextFile


class LintResult(NamedTuple):
    """The kind of a file, and the findings in it."""

    kind: FileKind | None
    findings: tuple[LintFinding, ...]


def check(file: str, data: bytes, facts: Facts | None = None) -> LintResult:
    """Return the kind and the findings of a file's bytes. `file` is its name in findings.

    `facts` about the target machine affect the rules for environment variables.
    """
    kind = kinds.kind_by_name(file, data[:200])
    if kind is None:
        return LintResult(None, ())
    text = text_file.decode(file, data)
    if text is None:
        message, fix = "UTF-16: bash, json and pip read UTF-8", "save as UTF-8"
        return LintResult(kind, (LintFinding(file, 1, 1, "encoding", message, fix, ERROR),))
    kind, findings = _check(kind, text, facts)
    reported = [f for f in findings if not text.is_ignored(f.line, f.id)]
    if kind not in (FileKind.SHELL, FileKind.REQUIREMENTS):
        from safelaunch.lint.yaml_files.rules import merge_notes

        reported = merge_notes(sorted(reported, key=lambda f: (f.line, f.column)))
    return LintResult(kind, tuple(sorted(reported, key=lambda f: (f.line, f.column, f.id))))


def _check(
    kind: FileKind, text: TextFile, facts: Facts | None
) -> tuple[FileKind, list[LintFinding]]:
    if kind is FileKind.SHELL:
        return kind, _shell(text, facts)
    if kind is FileKind.REQUIREMENTS:
        from safelaunch.lint import requirements, secrets

        return kind, [*requirements.check(text), *secrets.check_text(text)]
    from safelaunch.lint.yaml_files import check as yaml_files_check

    if kind is FileKind.JSON:
        return yaml_files_check.check_json(text)
    return yaml_files_check.check_yaml(text, facts or Facts())


def _shell(text: TextFile, facts: Facts | None) -> list[LintFinding]:
    from safelaunch.lint import secrets
    from safelaunch.lint.shell import rules
    from safelaunch.runtime.shell import lexer

    script = lexer.split(text.text)
    findings = secrets.with_tokens(text, rules.check(text, script))
    if rules.assignments(script):
        from safelaunch.lint import variables

        findings += variables.check_shell(text, script, facts or Facts())
    return findings
