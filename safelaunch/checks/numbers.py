"""Checks of numbers that must go together: batches, generations, ranks, parallel sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks.check import FAIL, WARN, Answer, check, ok

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.checks.case import Case


@check("numbers", "arithmetic", once=True, quick=True)
def numbers(case: Case) -> Iterable[Answer]:
    """Whether the job's numbers break no rule of its framework (docs/arithmetic.md)."""
    from safelaunch import arithmetic  # noqa: PLC0415 - its rules are read where there is a job

    versions = case.sites[0].known("python", "packages") if case.sites else None
    subject = arithmetic.subject_of(case.job, {}, versions)
    configs: dict[str, object] = {}
    for _ in range(2):  # an accelerate file may name a DeepSpeed file
        for name in arithmetic.named_configs(subject):
            if name not in configs:
                configs[name] = case.reading.settings(_file(name))
        subject = arithmetic.subject_of(case.job, configs, versions)
    found = [
        Answer(
            FAIL if one.severity == arithmetic.FAIL else WARN,
            one.message,
            f"{one.fix} ({one.origin or one.where})" if one.origin or one.where else one.fix,
            one.source,
        )
        for one in arithmetic.problems(subject)
    ]
    return found or [ok("no rule of its framework is broken")]


def _file(name: str) -> str:
    """Return the file that a name means: of a model's folder its config.json."""
    return name if name.endswith((".json", ".yaml", ".yml")) else f"{name.rstrip('/')}/config.json"
