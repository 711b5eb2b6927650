"""Checks numbers that must go together: batches, generations, ranks, parallel sizes."""

# ruff: noqa: PLC0415 - arithmetic: its rules are read only for jobs

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks.answers import FAIL, WARN, Answer, ok
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.analysis import arithmetic
    from safelaunch.checks.context import CheckContext


@check("numbers", family="arithmetic", once=True, quick=True)
def numbers(context: CheckContext) -> Iterable[Answer]:
    """Whether the job's numbers and options break no rule of its framework (docs/arithmetic.md)."""
    from safelaunch.analysis import arithmetic

    versions = context.hosts[0].get("python", "packages") if context.hosts else None
    configs: dict[str, object] = {}
    subject = arithmetic.subject_of(context.job, configs, versions)
    for _ in range(2):  # an accelerate file may name a DeepSpeed file
        for name in arithmetic.named_configs(subject):
            if name not in configs:
                is_file = name.endswith((".json", ".yaml", ".yml"))  # else a model's folder
                path = name if is_file else f"{name.rstrip('/')}/config.json"
                configs[name] = context.project_files.settings(path)
        subject = arithmetic.subject_of(context.job, configs, versions)
    trl = context.project_files.trl_configs
    if trl is not None:
        subject = subject._replace(classes=trl.config_names, parsed=trl.parsed)
    answers = [
        Answer(
            FAIL if problem.severity == arithmetic.FAIL else WARN,
            problem.message,
            _hint(problem),
            problem.source,
        )
        for problem in arithmetic.find_problems(subject)
    ]
    return answers or [ok("no rule of its framework is broken")]


def _hint(problem: arithmetic.Problem) -> str:
    """Return what to change and where; the file only where the fix does not name it."""
    where = problem.origin or problem.where
    file = "" if problem.origin else where.partition(": ")[0]
    is_named = not where or (file and f" of {file}" in problem.fix)
    return problem.fix if is_named else f"{problem.fix} ({where})"
