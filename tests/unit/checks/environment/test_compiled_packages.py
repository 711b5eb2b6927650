"""Checks of compiled packages against torch, CUDA and glibc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import H100, Replies, box
from support.facts.interpreters import PATH, SYSTEM, python, torch

from safelaunch.checks.environment import packages

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

JOB = "launcher: torchrun\nscript: train.py\nprocesses: 2\nprofile: h100\n"
SYMBOL = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
INSTALLED = {"torch": "2.8.0", "flash-attn": "2.7.4", "bitsandbytes": "0.45.5",
             "torchvision": "0.23.0", "deepspeed": "0.17.0"}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    packages._read_pins.cache_clear()
    return project_at(tmp_path)


def library(package: str = "flash-attn", **more: Any) -> dict[str, Any]:
    return {
        "package": package,
        "file": "x.so",
        "symbols": [],
        "cuda": "12",
        "glibc": "2.31",
        **more,
    }


def run_check(
    project: Project,
    *libraries: dict[str, Any],
    bitsandbytes: list[str] | None = None,
    deepspeed: dict[str, Any] | None = None,
    job: str = JOB,
    build: dict[str, Any] | None = None,
    installed: dict[str, str] | None = None,
    runtimes: tuple[str, ...] = ("12",),
) -> list[Any]:
    class Answers(Replies):
        def __missing__(self, key: object) -> dict[str, Any]:
            if not isinstance(key, tuple) or key[0] != "builds":
                return {"skip": "it is not asked"}
            builds = {"libraries": list(libraries), "runtimes": list(runtimes)}
            return {**builds, "bitsandbytes": bitsandbytes, "deepspeed": deepspeed}

    facts = box(
        H100, H100, python=python(installed or INSTALLED), torch=build or torch(), system=SYSTEM
    )
    context = make_context(project, job, facts=facts, answers=Answers())
    return results_of(context, "compiled-packages")


def test_packages_that_were_built_for_this_torch_pass(project: Project) -> None:
    [result] = run_check(project, library(), library("torchvision"))
    assert result.status == "ok"
    assert result.evidence == "2 packages built for this torch: flash-attn, torchvision"


def test_a_job_without_compiled_packages_says_nothing(project: Project) -> None:
    assert run_check(project) == []


def test_a_symbol_that_torch_lacks_is_the_error_that_the_import_would_end_with(
    project: Project,
) -> None:
    [result] = run_check(project, library(symbols=[SYMBOL]))
    assert result.status == "warn"
    assert result.evidence == (
        "flash-attn 2.7.4 (x.so) was built for another torch than 2.8.0+cu128: "
        f"ImportError: undefined symbol {SYMBOL}"
    )
    assert f"{PATH} -m pip install flash-attn --force-reinstall" in result.hint
    assert "--no-build-isolation" in result.hint


def test_torchvision_names_the_error_that_its_import_ends_with(project: Project) -> None:
    [result] = run_check(project, library("torchvision", symbols=[SYMBOL]))
    assert "RuntimeError: operator torchvision::nms does not exist" in result.evidence


def test_a_torch_without_cuda_is_the_cause_of_missing_symbols_of_cuda(project: Project) -> None:
    symbols = ["_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"]
    build = torch("2.13.0+cpu", None)
    [result] = run_check(project, library("torchvision", cuda=None, symbols=symbols), build=build)
    assert result.status == "skip"
    assert "needs a torch with CUDA" in result.evidence


CUDA = {
    "that is not there": (("13",), "it cannot be loaded"),
    "that is there too": (("12", "13"), "it may fail in CUDA calls"),
}


@pytest.mark.parametrize(("runtimes", "effect"), CUDA.values(), ids=CUDA)
def test_another_major_version_of_cuda(
    project: Project, runtimes: tuple[str, ...], effect: str
) -> None:
    build = torch("2.11.0+cu130", "13.0")
    [result] = run_check(project, library("torchvision"), build=build, runtimes=runtimes)
    assert "was built for CUDA 12, torch for CUDA 13.0" in result.evidence
    assert effect in result.evidence
    assert "--index-url https://download.pytorch.org/whl/cu130" in result.hint


def test_a_newer_glibc_than_that_of_the_machine(project: Project) -> None:
    [result] = run_check(project, library(glibc="2.38"))
    assert "needs glibc 2.38, this machine has 2.35" in result.evidence


def test_several_libraries_of_a_package_are_one_line(project: Project) -> None:
    assert len(run_check(project, library(glibc="2.38"), library(symbols=[SYMBOL]))) == 1


BITSANDBYTES = {
    "it has the library": ("0.45.5", ["126", "128"], JOB, None),
    "it has none": ("0.45.5", ["126", "130"], JOB, "no library for CUDA 12.8 of torch"),
    "newer ones take another minor version": ("0.50.2", ["126", "130"], JOB, None),
    "newer ones take no other major version": ("0.50.2", ["118", "130"], JOB, "CUDA 12.8 of torch"),
    "a version that is forced": ("0.45.5", ["126"], JOB + "env: {BNB_CUDA_VERSION: 126}\n", None),
    "a version that is forced and missing": (
        *("0.50.2", ["126"], JOB + "env: {BNB_CUDA_VERSION: 124}\n"),
        "CUDA 12.4 of BNB_CUDA_VERSION",
    ),
    "a job on the CPU": ("0.45.5", ["126"], JOB.replace("h100", "cpu"), None),
    "a build for the CPU": ("0.45.5", [], JOB, None),
}


@pytest.mark.parametrize(
    ("number", "versions", "job", "evidence"), BITSANDBYTES.values(), ids=BITSANDBYTES
)
def test_bitsandbytes_needs_a_library_for_the_cuda_of_torch(
    project: Project, number: str, versions: list[str], job: str, evidence: str | None
) -> None:
    installed = {**INSTALLED, "bitsandbytes": number}
    results = run_check(project, bitsandbytes=versions, job=job, installed=installed)
    assert [r.status for r in results] == ([] if evidence is None else ["warn"])
    assert evidence is None or evidence in results[0].evidence


DEEPSPEED = {
    "the same": ({"torch": "2.8", "cuda": "12.8"}, None),
    "another torch": ({"torch": "2.7", "cuda": "12.8"}, "for torch 2.7, not 2.8"),
    "another CUDA": ({"torch": "2.8", "cuda": "12.6"}, "for CUDA 12.6, not 12.8"),
    "one for the CPU": ({"torch": "2.8", "cuda": "0.0"}, None),
}


@pytest.mark.parametrize(("build", "evidence"), DEEPSPEED.values(), ids=DEEPSPEED)
def test_operators_of_deepspeed_are_for_one_torch(
    project: Project, build: dict[str, str], evidence: str | None
) -> None:
    results = run_check(project, deepspeed={**build, "operators": ["cpu_adam", "fused_adam"]})
    assert [r.status for r in results] == ([] if evidence is None else ["warn"])
    assert evidence is None or evidence in results[0].evidence


def test_what_another_program_loads_is_not_known(project: Project) -> None:
    job = "launcher: command\ncommand: [bash, x.sh]\nprofile: h100\n"
    assert run_check(project, library(symbols=[SYMBOL]), job=job) == []
