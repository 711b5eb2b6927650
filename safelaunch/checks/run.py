"""Runs checks before a start: the questions to the hosts, and the results from their answers."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import answers as checks_answers
from safelaunch.checks import registry
from safelaunch.checks.answers import STATUSES, Answer, NotKnown, Question
from safelaunch.checks.registry import Check, CheckResult
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.checks.context import CheckContext, HostContext


IN_IMAGE = ("image", "secrets", "variables", "plan")  # of the environment of a container too
OF_INTERPRETER = ("module", "imports", "shadowed", "flags", "default-config")


class HostReply(NamedTuple):
    """What a host answered: its facts, the parts of its answer, and the questions in them."""

    facts: Mapping[str, Any]
    parts: Mapping[str, Any]
    questions: Sequence[Question] = ()


def questions(host: HostContext) -> list[Question]:
    """Return the questions of all checks to a host, each once."""
    questions: list[Question] = []
    for check in _selected(host.context):
        if check.asks is not None:
            # a bug of safelaunch must not prevent a start; running the check reports it
            with contextlib.suppress(Exception):
                questions += check.asks(host)
    return list(dict.fromkeys(questions))


def request(host: HostContext, questions: Sequence[Question]) -> dict[str, Any]:
    """Return the arguments of `facts.probe` for these questions; paths are those of the host."""
    pythonpath: list[str] = []
    if host.node is not None:  # in Python's order
        script = host.job.script
        first = "." if script is None else script.rpartition("/")[0] or "."
        pythonpath = [first, *host.pythonpath]
    return {
        "asks": [list(question) for question in questions],
        "cwd": None if host.node is None else str(host.node.cwd),
        "pythonpath": pythonpath,
        "quick": host.context.is_quick,
    }  # fmt: skip


def attach_answers(context: CheckContext, replies: Sequence[HostReply]) -> CheckContext:
    """Return the context with what each host answered."""
    hosts = []
    for host, (facts, parts, questions) in zip(context.hosts, replies, strict=True):
        answers = {
            question: parts.get(f"ask.{index}", {"skip": "the machine did not answer"})
            for index, question in enumerate(questions)
        }
        hosts.append(replace(host, facts=facts, answers=answers))
    return with_hosts(context, hosts)


def with_hosts(context: CheckContext, hosts: Sequence[HostContext], **changes: Any) -> CheckContext:
    """Return the context with these hosts, which refer to it, and with other changed fields."""
    new = replace(context, hosts=(), **changes)
    if "project_files" in context.__dict__:  # they are read once
        new.__dict__["project_files"] = context.project_files
    for host in hosts:
        object.__setattr__(host, "context", new)
    object.__setattr__(new, "hosts", tuple(hosts))
    return new


def run_without_answers(context: CheckContext) -> list[CheckResult]:
    """Return the results of the checks of all hosts together, which need no answers.

    Before a start they run while the hosts are being asked.
    """
    return [r for check in _selected(context) if check.once for r in run_check(check, context)]


def run(context: CheckContext, early: Sequence[CheckResult] | None = None) -> list[CheckResult]:
    """Return the results of all checks, the most important first.

    `early`: the results of `run_without_answers`.
    """
    results = list(early or ())
    for check in _selected(context):
        if early is None or not check.once:
            results += run_check(check, context)
    return sorted(results, key=lambda result: STATUSES.index(result.status))


def run_check(check: Check, context: CheckContext) -> list[CheckResult]:
    """Return the results of a check: of all hosts together, or of each."""
    return [
        CheckResult(
            check.id,
            check.family,
            None if host is None else host.name,
            answer.status,
            printable(answer.evidence),
            printable(answer.hint),
            answer.source or check.source,
        )
        for host in ((None,) if check.once else context.hosts)
        for answer in _answers(check, host, context)
    ]


def _selected(context: CheckContext) -> Iterator[Check]:
    plan = context.plan
    in_image = plan is not None and any(node.container is not None for node in plan.nodes)
    for check in registry.declared(is_quick=context.is_quick):
        is_applicable = plan is not None or not check.job
        if is_applicable and not (in_image and _is_of_interpreter(check)):
            yield check


def _is_of_interpreter(check: Check) -> bool:
    """Whether a check reads packages of an interpreter, or the caller's home folder.

    On its machine neither is what a job in a container has.
    """
    is_environment = check.family == "environment" and check.id not in IN_IMAGE
    return is_environment or check.id in OF_INTERPRETER


def _answers(check: Check, host: HostContext | None, context: CheckContext) -> list[Answer]:
    """Return what a check says; if it breaks it is skipped, and no other check with it."""
    answers: list[Answer] = []
    try:
        if host is not None:
            for need in check.needs:
                host.fact(need)
        answer = check.function(context if host is None else host)
        for each in [answer] if isinstance(answer, Answer) else answer or ():
            answers.append(each)  # noqa: PERF402 - those before a NotKnown count
    except NotKnown as e:
        answers += [] if context.is_quick else [checks_answers.skip(str(e))]
    except Exception as e:  # noqa: BLE001 - a bug of safelaunch must not prevent a start
        what = f"the check itself failed: {type(e).__name__}: {str(e)[:200]}"
        answers.append(checks_answers.skip(what))
    return answers
