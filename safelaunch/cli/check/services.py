"""Checks the services of a job, each as a job of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import machines
from safelaunch.remote.hosts import ask_checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.checks.context import CheckContext
    from safelaunch.checks.registry import CheckResult
    from safelaunch.hostfacts.saved import SavedFacts
    from safelaunch.remote.host_pool import HostPool

_OF_RUN = ("run-folder",)  # checks of what a run has, and its services share


def check_services(
    context: CheckContext,
    results: Sequence[CheckResult],
    saved: SavedFacts,
    pool: HostPool | None,
    *,
    deep: bool,
) -> list[CheckResult]:
    """Return the results of a job's services beside `results`, those of the job and its machine."""
    every = list(results)
    for name, own in machines.for_services(context):
        replies = ask_checks.ask(own, saved, pool, deep=deep)
        # what is said of the machine is said once
        earlier = {result._replace(service=None) for result in every}
        new = [result for result in machines.results(own, replies) if result not in earlier]
        every += [result._replace(service=name) for result in new if result.id not in _OF_RUN]
    return every[len(results) :]
