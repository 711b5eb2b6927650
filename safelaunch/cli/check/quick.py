"""Prints the results of the quick checks before a start; an error refuses the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.cli.output import say, warn
from safelaunch.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult


def report(results: Sequence[CheckResult], context: CheckContext) -> None:
    """Print warnings. Raises Refused with the first error, after printing the others."""
    errors = [result for result in results if result.status == "fail"]
    for result in [*(r for r in results if r.status == "warn"), *errors[1:]]:
        warn(_message(result, context))
        say(f"  -> {result.hint}")
    if errors:
        first = errors[0]
        hint = f"{first.hint}; " if first.hint else ""
        raise Refused(
            _message(first, context), hint=f"{hint}--no-check starts anyway (check {first.id})"
        )


def _message(result: CheckResult, context: CheckContext) -> str:
    shows_host = result.host is not None and not context.is_local
    return f"{result.host}: {result.evidence}" if shows_host else result.evidence
