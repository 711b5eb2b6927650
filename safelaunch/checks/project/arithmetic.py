"""Checks of numbers that must go together: batches, generations, ranks, parallel sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks.answers import FAIL, WARN, Answer, ok
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.analysis import arithmetic
    from safelaunch.checks.context import CheckContext


@check("numbers", "arithmetic", once=True, quick=True)
def numbers(context: CheckContext) -> Iterable[Answer]:
    """Whether the job's numbers break no rule of its framework (docs/arithmetic.md)."""
    from safelaunch.analysis import arithmetic  # noqa: PLC0415 - its rules are read where there is a job

    versions = context.hosts[0].get("python", "packages") if context.hosts else None
    subject = arithmetic.subject_of(context.job, {}, versions)
    configs: dict[str, object] = {}
    for _ in range(2):  # an accelerate file may name a DeepSpeed file
        for name in arithmetic.named_configs(subject):
            if name not in configs:
                configs[name] = context.project_files.settings(_file(name))
        subject = arithmetic.subject_of(context.job, configs, versions)
    used = context.project_files.trl_configs
    if used is not None:
        subject = subject._replace(classes=used.config_names, parsed=used.parsed)
    found = [
        Answer(
            FAIL if one.severity == arithmetic.FAIL else WARN,
            one.message,
            _cure(one),
            one.source,
        )
        for one in arithmetic.find_problems(subject)
    ]
    return found or [ok("no rule of its framework is broken")]


def _cure(problem: arithmetic.Problem) -> str:
    """Return what to change and where, the file once: a setting's own is named in the fix."""
    where = problem.origin or problem.where
    file = "" if problem.origin else where.partition(": ")[0]
    is_said = not where or (file and f" of {file}" in problem.fix)
    return problem.fix if is_said else f"{problem.fix} ({where})"


def _file(name: str) -> str:
    """Return the file that a name means: of a model's folder its config.json."""
    return name if name.endswith((".json", ".yaml", ".yml")) else f"{name.rstrip('/')}/config.json"
