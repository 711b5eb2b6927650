"""The quick checks before each start. `--no-check` leaves them out."""

# ruff: noqa: PLC0415 - subprocess, and what reads the answers, are imported beside the probe: 20 ms

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import machines, run
from safelaunch.hostfacts import assemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import CheckContext, HostContext
    from safelaunch.checks.registry import CheckResult
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.runtime.facts.probe import Probe

LIMIT = 2.0  # seconds per question: a file system that hangs must not delay a start


class QuickChecks(NamedTuple):
    """Checks in progress: a child process answers the questions about this machine."""

    context: CheckContext
    questions: Sequence[Question]
    probe: Probe

    def results(self) -> list[CheckResult]:
        """Return the results, once the child has answered."""
        early = run_early(self.context)
        return results(self.context, [self.questions], [self.probe.answer()], early)


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


def results(
    context: CheckContext,
    questions: Sequence[Sequence[Question]],
    answers: Sequence[Mapping[str, Any]],
    early: Sequence[CheckResult],
) -> list[CheckResult]:
    """Return the results from the hosts' answers; `early` is what `run_early` returned."""
    replies = [
        run.HostReply(
            assemble.from_probe(host.name, answer), answer.get("parts") or {}, host_questions
        )
        for host, host_questions, answer in zip(context.hosts, questions, answers, strict=True)
    ]
    return run.run(run.attach_answers(context, replies), early)
