"""Rules for YAML of other programs: values that loaders read differently, duplicates, syntax."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from safelaunch.lint.finding import ERROR, NOTE, WARNING, Edit, LintFinding
from safelaunch.lint.yaml_files import scalars
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_SHOWN = 40
_MERGE = "<<"
TYPE = "yaml-type"


class Scalar(NamedTuple):
    """A scalar with its location; `path` are the keys above it, `is_key` if it is a key itself."""

    text: str
    is_plain: bool
    line: int
    column: int
    path: tuple[str, ...]
    is_key: bool


class Document(NamedTuple):
    """A YAML file as a flat list of scalars in order, with its YAML errors."""

    scalars: tuple[Scalar, ...]
    findings: tuple[LintFinding, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The top-level keys."""
        return tuple(s.text for s in self.scalars if s.is_key and not s.path)

    def value(self, *path: str) -> Scalar | None:
        """Return the scalar at a path of keys, or None."""
        return next((s for s in self.scalars if s.path == path and not s.is_key), None)

    def keys_below(self, *path: str) -> tuple[Scalar, ...]:
        """Return the keys of the mapping at a path."""
        return tuple(s for s in self.scalars if s.is_key and s.path == path)


def parse(text: str, file: str) -> Document:
    """Return the document; after a syntax error, what was read before it."""
    reader = _EventReader(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.handle(event)
    except yaml.MarkedYAMLError as e:
        reader.findings.append(_syntax(e, text, file))
    except (yaml.YAMLError, UnicodeEncodeError) as e:
        message = "a control character, which YAML does not allow"
        position = getattr(e, "position", None)
        line = text.encode(errors="replace")[: position or 0].count(b"\n") + 1
        reader.findings.append(LintFinding(file, line, 1, "yaml-syntax", message, None, ERROR))
    return Document(tuple(reader.scalars), tuple(reader.findings))


def check_types(document: Document, file: str, *, is_pyyaml: bool = False) -> Iterator[LintFinding]:
    """Yield findings for values and keys that PyYAML and YAML 1.2 loaders read differently.

    `is_pyyaml`: the program that reads the file is known to use PyYAML. Others get the number
    (OmegaConf, jsonargparse) or make one of the text (argparse, pydantic): then it is a note.
    """
    for scalar in document.scalars:
        if scalar.is_plain and (finding := _check_type(scalar, file)) is not None:
            is_note = finding.id == TYPE and not is_pyyaml
            yield replace(finding, severity=NOTE) if is_note else finding


def merge_notes(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Return findings with all notes about types as one, at the place of the first."""
    merged = list(findings)
    notes = [f for f in merged if f.id == TYPE and f.severity == NOTE]
    if len(notes) < 2:  # noqa: PLR2004 - one needs no merging
        return merged
    first, others = notes[0], len(notes) - 1
    message = f"{first.message}; {quantity(others, 'more value')} of this kind below"
    edits = tuple(edit for note in notes for edit in note.edits)
    fix = f"{first.fix}; --fix writes all floats so" if edits else first.fix
    whole = replace(first, message=message, fix=fix, edits=edits)
    return [whole, *(f for f in merged if f not in notes)]


def _check_type(scalar: Scalar, file: str) -> LintFinding | None:
    text = scalar.text
    if scalar.is_key and text == _MERGE:
        return None
    pyyaml, ruamel = scalars.pyyaml_value(text), scalars.ruamel_value(text)
    new = scalars.portable_float(text)
    if pyyaml != ruamel:
        rule, severity = TYPE, ERROR if new is not None else WARNING
        difference = f"PyYAML reads {pyyaml.description}, YAML 1.2 loaders {ruamel.description}"
    elif pyyaml.kind in ("date", "time"):
        rule, severity = "yaml-date", WARNING
        difference = f"PyYAML reads {pyyaml.description}; in YAML 1.2 and JSON it is text"
    elif new is not None or pyyaml.kind == "error":
        rule, severity = TYPE, WARNING
        standard = scalars.standard_value(text).description
        difference = f"PyYAML reads {pyyaml.description}, the YAML 1.2 standard {standard}"
    else:
        return None
    edits = () if new is None else (Edit(scalar.line, scalar.column, text, new),)
    prefix = "key " if scalar.is_key else ""
    message = f"{prefix}`{_short(text)}`: {difference}"
    quoted = f'put it in quotes: "{_short(text)}"'
    fix = quoted if scalar.is_key and new is None else _suggest_fix(text, pyyaml, ruamel, new)
    return LintFinding(file, scalar.line, scalar.column, rule, message, fix, severity, edits)


def _suggest_fix(
    text: str, old: scalars.ScalarValue, new: scalars.ScalarValue, spelling: str | None
) -> str:
    if spelling is not None:
        return f"write {spelling}"
    if "boolean" in (old.kind, new.kind):
        word = (old if old.kind == "boolean" else new).value
        return f'write {word} for the boolean, "{_short(text)}" for the text'
    number = old if old.kind in ("integer", "float") else new
    if number.kind in ("integer", "float") and not number.value.endswith(("inf", "nan")):
        return f'write "{_short(text)}" for the text, {number.value} for the number'
    return f'put it in quotes: "{_short(text)}"'


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def _syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> LintFinding:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.split("\n")
    shown = lines[line - 1] if line <= len(lines) else ""
    indent = shown[: len(shown) - len(shown.lstrip())]
    if "\t" in indent:
        column = indent.index("\t") + 1
        fix = "replace it with spaces"
        message = "a tab: YAML does not allow tabs for indentation"
        return LintFinding(file, line, column, "yaml-tab", message, fix, ERROR)
    problem = (error.problem or error.context or "not YAML").replace("'", "`")
    return LintFinding(file, line, column, "yaml-syntax", f"not YAML: {problem}", None, ERROR)


class _OpenCollection(NamedTuple):
    is_map: bool
    path: tuple[str, ...]
    keys: dict[tuple[str, str], int]  # {key as PyYAML reads it: its line}
    pending_key: list[str]  # the key whose value is the next event, at most one


class _EventReader:
    """Reads YAML events one by one, without recursion; aliases are not resolved."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.scalars: list[Scalar] = []
        self.findings: list[LintFinding] = []
        self.stack: list[_OpenCollection] = []

    def handle(self, event: Any) -> None:
        """Process one event."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            is_map = isinstance(event, yaml.MappingStartEvent)
            self.stack.append(_OpenCollection(is_map, self._path(), {}, []))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            self._path()
        elif isinstance(event, yaml.DocumentStartEvent):
            self.stack.clear()

    def _scalar(self, event: Any) -> None:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        is_plain = event.style in (None, "") and event.implicit[0]
        top = self.stack[-1] if self.stack else None
        if top is not None and top.is_map and not top.pending_key:
            self._check_duplicate(top, event.value, is_plain, line, column)
            self.scalars.append(Scalar(event.value, is_plain, line, column, top.path, True))
            top.pending_key.append(event.value)
            return
        path = self._path()
        self.scalars.append(Scalar(event.value, is_plain, line, column, path, False))

    def _path(self) -> tuple[str, ...]:
        """Return the path of the current value, which may be a key that is not a scalar."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if not top.is_map:
            return (*top.path, "-")
        if top.pending_key:
            return (*top.path, top.pending_key.pop())
        top.pending_key.append("")
        return top.path

    def _check_duplicate(
        self, top: _OpenCollection, text: str, is_plain: bool, line: int, column: int
    ) -> None:
        if is_plain and text == _MERGE:
            return
        value = scalars.pyyaml_value(text) if is_plain else scalars.TEXT
        key = (value.kind, value.value or text)
        if key not in top.keys:
            top.keys[key] = line
            return
        message = f"duplicate key `{_short(text)}`: the last one silently wins"
        fix = f"keep one; the first is in line {top.keys[key]}"
        finding = LintFinding(self.file, line, column, "yaml-duplicate", message, fix, ERROR)
        self.findings.append(finding)
