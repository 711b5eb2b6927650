"""Checks the environment variables that shell scripts and YAML files set."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.lint.env import combinations, names
from safelaunch.lint.finding import WARNING, Edit, LintFinding
from safelaunch.lint.kinds import FileKind
from safelaunch.lint.shell import rules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from safelaunch.lint.env.model import Facts, VariableProblem
    from safelaunch.lint.shell.rules import Assignment
    from safelaunch.lint.text_file import TextFile
    from safelaunch.lint.yaml_files.rules import Document, Scalar
    from safelaunch.runtime.shell.lexer import Script


class VariableLocation(NamedTuple):
    """The location of a variable's name in a file."""

    file: str
    line: int
    column: int
    is_plain: bool


_MAPPINGS = ("env", "ENV", "envs", "env_vars", "environment", "environment_variables")
_REFERENCE = re.compile(r"\$\{?[#!]?(\w+)")
# variables for child processes, useless unless exported; the script itself does not use them
_CHILD_VARIABLES = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_FR|GLOO)_\w+|(CUDA|HIP|ROCR)_VISIBLE_DEVICES"
)


def check_shell(text: TextFile, script: Script, declared: Facts) -> Iterator[LintFinding]:
    """Yield findings about the variables that a shell script sets for programs."""
    facts = declared._replace(launcher=rules.find_launcher(script))
    all_settings, used = rules.assignments(script), set(_REFERENCE.findall(text.text))
    exported = None if text.file.endswith(".env") else rules.exported_names(script)
    if exported is not None:
        exported |= {s.name for s in all_settings if s.is_exported}
        yield from _not_exported(text.file, all_settings, used | exported)
    settings = [s for s in all_settings if exported is None or s.name in exported]
    for setting in settings:
        edit = Edit(setting.word.line, setting.word.column, setting.name, "")
        is_used = setting.name in used
        for problem in names.check_variable(setting.name, setting.value, facts):
            yield _finding(text.file, problem, edit, may_rename=not is_used)
    last = {setting.name: setting for setting in settings}
    values = {name: setting.value for name, setting in last.items()}
    for problem in combinations.check(values, facts):
        word = last[problem.name].word
        yield _finding(text.file, problem, Edit(word.line, word.column, problem.name, ""))


def _not_exported(
    file: str, settings: list[Assignment], available: Collection[str]
) -> Iterator[LintFinding]:
    table = names.table()
    for setting in settings:
        name, word = setting.name, setting.word
        is_library = name in table.variables or name in table.retired
        if name in available or not is_library or not _CHILD_VARIABLES.fullmatch(name):
            continue
        message = f"`{name}` is set but not exported: programs that the script starts do not see it"
        fix = f"write export {name}=..., or put it in front of the command on the same line"
        yield LintFinding(file, word.line, word.column, "env-not-exported", message, fix, WARNING)


def check_yaml(
    document: Document, file: str, kind: FileKind, declared: Facts
) -> Iterator[LintFinding]:
    """Yield findings about the variables in the `env` mappings of a YAML file."""
    facts = _facts(document, declared)
    mappings: dict[tuple[str, ...], dict[str, Scalar]] = {}
    values = {s.path: s.text for s in document.scalars if not s.is_key}
    for key in document.scalars:
        if key.is_key and key.path and key.path[-1] in _MAPPINGS:
            mappings.setdefault(key.path, {})[key.text] = key
    for path, keys in mappings.items():
        texts = {name: values.get((*path, name)) for name in keys}
        if kind is FileKind.PROFILE:
            texts = {name: values.get((*path, name, "value"), texts[name]) for name in keys}
        locations = {
            name: VariableLocation(file, key.line, key.column, key.is_plain)
            for name, key in keys.items()
        }
        for finding in check_variables(texts, locations, facts):
            if kind is not FileKind.PROFILE or finding.id != "env-together":
                yield finding  # a profile documents why, and the cost


def check_variables(
    values: Mapping[str, str | None], locations: Mapping[str, VariableLocation], facts: Facts
) -> Iterator[LintFinding]:
    """Yield findings about variables, each at its location; None is an unknown value."""
    for problem in names.check(values, facts):
        location = locations[problem.name]
        edit = Edit(location.line, location.column + (not location.is_plain), problem.name, "")
        yield _finding(location.file, problem, edit)


def _facts(document: Document, declared: Facts) -> Facts:
    launcher, nodes = document.value("launcher"), document.value("nodes")
    node_count = None if nodes is None else parse_count(nodes.text)
    return declared._replace(launcher=launcher.text if launcher else None, nodes=node_count)


def parse_count(text: str) -> int | None:
    """Return a text as a number; None if it is not one, or larger than any cluster."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _finding(
    file: str, problem: VariableProblem, at: Edit, *, may_rename: bool = True
) -> LintFinding:
    rule, _, message, fix, severity, rename = problem
    edits = (replace(at, new=rename),) if rename is not None and may_rename else ()
    return LintFinding(file, at.line, at.column, rule, message, fix, severity, edits)
