"""Cases for checks of what lies on this machine, or on hosts whose answers are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.checks import machines, run
from safelaunch.config.resolve import Flags
from safelaunch.plan.build import make_plan
from support.facts.check_cases import case_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.run import Case
    from support.project import Project

ROOT = "~/llm"
_ASKED = ("path", "glob", "room", "home", "port", "model", "checkpoint", "hub", "size")
_NOTHING = {
    "path": {"kind": None},
    "glob": {"count": 0, "found": []},
    "checkpoint": {"kind": None},
    "size": {"bytes": 0, "files": 0, "whole": True},
}


class _Files(dict[Any, Any]):
    """Answers to questions; about files and ports this machine is asked, and nothing else."""

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or not (isinstance(key, tuple) and key[0] in _ASKED)

    def __bool__(self) -> bool:
        return True

    def __missing__(self, key: object) -> dict[str, str]:
        return {"skip": "it is not asked"}


def here(
    project: Project, job: str, *, answers: Mapping[tuple[Any, ...], Any] | None = None, **more: Any
) -> Case:
    """Return a case for a job on this machine, that tells of its files and ports."""
    return case_of(project, job, answers=_Files(answers or {}), **more)


def away(
    project: Project,
    job: str,
    *answers: Mapping[tuple[Any, ...], Any],
    facts: Sequence[dict[str, Any]] = (),
    hosts: tuple[str, ...] = ("gpu1",),
    hosts_file: str | None = None,
    root: str = ROOT,
    is_quick: bool = False,
    **more: Any,
) -> Case:
    """Return a case for a job on hosts; nothing is there but what `answers` say, host by host."""
    flags = Flags(remote=True, hosts=hosts, hosts_file=hosts_file)
    resolved = project.resolve(job, flags)
    there = tuple(replace(host, workdir=root) for host in resolved.hosts)
    resolved = resolved._replace(hosts=there)
    made = machines.for_plan(resolved, make_plan(resolved), {}, is_quick=is_quick)
    made = run.joined(made, made.sites, **more)
    told = []
    for rank, site in enumerate(made.sites):
        known = answers[rank] if rank < len(answers) else {}
        wanted = run.questions(made, site)
        parts = {f"ask.{at}": _part(one, known) for at, one in enumerate(wanted)}
        told.append((facts[rank] if rank < len(facts) else {}, parts, wanted))
    return run.with_facts(made, told)


def _part(question: tuple[Any, ...], known: Mapping[tuple[Any, ...], Any]) -> dict[str, Any]:
    if question in known:
        return {"value": known[question]}
    if question[0] in _NOTHING:
        return {"value": _NOTHING[question[0]]}
    return {"skip": "nobody knows"}
