"""Determines the kind of YAML and JSON files, and applies the rules for it."""

# ruff: noqa: PLC0415 - json: only for such files

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.lint import kinds, secrets, variables
from safelaunch.lint.finding import BOM, ERROR, LintFinding
from safelaunch.lint.kinds import FileKind
from safelaunch.lint.yaml_files import framework_keys, rules

JSON_SYNTAX = "json-syntax"
if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.lint.env.model import Facts
    from safelaunch.lint.text_file import TextFile
    from safelaunch.lint.yaml_files.rules import Document


def check_yaml(text: TextFile, facts: Facts) -> tuple[FileKind, list[LintFinding]]:
    """Return the kind of a YAML file, and its findings."""
    document = rules.parse(text.text, text.file)
    kind = _kind(text, document)
    env_findings = list(variables.check_yaml(document, text.file, kind, facts))
    if kind in (FileKind.JOB, FileKind.PROFILE, FileKind.HOSTS):
        return kind, env_findings  # safelaunch.config checks everything else, more strictly
    secret_findings = secrets.with_tokens(text, secrets.check_keys(document, text.file))
    findings = [*document.findings, *secret_findings, *_keys(kind, document, text.file)]
    if kind is not FileKind.OTHER:
        # accelerate 1.15.0 commands/config/config_args.py:152: yaml.safe_load
        is_pyyaml = facts.uses_pyyaml or kind is FileKind.ACCELERATE
        findings += [
            *rules.check_types(document, text.file, is_pyyaml=is_pyyaml),
            *env_findings,
        ]
    return kind, findings


def check_json(text: TextFile) -> tuple[FileKind, list[LintFinding]]:
    """Return the kind of a JSON file, and its findings if it is a configuration."""
    # JSON is YAML except for tabs between values
    document = rules.parse(text.text.replace("\t", " "), text.file)
    kind = _kind(text, document)
    if kind not in (FileKind.ACCELERATE, FileKind.DEEPSPEED):
        return FileKind.JSON, []
    findings = list(document.findings)
    if text.has_bom:
        message = "a byte order mark before the first line: json.load refuses it"
        fix = "save as UTF-8 without BOM"
        findings.append(LintFinding(text.file, 1, 1, BOM, message, fix, ERROR))
    error = _json_error(text)
    if error is not None:
        return kind, [*findings, error]
    return kind, [*findings, *_keys(kind, document, text.file)]


def _json_error(text: TextFile) -> LintFinding | None:
    """Return what json.load, with which accelerate and DeepSpeed read the file, refuses in it."""
    import json

    try:
        json.loads(text.text.removeprefix("\ufeff"))
    except json.JSONDecodeError as e:
        what = f"json.load refuses the file: {e.msg.lower()}"
        return LintFinding(text.file, e.lineno, e.colno, JSON_SYNTAX, what, None, ERROR)
    except RecursionError:
        return None
    return None


def _kind(text: TextFile, document: Document) -> FileKind:
    launcher = document.value("launcher")
    parents = [s.text for s in document.scalars if s.path[:1] == ("extends",) and not s.is_key]
    name = launcher.text if launcher else None
    return kinds.kind_by_keys(text.file, document.keys, name, parents)


def _keys(kind: FileKind, document: Document, file: str) -> Iterable[LintFinding]:
    if kind is FileKind.ACCELERATE:
        return framework_keys.check_accelerate(document, file)
    return framework_keys.check_deepspeed(document, file) if kind is FileKind.DEEPSPEED else ()
