"""Contexts for checks of files on this machine, or of hosts with prepared answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.checks import machines, run
from safelaunch.checks.run import HostReply
from safelaunch.config.resolve import Flags
from safelaunch.plan.build import make_plan
from support.facts.check_cases import make_context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.context import CheckContext
    from support.project import Project

ROOT = "~/llm"
_LOCAL_KINDS = ("path", "glob", "room", "home", "port", "model", "checkpoint", "hub", "size")
_NOTHING = {
    "path": {"kind": None},
    "glob": {"count": 0, "found": []},
    "checkpoint": {"kind": None},
    "size": {"bytes": 0, "files": 0, "whole": True},
}


class _Files(dict[Any, Any]):
    """Answers to questions; only questions about files and ports are put to this machine."""

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) or not (
            isinstance(key, tuple) and key[0] in _LOCAL_KINDS
        )

    def __bool__(self) -> bool:
        return True

    def __missing__(self, key: object) -> dict[str, str]:
        return {"skip": "it is not asked"}


def local_context(
    project: Project, job: str, *, answers: Mapping[tuple[Any, ...], Any] | None = None, **more: Any
) -> CheckContext:
    """Return the context of a job on this machine, with its files and ports."""
    return make_context(project, job, answers=_Files(answers or {}), **more)


def remote_context(
    project: Project,
    job: str,
    *answers: Mapping[tuple[Any, ...], Any],
    facts: Sequence[dict[str, Any]] = (),
    hosts: tuple[str, ...] = ("gpu1",),
    hosts_file: str | None = None,
    root: str = ROOT,
    is_quick: bool = False,
    **more: Any,
) -> CheckContext:
    """Return the context of a job on hosts that have nothing but what `answers` say, by host."""
    flags = Flags(remote=True, hosts=hosts, hosts_file=hosts_file)
    resolved = project.resolve(job, flags)
    entries = tuple(replace(host, workdir=root) for host in resolved.hosts)
    resolved = resolved._replace(hosts=entries)
    context = machines.for_plan(resolved, make_plan(resolved), {}, is_quick=is_quick)
    context = run.with_hosts(context, context.hosts, **more)
    replies = []
    for rank, host in enumerate(context.hosts):
        values = answers[rank] if rank < len(answers) else {}
        questions = run.questions(host)
        parts = {f"ask.{index}": _part(each, values) for index, each in enumerate(questions)}
        replies.append(HostReply(facts[rank] if rank < len(facts) else {}, parts, questions))
    return run.attach_answers(context, replies)


def _part(question: tuple[Any, ...], values: Mapping[tuple[Any, ...], Any]) -> dict[str, Any]:
    if question in values:
        return {"value": values[question]}
    if question[0] in _NOTHING:
        return {"value": _NOTHING[question[0]]}
    return {"skip": "nobody knows"}
