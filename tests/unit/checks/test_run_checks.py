"""How checks are made: their order, what a broken one does to others, what is asked of whom."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, results_of
from support.project import Project

from safelaunch.checks import answers as checks_answers
from safelaunch.checks import machines, registry, run
from safelaunch.checks.answers import Answer, NotKnown
from safelaunch.checks.context import CheckContext
from safelaunch.checks.registry import Check, CheckResult
from safelaunch.cli.check.check import summary
from safelaunch.config.resolve import Flags
from safelaunch.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from safelaunch.checks.context import HostContext

JOB = "launcher: python\nscript: train.py\n"


def declare(work: Any, **changes: Any) -> Check:
    """Return a check that is in no table."""
    check = Check("made-up", "project", work, None, (), False, False, False, "a source")
    return check._replace(**changes)


def answers(work: Any, context: Any = None, **changes: Any) -> list[tuple[str, str]]:
    """Return status and evidence of what a check says of a machine."""
    results = run.run_check(declare(work, **changes), context or make_context(None, None))
    return [(each.status, each.evidence) for each in results]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_a_check_that_breaks_is_skipped_and_says_so() -> None:
    def work(_: HostContext) -> Answer:
        raise ZeroDivisionError("of nothing")

    assert answers(work) == [("skip", "the check itself failed: ZeroDivisionError: of nothing")]


def test_what_a_check_cannot_know_is_skipped_with_the_reason() -> None:
    def work(host: HostContext) -> Answer:
        return checks_answers.ok(host.fact("torch", "version"))

    assert answers(work) == [("skip", "`torch.version` of the host is not known")]


def test_a_reason_that_the_machine_gave_is_the_reason() -> None:
    case = make_context(None, None, facts={"skipped": {"torch": "it hangs"}})
    assert answers(lambda host: checks_answers.ok(host.fact("torch")), case) == [
        ("skip", "it hangs")
    ]


def test_what_was_found_before_something_unknown_counts() -> None:
    def work(_: HostContext) -> Iterator[Answer]:
        yield checks_answers.fail("no script", "write one")
        raise NotKnown("it was not asked")

    assert [status for status, _ in answers(work)] == ["fail", "skip"]


def test_before_a_start_nothing_is_said_of_what_is_not_known() -> None:
    def work(_: HostContext) -> Answer:
        raise NotKnown("it was not asked")

    assert answers(work, CheckContext(hosts=make_context(None, None).hosts)) == [
        ("skip", "it was not asked")
    ]
    assert answers(work, make_context(None, None, is_quick=True)) == []


def test_a_check_without_the_facts_that_it_needs_is_not_made() -> None:
    def work(_: HostContext) -> Answer:
        raise AssertionError

    assert answers(work, needs=("gpus",)) == [("skip", "`gpus` of the host is not known")]


def test_a_check_that_has_nothing_to_say_says_nothing() -> None:
    assert answers(lambda _: None) == []


def test_a_source_of_an_answer_comes_before_that_of_its_check() -> None:
    def work(_: HostContext) -> Iterator[Answer]:
        yield checks_answers.warn("one", "do", "its own")
        yield checks_answers.warn("two", "do")

    results = run.run_check(declare(work), make_context(None, None))
    assert [each.source for each in results] == ["its own", "a source"]


def test_without_a_job_only_machines_are_judged() -> None:
    jobs = {each.id for each in registry.declared() if each.job}
    assert {each.id for each in results_of(make_context(None, None))} & jobs == set()


def test_what_matters_most_stands_first(project: Project) -> None:
    job = JOB + "inputs: [no-such-file]\nargs: {output_dir: out}\n"
    results = [
        checks_answers.STATUSES.index(each.status)
        for each in results_of(make_context(project, job))
    ]
    assert results == sorted(results)
    assert results[0] == 0


def test_before_a_start_only_quick_checks_are_made(project: Project) -> None:
    quick = {each.id for each in registry.declared() if each.quick}
    assert {each.id for each in results_of(make_context(project, JOB, is_quick=True))} <= quick


def test_quick_checks_stand_in_the_modules_that_a_start_loads() -> None:
    modules = {each.function.__module__ for each in registry.declared() if each.quick}
    assert modules == {f"safelaunch.checks.{name}" for name in registry.QUICK}


def test_a_question_is_asked_once(project: Project) -> None:
    case = make_context(project, JOB + "inputs: [train.py]\n")
    expected = run.questions(case.hosts[0])
    assert len(expected) == len(set(expected))
    assert ("path", "train.py") in expected


def test_a_check_that_cannot_say_what_it_asks_keeps_no_other_from_asking(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks(_: HostContext) -> list[checks_answers.Question]:
        raise RecursionError

    assert any(check.id == "ports" for check in registry.declared())  # declared when imported
    broken = registry._registry["ports"]._replace(asks=asks)
    monkeypatch.setitem(registry._registry, "ports", broken)
    case = make_context(project, JOB + "inputs: [train.py]\n")
    assert ("path", "train.py") in run.questions(case.hosts[0])


def test_what_breaks_the_reading_of_a_program_is_no_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needed(*_: Any, **__: Any) -> None:
        raise RecursionError

    monkeypatch.setattr("safelaunch.analysis.imports.follow.read_imports", needed)
    project.write("train.py", "import os\n")
    results = run.run_without_answers(make_context(project, JOB))
    assert [result for result in results if result.status == "fail"] == []


def test_names_of_any_kind_are_shown_in_one_line() -> None:
    name = os.fsdecode(b"a\nb\x1b[31m\xff") + " \u00e9"
    (answer,) = answers(lambda _: checks_answers.warn(name, "do"))
    assert answer == ("warn", "a\\nb\\x1b[31m\\udcff \u00e9")


def test_machines_that_all_told_nothing_are_not_judged(project: Project) -> None:
    case = make_context(project, JOB)
    results = machines.results(case, [HostError("it is off")])
    assert [(each.id, each.status, each.evidence) for each in results] == [
        ("reached", "fail", "it is off")
    ]


def test_a_host_is_asked_for_paths_below_its_home_folder(project: Project) -> None:
    case = make_context(project, JOB, flags=Flags(remote=True, hosts=("gpu1",)))
    request = run.request(case.hosts[0], run.questions(case.hosts[0]))
    assert request["cwd"] == f"~/safelaunch/{project.folder.name}"
    assert "<home>" not in str(request)


def test_a_path_of_the_project_on_a_host_is_the_one_here(project: Project) -> None:
    far = make_context(project, JOB, flags=Flags(remote=True, hosts=("gpu1",)))
    remote = f"~/safelaunch/{project.folder.name}"
    assert far.local_path("train.py") == str(project.folder / "train.py")
    assert far.local_path(f"{remote}/train.py") == str(project.folder / "train.py")
    assert far.local_path("~/data") is None
    assert far.local_path("/data") is None


@pytest.mark.parametrize(
    ("statuses", "says"),
    [
        (["ok"], "1 check passed"),
        (["ok", "ok"], "2 checks passed"),
        (["ok", "skip"], "1 check passed, 1 skipped (--all says why)"),
        (["fail", "ok"], "1 error, 1 passed"),
        (
            ["fail", "warn", "warn", "ok", "skip"],
            "1 error, 2 warnings, 1 passed, 1 skipped (--all says why)",
        ),
    ],
)
def test_the_last_line_counts_what_passed_and_what_did_not(statuses: list[str], says: str) -> None:
    results = [CheckResult("x", "project", None, status, "") for status in statuses]
    assert summary(results, CheckContext()) == f"this machine: {says}"
