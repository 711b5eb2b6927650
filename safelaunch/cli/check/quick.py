"""What is printed of the checks before a start; where one fails, the start is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.cli.output import say, warn
from safelaunch.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult


def report(results: Sequence[CheckResult], context: CheckContext) -> None:
    """Print what the checks warn about. Raises Refused where a start is impossible."""
    failed = [result for result in results if result.status == "fail"]
    for result in [*(one for one in results if one.status == "warn"), *failed[1:]]:
        warn(f"{_where(result, context)}{result.evidence}")
        say(f"  -> {result.hint}")
    if failed:
        first = failed[0]
        raise Refused(f"{_where(first, context)}{first.evidence}", hint=_hint(first))


def _where(result: CheckResult, context: CheckContext) -> str:
    return f"{result.host}: " if result.host is not None and not context.is_local else ""


def _hint(result: CheckResult) -> str:
    again = f"--no-check starts anyway ({result.id})"
    return f"{result.hint}; {again}" if result.hint else again
