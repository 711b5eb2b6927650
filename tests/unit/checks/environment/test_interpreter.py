"""Checks of the interpreter and of what starts the job in it; the commands that mend them."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of
from support.facts.gpu_machines import RTX5090, Replies, box
from support.facts.interpreters import PATH, SYSTEM, other, python, torch

from safelaunch.checks import run
from safelaunch.checks.context import CheckContext, HostContext
from safelaunch.checks.environment import pip_commands
from safelaunch.model import Host

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.registry import CheckResult

ACCELERATE = "launcher: accelerate\nscript: train.py\nprocesses: 2\nprofile: cpu\n"
TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 2\nprofile: cpu\n"
PYTHON = "launcher: python\nscript: train.py\nprofile: cpu\n"
MISSING = {"found": False, "where": None}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def module_found(name: str) -> dict[str, Any]:
    return {"found": True, "where": f"/envs/rl/lib/python3.10/site-packages/{name}/__init__.py"}


def without(why: str, **parts: Any) -> dict[str, Any]:
    """Return the facts of a machine whose interpreter told nothing."""
    return {**box(**parts), "skipped": {"python": why}}


def judged(project: Project, job: str, facts: dict[str, Any], **more: Any) -> CheckResult:
    return result_of(
        make_context(project, job, facts=facts, answers=Replies(), **more), "interpreter"
    )


# -- what is taken from whoever starts it ----------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "status"),
    [({}, "fail"), ({"A": "", "B": "x"}, "fail"), ({"A": "x", "B": "y"}, "ok")],
)
def test_a_start_needs_the_variables_of_env_from(
    environ: dict[str, str], status: str, project: Project
) -> None:
    job = PYTHON + "env_from: [A, B]\n"
    case = make_context(project, job, facts=box(), answers=Replies(), environ=environ)
    assert result_of(case, "secrets").status == status
    case = make_context(project, PYTHON, facts=box(), answers=Replies())
    assert results_of(case, "secrets") == []


# -- the interpreter -------------------------------------------------------------------------------

BAD = {
    "missing": ("/x/bin/python: No such file or directory", "fail", "does not run"),
    "not executable": ("/x/bin/python: Permission denied", "fail", "Permission denied"),
    "broken": ("/x/bin/python: the interpreter ended with exit code 1: boom", "fail", "boom"),
    "old": ("/x/bin/python: Python 3.6.9 is older than 3.8", "fail", "is Python 3.6.9"),
    "slow": ("/x/bin/python: the interpreter did not answer in time", "warn", "in time"),
}


@pytest.mark.parametrize(("why", "status", "words"), BAD.values(), ids=BAD)
def test_an_interpreter_that_does_not_run(
    project: Project, why: str, status: str, words: str
) -> None:
    result = judged(project, PYTHON + "python: /x/bin/python\n", without(why))
    assert (result.status, words in result.evidence) == (status, True), result


def test_an_interpreter_that_does_not_run_is_reported(project: Project) -> None:
    facts = without("/x/bin/python: No such file or directory")
    result = judged(project, PYTHON + "python: /x/bin/python\n", facts)
    assert (result.status, "`python:`" in result.hint) == ("fail", True)


def test_another_environment_with_torch_is_named(project: Project) -> None:
    others = [other("/opt/conda/envs/a/bin/python", torch="2.8.0")]
    facts = without("/x/bin/python: No such file or directory", environments=others)
    result = judged(project, PYTHON + "python: /x/bin/python\n", facts)
    assert "`python: /opt/conda/envs/a/bin/python`" in result.hint


def test_a_question_about_it_that_came_to_nothing_is_no_failure(project: Project) -> None:
    facts = without("nothing within 10.0 s")
    assert judged(project, PYTHON, facts).status == "skip"


MEANT = {
    "as asked": ("python: /envs/rl/bin/python\n", python(), "ok", "Python 3.10.14, venv"),
    "a venv": ("venv: /envs/rl\n", python(), "ok", "venv"),
    "no venv": (
        "venv: /envs/rl\n",
        python(kind="system", prefix="/usr"),
        "warn",
        "/envs/rl is no virtual environment",
    ),
    "a shim": (
        "python: /shims/python\n",
        python(path="/versions/3.11/bin/python"),
        "warn",
        "/shims/python runs /versions/3.11/bin/python",
    ),
}


@pytest.mark.parametrize(("job", "facts", "status", "words"), MEANT.values(), ids=MEANT)
def test_whether_it_is_the_one_that_was_meant(
    project: Project, job: str, facts: dict[str, Any], status: str, words: str
) -> None:
    result = judged(project, PYTHON + job, box(python=facts))
    assert (result.status, words in result.evidence) == (status, True), result


def test_the_active_environment_is_named_where_it_is_not_used(project: Project) -> None:
    environ = {"VIRTUAL_ENV": "/envs/other"}
    result = judged(project, PYTHON + "venv: /envs/rl\n", box(python=python()), environ=environ)
    assert (result.status, "/envs/other is not used" in result.evidence) == ("ok", True)


def test_our_own_environment_is_no_place_for_a_job(project: Project) -> None:
    ours = python(path=f"{sys.prefix}/bin/python")
    others = [other("/opt/a/bin/python", torch="2.8.0")]
    result = judged(project, PYTHON, box(python=ours, environments=others))
    assert (result.status, "safelaunch's own" in result.evidence) == ("warn", True)


def test_our_own_environment_with_torch_is_one(project: Project) -> None:
    ours = python({"torch": "2.8.0"}, path=f"{sys.prefix}/bin/python")
    others = [other("/opt/a/bin/python", torch="2.8.0")]
    assert judged(project, PYTHON, box(python=ours, environments=others)).status == "ok"


def test_a_machine_alone_is_judged_too() -> None:
    case = make_context(None, None, facts=box(python=python()), answers=Replies())
    assert result_of(case, "interpreter").status == "ok"


# -- the launcher ----------------------------------------------------------------------------------


def launcher(
    project: Project, job: str, answers: dict[str, Any], facts: dict[str, Any], **more: Any
) -> CheckResult:
    replies = Replies({("module", name): each for name, each in answers.items()})
    return result_of(make_context(project, job, facts=facts, answers=replies, **more), "launcher")


def test_a_launcher_that_is_there(project: Project) -> None:
    answers = {"accelerate": module_found("accelerate"), "torch": module_found("torch")}
    facts = box(python=python({"accelerate": "1.2.1", "torch": "2.8.0"}))
    result = launcher(project, ACCELERATE, answers, facts)
    assert result.status == "ok"
    assert result.evidence == f"{PATH} has accelerate 1.2.1, torch 2.8.0"


def test_a_launcher_that_is_missing_fails_with_the_command_that_installs_it(
    project: Project,
) -> None:
    answers = {"accelerate": MISSING, "torch": module_found("torch")}
    result = launcher(project, ACCELERATE, answers, box(python=python()))
    assert result.status == "fail"
    assert f"`{PATH} -m pip install accelerate`" in result.hint


def test_an_environment_that_has_the_launcher_is_named_first(project: Project) -> None:
    answers = {"accelerate": MISSING, "torch": MISSING}
    remote = other("/opt/conda/envs/a/bin/python", accelerate="1.2.1", torch="2.8.0")
    facts = box(python=python(), environments=[other("/opt/b/bin/python", torch="2.1"), remote])
    result = launcher(project, ACCELERATE, answers, facts)
    assert result.hint.startswith("`python: /opt/conda/envs/a/bin/python`, which has accelerate")


def test_a_folder_of_that_name_is_no_launcher(project: Project) -> None:
    answers = {"torch": {"found": True, "where": "a namespace"}}
    assert launcher(project, TORCHRUN, answers, box(python=python())).status == "fail"


def test_a_file_of_the_project_in_the_launchers_place(project: Project) -> None:
    answers = {"torch": {"found": True, "where": "/work/torch.py"}}
    result = launcher(project, TORCHRUN, answers, box(python=python()))
    assert (result.status, result.hint) == ("warn", "rename /work/torch.py")


def test_deepspeed_is_part_of_the_launcher_where_it_is_asked_for(project: Project) -> None:
    answers = {
        "accelerate": module_found("accelerate"),
        "torch": module_found("torch"),
        "deepspeed": MISSING,
    }
    job = ACCELERATE + "launcher_args: {use_deepspeed: true}\n"
    result = launcher(project, job, answers, box(python=python()))
    assert (result.status, "`deepspeed`" in result.evidence) == ("fail", True)


def test_a_missing_launcher_is_reported_before_each_start(project: Project) -> None:
    result = launcher(project, TORCHRUN, {"torch": MISSING}, {}, is_quick=True)
    assert (result.status, "-m pip install torch" in result.hint) == ("fail", True)


@pytest.mark.parametrize("job", [PYTHON, "launcher: command\ncommand: [bash, x.sh]\n"])
def test_what_needs_no_launcher(project: Project, job: str) -> None:
    assert results_of(make_context(project, job, facts=box(), answers=Replies()), "launcher") == []


def test_swift_is_not_the_package_of_that_name(project: Project) -> None:
    job = "launcher: swift\ncommand: [sft]\nprofile: cpu\n"
    result = launcher(project, job, {"swift": MISSING}, box(python=python()))
    assert "pip install ms-swift" in result.hint


# -- commands --------------------------------------------------------------------------------------


def host_context(facts: dict[str, Any], *, is_local: bool = True) -> HostContext:
    case = CheckContext(is_local=is_local, hosts=(HostContext(Host("gpu1"), facts=facts),))
    return run.with_hosts(case, [replace(case.hosts[0], context=case)]).hosts[0]


def test_pip_of_the_interpreter_itself() -> None:
    assert pip_commands.install(host_context(box(python=python())), ["trl>=0.17"]) == (
        f"`{PATH} -m pip install 'trl>=0.17'`"
    )


def test_an_environment_without_pip_gets_it_first() -> None:
    answers = python()
    answers["packages"] = {}
    assert "ensurepip && " in pip_commands.install(host_context(box(python=answers)), ["x"])
    by_uv = host_context(
        box(python=answers, tools={"uv": {"path": "/usr/bin/uv", "version": "0.5"}})
    )
    assert pip_commands.install(by_uv, ["x"]) == f"`uv pip install --python {PATH} x`"


def test_the_systems_python_is_left_alone() -> None:
    answers = python(path="/usr/bin/python3", kind="system")
    hint = pip_commands.install(host_context(box(python=answers, system=SYSTEM)), ["accelerate"])
    assert "`/usr/bin/python3 -m venv /home/me/envs/train && " in hint
    assert hint.endswith("`venv: /home/me/envs/train`")


def test_wheels_for_another_machine_have_its_tags() -> None:
    hint = pip_commands.install(
        host_context(box(python=python(), system=SYSTEM), is_local=False), ["accelerate"]
    )
    assert hint.startswith(f"`{PATH} -m pip install accelerate` on gpu1; without internet there")
    assert (
        "pip download -d wheels --only-binary=:all: --python-version 3.10 "
        "--platform=manylinux2014_x86_64 --platform=manylinux_2_{17..35}_x86_64 accelerate`"
    ) in hint


def test_wheels_for_musl() -> None:
    facts = box(python=python(), system={**SYSTEM, "libc": "musl 1.2"})
    hint = pip_commands.install(host_context(facts, is_local=False), ["x"])
    assert "--platform=musllinux_1_{0..2}_x86_64" in hint


TORCHES = {
    "CUDA 13 driver": ("580.65.06", "13.0", [(9, 0)], ("torch", "")),
    "CUDA 13 driver, V100": ("580.65.06", "13.0", [(7, 0)], ("torch", "cu126")),
    "5090, CUDA 12 driver": ("570.86.10", "12.8", [(12, 0)], ("torch", "cu128")),
    "A100, old CUDA 12 driver": ("535.161.08", "12.2", [(8, 0)], ("torch", "cu126")),
    "A100, only the driver is known": ("550.54.15", None, [(8, 0)], ("torch", "cu126")),
    "1080 Ti": ("550.54.15", "12.4", [(6, 1)], ("torch==2.7.*", "")),
    "CUDA 11 driver": ("470.57.02", "11.4", [(8, 0)], ("torch==2.0.1", "")),
    "no driver": (None, None, [], ("torch", "cpu")),
}


@pytest.mark.parametrize(("driver", "newest", "cards", "expected"), TORCHES.values(), ids=TORCHES)
def test_the_torch_for_gpus_and_driver(
    driver: str | None, newest: str | None, cards: list[tuple[int, int]], expected: tuple[str, str]
) -> None:
    assert pip_commands.torch_for(driver, newest, cards) == expected


def test_another_build_of_the_same_version_is_forced() -> None:
    facts = box(RTX5090, python=python(), torch=torch("2.7.0+cu126"))
    hint = pip_commands.torch(host_context(facts))
    assert hint == (
        f"`{PATH} -m pip install torch --force-reinstall "
        "--index-url https://download.pytorch.org/whl/cu128`"
    )
