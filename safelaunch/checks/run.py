"""Checks before a start: what must be asked of the machines, and what the answers mean. Pure."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.checks import answers as checks_answers
from safelaunch.checks import registry as checks
from safelaunch.checks.answers import STATUSES, Answer, NotKnown, Question
from safelaunch.checks.context import Case, Site, unique
from safelaunch.checks.registry import Check, Result
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Case", "Result", "Site", "early", "made", "questions", "request", "run", "with_facts"]


def questions(case: Case, site: Site) -> list[Question]:
    """Return what must be asked of a machine, so that all checks can be made."""
    found: list[Question] = []
    for one in _wanted(case):
        if one.asks is None:
            continue
        # a fault of ours must not keep a job from starting; the check itself says what is wrong
        with contextlib.suppress(Exception):
            found += one.asks(site)
    return unique(found)


def request(site: Site, wanted: Sequence[Question]) -> dict[str, Any]:
    """Return what `facts.probe` is asked for these questions; paths as the machine has them."""
    node = site.node
    return {
        "asks": [list(question) for question in wanted],
        "cwd": None if node is None else str(node.cwd),
        "pythonpath": [] if node is None else _pythonpath(site),
        "quick": site.case.is_quick,
    }  # fmt: skip


def _pythonpath(site: Site) -> list[str]:
    """Return the folders that the job's modules are looked for in, as Python orders them."""
    job = site.case.job
    first = "." if job.script is None else job.script.rpartition("/")[0] or "."
    return [first, *site.case.pythonpath]


def with_facts(
    case: Case,
    told: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], Sequence[Question]]],
) -> Case:
    """Return the case with what was told: for each site its facts, the parts, the questions."""
    sites = []
    for site, (facts, parts, wanted) in zip(case.sites, told, strict=True):
        answers = {
            one: parts.get(f"ask.{at}", {"skip": "the machine did not say"})
            for at, one in enumerate(wanted)
        }
        sites.append(replace(site, facts=facts, answers=answers))
    return joined(case, sites)


def joined(case: Case, sites: Sequence[Site], **known: Any) -> Case:
    """Return the case with these sites, each of which knows it, and with what is known since."""
    made = replace(case, sites=(), **known)
    if "reading" in case.__dict__:  # what was read of the project is the same
        made.__dict__["reading"] = case.reading
    for site in sites:
        object.__setattr__(site, "case", made)
    object.__setattr__(made, "sites", tuple(sites))
    return made


def early(case: Case) -> list[Result]:
    """Return what the checks of all machines at once say, where no answer is needed for that.

    Before a start none of them needs one: they are made while the machines look around.
    """
    return [result for one in _wanted(case) if one.once for result in made(one, case)]


def run(case: Case, said: Sequence[Result] | None = None) -> list[Result]:
    """Return what all checks say: what matters most first. `said`: what `early` has returned."""
    found = list(said or ())
    for one in _wanted(case):
        if said is None or not one.once:
            found += made(one, case)
    return sorted(found, key=lambda result: STATUSES.index(result.status))


def made(one: Check, case: Case) -> list[Result]:
    """Return what one check says: of all machines at once, or of each."""
    if one.once:
        return list(_results(one, None, case))
    return [result for site in case.sites for result in _results(one, site, site)]


def _wanted(case: Case) -> Iterator[Check]:
    for one in checks.declared(is_quick=case.is_quick):
        if case.plan is not None or not one.job:
            yield one


def _results(one: Check, site: Site | None, given: Any) -> Iterator[Result]:
    for answer in _answers(one, site, given):
        yield Result(
            one.id,
            one.family,
            None if site is None else site.name,
            answer.status,
            printable(answer.evidence),
            printable(answer.hint),
            answer.source or one.source,
        )


def _answers(one: Check, site: Site | None, given: Any) -> list[Answer]:
    """Return what a check says; one that breaks is skipped, and no other with it."""
    found: list[Answer] = []
    try:
        for need in one.needs:
            if site is not None:
                site.fact(need)
        said = one.work(given)
        for answer in [said] if isinstance(said, Answer) else said or ():
            found.append(answer)  # noqa: PERF402 - those before a NotKnown count
    except NotKnown as e:
        found += [] if _is_quick(given) else [checks_answers.skip(str(e))]
    except Exception as e:  # noqa: BLE001 - a fault of ours must not keep a job from starting
        found.append(
            checks_answers.skip(f"the check itself failed: {type(e).__name__}: {str(e)[:200]}")
        )
    return found


def _is_quick(given: Case | Site) -> bool:
    """Whether only the quick checks are made."""
    return given.is_quick if isinstance(given, Case) else given.case.is_quick
