"""Checks of versions on several machines, and of what compiles CUDA code there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of
from support.facts.gpu_machines import A100, Replies, box
from support.facts.interpreters import PATH, python, torch

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

TWO = "launcher: torchrun\nscript: train.py\nprocesses: 2\nhosts: [a, b]\nprofile: a100-sxm\n"
SINGLE = "launcher: accelerate\nscript: train.py\nprocesses: 2\nprofile: a100-sxm\n"
TOOLKITS = ("glob", "/usr/local/cuda-*/bin/nvcc")
NONE = {TOOLKITS: {"count": 0, "found": []}}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


# -- versions on all nodes -------------------------------------------------------------------------


def machine(installed: dict[str, str] | None = None, version: str = "3.10.14",
            driver: str = "570.86.10", **of_torch: Any) -> dict[str, Any]:  # fmt: skip
    results = box(A100, A100, python=python(installed, version=version), torch=torch(**of_torch))
    results["gpus"]["driver"] = driver
    return results


def compared(project: Project, *machines: dict[str, Any], job: str = TWO) -> list[Any]:
    text = "hosts: {a: {address: 192.0.2.1}, b: {address: 192.0.2.2}}\n"
    flags = Flags(hosts_file=str(project.write(text, "hosts.yaml")))
    case = make_context(
        project, job, flags=flags, facts=list(machines), answers=[Replies(), Replies()]
    )
    return results_of(case, "same-versions")


DIFFERENT = {
    "torch": (machine(version="3.10.1"), machine(version="3.10.9"), "ok", "torch 2.8.0+cu128"),
    "a build by its number": (
        machine(version="3.10.1"),
        machine() | {"torch": torch("2.8.0")},
        "ok",
        "",
    ),
    "another build": (
        machine(),
        machine() | {"torch": torch("2.8.0", "12.6")},
        "warn",
        "2.8.0+cu128 on a, 2.8.0+cu126 on b",
    ),
    "torch versions": (
        machine(),
        machine() | {"torch": torch("2.7.1+cu128")},
        "warn",
        "torch differs: 2.8.0+cu128 on a, 2.7.1+cu128 on b",
    ),
    "NCCL": (machine(), machine(nccl="2.26.2"), "warn", "NCCL differs: 2.27.3+cuda12.8 on a"),
    "Python": (machine(), machine(version="3.11.2"), "warn", "Python differs: 3.10 on a, 3.11"),
    "accelerate": (
        machine({"accelerate": "1.2"}),
        machine({"accelerate": "1.3"}),
        "warn",
        "accelerate differs",
    ),
    "drivers": (machine(), machine(driver="580.65.06"), "warn", "driver differs"),
    "one does not tell its torch": (machine(), machine() | {"torch": None}, "ok", ""),
    "one tells nothing": (machine(), box(), "skip", "fewer than two"),
}


@pytest.mark.parametrize(("a", "b", "status", "words"), DIFFERENT.values(), ids=DIFFERENT)
def test_versions_of_two_machines(
    project: Project, a: dict[str, Any], b: dict[str, Any], status: str, words: str
) -> None:
    (result,) = compared(project, a, b)
    assert (result.status, words in result.evidence) == (status, True), result


def test_what_differs_is_mended_on_the_second(project: Project) -> None:
    (result,) = compared(project, machine(), machine() | {"torch": torch("2.7.1+cu126")})
    assert result.hint == (
        f"`{PATH} -m pip install torch==2.8.0 --index-url https://download.pytorch.org/whl/cu128`"
    )


def test_one_machine_differs_from_nobody(project: Project) -> None:
    case = make_context(project, SINGLE, facts=machine(), answers=Replies())
    assert results_of(case, "same-versions") == []


# -- compilers -------------------------------------------------------------------------------------

DEEPSPEED = SINGLE + "launcher_args: {use_deepspeed: true, offload_optimizer_device: cpu}\n"


def tools(nvcc: str | None, home: str | None = None) -> dict[str, Any]:
    return {
        "nvcc": nvcc and {"path": "/usr/bin/nvcc", "version": nvcc},
        "cuda_home": {"given": None, "path": "/usr/local/cuda", "version": home},
        "ninja": None,
    }


def built(project: Project, job: str, nvcc: dict[str, Any], answers: dict[Any, Any]) -> list[Any]:
    facts = box(A100, A100, python=python(), torch=torch(), tools=nvcc)
    return results_of(
        make_context(project, job, facts=facts, answers=Replies(answers)), "cuda-compiler"
    )


COMPILERS = {
    "the same major version": (tools("12.4"), "ok", ""),
    "another one": (tools("11.8"), "warn", "nvcc is of CUDA 11.8"),
    "CUDA_HOME comes first": (tools("11.8", home="12.6"), "ok", "12.6"),
    "none": (tools(None), "warn", "no nvcc"),
}


@pytest.mark.parametrize(("nvcc", "status", "words"), COMPILERS.values(), ids=COMPILERS)
def test_nvcc_for_deepspeeds_operators(
    project: Project, nvcc: dict[str, Any], status: str, words: str
) -> None:
    (result,) = built(project, DEEPSPEED, nvcc, NONE)
    assert (result.status, words in result.evidence) == (status, True), result


def test_a_toolkit_that_is_there_is_named(project: Project) -> None:
    paths = [f"/usr/local/cuda-{version}/bin/nvcc" for version in ("11.8", "12.6")]
    answers = {TOOLKITS: {"count": 2, "found": paths}}
    (result,) = built(project, DEEPSPEED, tools("11.8"), answers)
    assert result.hint == "`env: {CUDA_HOME: /usr/local/cuda-12.6}`"


def test_a_cuda_home_of_the_jobs_own_is_taken_at_its_word(project: Project) -> None:
    job = DEEPSPEED + "env: {CUDA_HOME: /usr/local/cuda-12.6}\n"
    nvcc = ("path", "/usr/local/cuda-12.6/bin/nvcc")
    assert built(project, job, tools("11.8"), {**NONE, nvcc: {"kind": "file"}}) == []
    (result,) = built(project, job, tools("11.8"), {**NONE, nvcc: {"kind": None}})
    assert (result.status, "has no bin/nvcc" in result.evidence) == ("warn", True)


@pytest.mark.parametrize("job", [SINGLE, SINGLE + "args: {deepspeed: none}\n"])
def test_no_compiler_is_needed_without_deepspeed(project: Project, job: str) -> None:
    assert built(project, job, tools(None), NONE) == []


SETTINGS = {
    "torch's optimizer": ({"zero_optimization": {"stage": 2}}, False),
    "its own": ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}, True),
    "torch's by name": ({"optimizer": {"type": "Adam", "params": {"torch_adam": True}}}, False),
    "offloading": ({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}, True),
    "no offloading": ({"zero_optimization": {"offload_optimizer": {"device": "none"}}}, False),
    "no mapping": ([1], False),
}


@pytest.mark.parametrize(("settings", "is_needed"), SETTINGS.values(), ids=SETTINGS)
def test_a_compiler_is_needed_for_operators_of_deepspeeds_own(
    project: Project, settings: Any, is_needed: bool
) -> None:
    (project.folder / "ds.json").write_text(json.dumps(settings))
    results = built(project, SINGLE + "args: {deepspeed: ds.json}\n", tools(None), NONE)
    assert bool(results) == is_needed


@pytest.mark.parametrize(("name", "is_needed"), [("zero2", False), ("zero3_offload", True)])
def test_settings_that_a_framework_has_by_name_say_so(
    project: Project, name: str, is_needed: bool
) -> None:
    results = built(project, SINGLE + f"args: {{deepspeed: {name}}}\n", tools(None), NONE)
    assert bool(results) == is_needed


@pytest.mark.parametrize(
    ("installed", "tool", "status"),
    [({"ninja": "1.11"}, None, "ok"), ({}, {"path": "/usr/bin/ninja"}, "ok"), ({}, None, "warn")],
)
def test_ninja_for_deepspeeds_operators(
    project: Project, installed: dict[str, str], tool: Any, status: str
) -> None:
    facts = box(A100, A100, python=python(installed), torch=torch(), tools={"ninja": tool})
    result = result_of(make_context(project, DEEPSPEED, facts=facts, answers=Replies()), "ninja")
    assert result.status == status


COMPILE = SINGLE + "args: {torch_compile: true}\n"
GCC, NO_GCC = {"gcc": {"path": "/usr/bin/gcc"}, "clang": None}, {"gcc": None, "clang": None}
C_COMPILERS = {
    "gcc": (COMPILE, GCC, ["ok"]),
    "none": (COMPILE, NO_GCC, ["warn"]),
    "none, for another backend": (
        SINGLE + "args: {torch_compile_backend: eager}\n", NO_GCC, []),
    "accelerate's own option": (
        SINGLE + "launcher_args: {dynamo_backend: inductor}\n", NO_GCC, ["warn"]),
    "another one": (COMPILE + "env: {CC: /opt/cc}\n", NO_GCC, []),
    "one that setup may load": (COMPILE + "setup: module load gcc\n", NO_GCC, []),
    "nobody looked": (COMPILE, {"gcc": None}, []),
    "nothing is compiled": (SINGLE, NO_GCC, []),
}  # fmt: skip


@pytest.mark.parametrize(("job", "programs", "expected"), C_COMPILERS.values(), ids=C_COMPILERS)
def test_torch_compile_needs_a_c_compiler(
    project: Project, job: str, programs: dict[str, Any], expected: list[str]
) -> None:
    facts = box(A100, A100, python=python(), torch=torch(), tools=programs)
    results = results_of(make_context(project, job, facts=facts, answers=Replies()), "c-compiler")
    assert [r.status for r in results] == expected
