"""The checks that are made before each start: those that take no time.

`--no-check` leaves them out. What warns is said and the job starts; where a start is impossible it
is refused, with nothing begun.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import run
from safelaunch.cli.check import collect
from safelaunch.cli.info.collect_facts import active
from safelaunch.cli.output import say, warn
from safelaunch.config.paths import Paths
from safelaunch.errors import Refused
from safelaunch.hostfacts import assemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.run import Case, Result, Site
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.runtime.facts.probe import Probe

LIMIT = 2.0  # seconds that a question may take: a file system that hangs is not waited for


class Begun(NamedTuple):
    """Checks on their way: what is asked of this machine is looked up beside us."""

    case: Case
    wanted: Sequence[Question]
    probe: Probe

    def judge(self) -> None:
        """Say what they warn about. Raises Refused."""
        said = early(self.case)
        judge(self.case, [self.wanted], [self.probe.told()], said)


def begin(resolved: Resolved, plan: Plan) -> Begun | None:
    """Begin to check a job that is about to be started here; None: the start refuses it anyway."""
    if not sys.platform.startswith("linux") or len(plan.nodes) > 1:
        return None
    gc.freeze()  # nothing here is garbage yet: not to look through it again, nor the fork's child
    root = Paths.of(resolved.job_file or "-", os.getcwd(), None).root
    case = collect.of_plan(resolved, plan, collect.Lies(root), is_quick=True)
    site = case.sites[0]
    from safelaunch.runtime.facts.probe import Probe  # noqa: PLC0415 - subprocess

    wanted = run.questions(case, site)
    return Begun(case, wanted, Probe(request(site, wanted, site.interpreter or active())))


def request(site: Site, wanted: Sequence[Question], python: str | None) -> dict[str, Any]:
    """Return what a machine is asked before a start."""
    return {**run.request(site, wanted), "python": python, "limit": LIMIT}


def early(case: Case) -> list[Result]:
    """Return what can be said before the machines have answered."""
    from safelaunch.hostfacts import gpus  # noqa: PLC0415 - what reads the answers: 20 ms

    del gpus
    return run.early(case)


def judge(
    case: Case,
    wanted: Sequence[Sequence[Question]],
    told: Sequence[Mapping[str, Any]],
    said: Sequence[Result],
) -> None:
    """Say what the checks warn about; `told` answers what was `wanted` of each machine.

    Raises Refused where a start is impossible.
    """
    answers = [
        (assemble.from_probe(site.name, one), one.get("parts") or {}, questions)
        for site, questions, one in zip(case.sites, wanted, told, strict=True)
    ]
    found = run.run(run.with_facts(case, answers), said)
    for one in found:
        if one.status == "warn":
            warn(f"{_where(one, case)}{one.evidence}")
            say(f"  -> {one.hint}")
    failed = [one for one in found if one.status == "fail"]
    for one in failed[1:]:
        warn(f"{_where(one, case)}{one.evidence}")
        say(f"  -> {one.hint}")
    if failed:
        first = failed[0]
        raise Refused(f"{_where(first, case)}{first.evidence}", hint=_hint(first))


def _where(result: Result, case: Case) -> str:
    return f"{result.host}: " if result.host is not None and not case.is_here else ""


def _hint(result: Result) -> str:
    again = f"--no-check tries it all the same ({result.id})"
    return f"{result.hint}; {again}" if result.hint else again
