"""Environment variables that scripts and YAML files set, and what is wrong with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.lint.env import names
from safelaunch.lint.file_kinds import Kind
from safelaunch.lint.finding import WARNING, Edit, Finding
from safelaunch.lint.shell import rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.lint.env.model import Facts, Problem
    from safelaunch.lint.file_text import Source
    from safelaunch.lint.shell.lexer import Script
    from safelaunch.lint.shell.rules import Setting
    from safelaunch.lint.yaml_files.rules import Document, Scalar


class Place(NamedTuple):
    """Where a file names a variable."""

    file: str
    line: int
    column: int
    is_plain: bool


_MAPPINGS = ("env", "ENV", "envs", "env_vars", "environment", "environment_variables")
_USE = re.compile(r"\$\{?[#!]?(\w+)")
# set for the children, useless where it is not exported; those that a script may use itself are not
_FOR_CHILDREN = re.compile(r"(NCCL|TORCH_NCCL|TORCH_FR|GLOO)_\w+|(CUDA|HIP|ROCR)_VISIBLE_DEVICES")


def in_shell(text: Source, script: Script, known: Facts) -> Iterator[Finding]:
    """Yield what is wrong with the variables that a script sets."""
    facts = known._replace(launcher=rules.launcher(script))
    settings, used = rules.settings(script), set(_USE.findall(text.text))
    for setting in settings:
        edit = Edit(setting.word.line, setting.word.column, setting.name, "")
        is_used = setting.name in used
        for problem in names.check_one(setting.name, setting.value, facts):
            yield _finding(text.file, problem, edit, may_rename=not is_used)
    last = {setting.name: setting for setting in settings}
    values = {name: setting.value for name, setting in last.items()}
    for problem in names.check_together(values, facts):
        word = last[problem.name].word
        yield _finding(text.file, problem, Edit(word.line, word.column, problem.name, ""))
    if not text.file.endswith(".env"):
        yield from _not_exported(text.file, script, settings, used)


def _not_exported(
    file: str, script: Script, settings: list[Setting], used: set[str]
) -> Iterator[Finding]:
    exported = rules.exported(script)
    if exported is None:
        return
    seen = used | exported | {s.name for s in settings if s.is_exported}
    for setting in settings:
        name, word = setting.name, setting.word
        if name in seen or not _FOR_CHILDREN.fullmatch(name):
            continue
        message = f"`{name}` is set and not exported: no program that the script starts sees it"
        fix = f"write export {name}=..., or put it before the command in the same line"
        yield Finding(file, word.line, word.column, "env-not-exported", message, fix, WARNING)


def in_yaml(document: Document, file: str, kind: Kind, known: Facts) -> Iterator[Finding]:
    """Yield what is wrong with variables in the mappings of a YAML file that set some."""
    facts = _facts(document, known)
    found: dict[tuple[str, ...], dict[str, Scalar]] = {}
    values = {s.path: s.text for s in document.scalars if not s.is_key}
    for key in document.scalars:
        if key.is_key and key.path and key.path[-1] in _MAPPINGS:
            found.setdefault(key.path, {})[key.text] = key
    for path, keys in found.items():
        said = {name: values.get((*path, name)) for name in keys}
        if kind is Kind.PROFILE:
            said = {name: values.get((*path, name, "value"), said[name]) for name in keys}
        places = {n: Place(file, k.line, k.column, k.is_plain) for n, k in keys.items()}
        for finding in judged(said, places, facts):
            if kind is not Kind.PROFILE or finding.id != "env-together":
                yield finding  # a profile says why, and what it costs


def judged(
    values: Mapping[str, str | None], places: Mapping[str, Place], facts: Facts
) -> Iterator[Finding]:
    """Yield what is wrong with variables, each at its place; None is a value not known."""
    for problem in names.check(values, facts):
        at = places[problem.name]
        edit = Edit(at.line, at.column + (not at.is_plain), problem.name, "")
        yield _finding(at.file, problem, edit)


def _facts(document: Document, known: Facts) -> Facts:
    launcher, nodes = document.value("launcher"), document.value("nodes")
    said = None if nodes is None else count(nodes.text)
    return known._replace(launcher=launcher.text if launcher else None, nodes=said)


def count(text: str) -> int | None:
    """Return the number that a text is; None for what is none, or larger than any cluster."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _finding(file: str, problem: Problem, at: Edit, *, may_rename: bool = True) -> Finding:
    edit = None
    if problem.rename is not None and may_rename:
        edit = Edit(at.line, at.column, at.old, problem.rename)
    return Finding(
        file, at.line, at.column, problem.id, problem.message, problem.fix, problem.severity, edit
    )
