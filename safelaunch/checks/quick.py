"""The quick checks before each start. `--no-check` leaves them out."""

# ruff: noqa: PLC0415 - subprocess, and what reads the answers, are imported beside the probe: 20 ms

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import machines, registry, run
from safelaunch.hostfacts import assemble
from safelaunch.runtime.start.live_runs import LiveRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import CheckContext, HostContext
    from safelaunch.checks.registry import CheckResult
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.runtime.facts.probe import Probe

    # shows the results to the user; raises Refused where one of them is an error
    Report = Callable[[Sequence[CheckResult], CheckContext], None]

_RUNS = ("runs",)
LIMIT = 2.0  # seconds per question: a file system that hangs must not delay a start


class QuickChecks(NamedTuple):
    """Checks in progress: a child process answers the questions about this machine."""

    context: CheckContext
    questions: Sequence[Question]
    probe: Probe

    def finish(self, report: Report) -> LiveRunsCheck:
        """Report the results, once the child has answered. Raises what `report` does."""
        early = run_early(self.context)
        return finish(self.context, [self.questions], [self.probe.answer()], early, report)


class LiveRunsCheck:
    """The checks of the live runs (start.caller.RunsCheck), after all hosts have answered.

    Two starts in one instant see nothing of each other: the later one is checked once more, against
    the runs that have come since.
    """

    def __init__(self, context: CheckContext, report: Report) -> None:
        self._context, self._report = context, report
        answers = [host.answers.get(_RUNS) or {} for host in context.hosts]
        self._checked = [LiveRuns.from_json(answer.get("value") or {}) for answer in answers]

    @property
    def count(self) -> int:
        """The number of nodes that are checked, the first: others run services alone."""
        return len(self._checked)

    def digest(self, rank: int) -> str:
        """Return the digest of the runs that were checked for a node; "" where none were."""
        return self._checked[rank].digest

    def check_again(self, rank: int, others: LiveRuns) -> None:
        """Report what the checks say of the runs that have come since. Raises what it does."""
        new = [live_run for live_run in others.live if live_run not in self._checked[rank].live]
        self._checked[rank] = others
        host = self._context.hosts[rank]
        answers = {**host.answers, _RUNS: {"value": LiveRuns(live=new).to_json()}}
        host = replace(host, answers=answers)
        context = run.with_hosts(self._context, [host])
        checks = [
            check
            for check in registry.declared(is_quick=True)
            if check.asks is not None and _RUNS in check.asks(host)
        ]
        self._report([r for check in checks for r in run.run_check(check, context)], context)


def start(
    resolved: Resolved,
    plan: Plan,
    environ: Mapping[str, str],
    python: str | None,
) -> QuickChecks | None:
    """Start to check a job of this machine; None where the start itself refuses the job.

    `python` answers where the job names no interpreter.
    """
    if not sys.platform.startswith("linux") or len(plan.nodes) > 1:
        return None
    gc.freeze()  # so far nothing is garbage: neither this process nor its fork scans it again
    context = machines.for_plan(resolved, plan, environ, is_quick=True)
    host = context.hosts[0]
    from safelaunch.runtime.facts.probe import Probe

    questions = run.questions(host)
    probe = Probe(request(host, questions, host.interpreter or python))
    return QuickChecks(context, questions, probe)


def request(host: HostContext, questions: Sequence[Question], python: str | None) -> dict[str, Any]:
    """Return the arguments of the probe of a host before a start."""
    return {**run.request(host, questions), "python": python, "limit": LIMIT}


def run_early(context: CheckContext) -> list[CheckResult]:
    """Return the results that need no answers, and import what reads the answers."""
    from safelaunch.hostfacts import gpus

    del gpus
    return run.run_without_answers(context)


def finish(
    context: CheckContext,
    questions: Sequence[Sequence[Question]],
    answers: Sequence[Mapping[str, Any]],
    early: Sequence[CheckResult],
    report: Report,
) -> LiveRunsCheck:
    """Report the results from the hosts' answers; `early` is what `run_early` returned."""
    replies = [
        run.HostReply(
            assemble.from_probe(host.name, answer), answer.get("parts") or {}, host_questions
        )
        for host, host_questions, answer in zip(context.hosts, questions, answers, strict=True)
    ]
    context = run.attach_answers(context, replies)
    report(run.run(context, early), context)
    return LiveRunsCheck(context, report)
