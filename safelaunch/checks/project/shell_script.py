"""Checks the shell script that a `command:` runs, by its text. Nothing of it is run."""

# ruff: noqa: PLC0415 - the rules of lint: only for jobs that run a shell script

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.checks.answers import Answer, ok, warn
from safelaunch.checks.project import command
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import CheckContext
    from safelaunch.runtime.shell.lexer import Script

_SHOWN = 5
_HANDLED = ("shell-tee",)  # a run fails with its ranks, whatever the script ends with
_MOVES = ("cd", "pushd")  # commands after which paths are relative to another folder


@check("shell-script", once=True)
def shell_script(context: CheckContext) -> Iterator[Answer] | None:
    """Whether the shell script that the job runs has no errors, and what it launches exists."""
    name, _ = command.file_of(context.job)
    data = None if name is None else context.project_files.text(name)
    if name is None or data is None:
        return None
    from safelaunch.lint.kinds import FileKind, kind_by_name

    if kind_by_name(name, data) is not FileKind.SHELL:
        return None
    return _answers(context, name, data)


def _answers(context: CheckContext, name: str, data: bytes) -> Iterator[Answer]:
    from safelaunch.lint.finding import NOTE
    from safelaunch.lint.run import check as lint
    from safelaunch.runtime.shell import lexer

    checked = lint(name, data).findings
    findings = [f for f in checked if f.severity != NOTE and f.id not in _HANDLED]
    for finding in findings[:_SHOWN]:
        what = f"{name}:{finding.line}:{finding.column}: {finding.message}"
        yield warn(what, finding.fix or f"safelaunch lint {name}")
    if len(findings) > _SHOWN:
        yield warn(f"{name}: {len(findings) - _SHOWN} more findings", f"safelaunch lint {name}")
    script = lexer.split(data.decode("utf-8", "replace"))
    missing = [] if findings else list(_missing_programs(context, name, script))
    yield from missing
    if not findings and not missing:
        yield ok(f"{name} has no errors")


def _missing_programs(context: CheckContext, name: str, script: Script) -> Iterator[Answer]:
    """Yield a warning for each launched file that is absent; none after a change of the folder."""
    from safelaunch.lint.shell import launch_lines

    if any(shell.values[:1] and shell.values[0] in _MOVES for shell in script.commands):
        return
    for line in launch_lines.read(script):
        word = line.script
        path = None if word is None else context.local_path(word.value)
        if word is not None and path is not None and not os.path.exists(path):
            what = f"{name}:{word.line}:{word.column}: {line.launcher} starts {word.value}"
            yield warn(f"{what}, which does not exist", "correct the path")
