"""YAML and JSON files: which kind they are, and the rules for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.lint import file_kinds, file_variables, secrets
from safelaunch.lint.file_kinds import Kind
from safelaunch.lint.finding import BOM, ERROR, Finding
from safelaunch.lint.yaml_files import framework_keys, rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.lint.env.model import Facts
    from safelaunch.lint.file_text import Source
    from safelaunch.lint.yaml_files.rules import Document


def check_yaml(text: Source, known: Facts) -> tuple[Kind, list[Finding]]:
    """Return the kind of a YAML file, and what is wrong in it."""
    document = rules.read(text.text, text.file)
    kind = _kind(text, document)
    variables = file_variables.in_yaml(document, text.file, kind, known)
    if kind in (Kind.JOB, Kind.PROFILE, Kind.HOSTS):
        return kind, list(variables)  # their own reader is stricter in all else
    found = [*document.findings, *_secrets(text, document), *_keys(kind, document, text.file)]
    if kind is not Kind.OTHER:
        found += [*rules.check_types(document, text.file), *variables]
    return kind, found


def _secrets(text: Source, document: Document) -> list[Finding]:
    by_look = list(secrets.check_text(text))
    seen = {f.line for f in by_look}
    return by_look + [f for f in secrets.check_keys(document, text.file) if f.line not in seen]


def check_json(text: Source) -> tuple[Kind, list[Finding]]:
    """Return the kind of a JSON file, and what is wrong in it where it is a configuration."""
    # JSON is YAML but for the tabs between its values
    document = rules.read(text.text.replace("\t", " "), text.file)
    kind = _kind(text, document)
    if kind not in (Kind.ACCELERATE, Kind.DEEPSPEED):
        return Kind.JSON, []
    found = list(document.findings)
    if text.has_bom:
        message = "a byte order mark before the first line: json.load refuses it"
        fix = "save as UTF-8 without BOM"
        found.append(Finding(text.file, 1, 1, BOM, message, fix, ERROR))
    return kind, [*found, *_keys(kind, document, text.file)]


def _kind(text: Source, document: Document) -> Kind:
    launcher = document.value("launcher")
    parents = [s.text for s in document.scalars if s.path[:1] == ("extends",) and not s.is_key]
    return file_kinds.by_keys(
        text.file, document.keys, launcher.text if launcher else None, parents
    )


def _keys(kind: Kind, document: Document, file: str) -> Iterable[Finding]:
    if kind is Kind.ACCELERATE:
        return framework_keys.check_accelerate(document, file)
    return framework_keys.check_deepspeed(document, file) if kind is Kind.DEEPSPEED else ()
