"""Checks of torch and NCCL against cards and driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of
from support.facts.gpu_machines import A100, H100, RTX4090, RTX5090, T4, Replies, box, recorded
from support.facts.interpreters import CU126, CU128, python, torch

from safelaunch.checks.environment import cuda_compat
from safelaunch.hostfacts.tools.recognise import read_report

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 2\n"
CUDA = TORCHRUN + "profile: rtx5090\n"
COMPAT = ("path", "/usr/local/cuda/compat/libcuda.so.1")
NO_COMPAT = {COMPAT: {"kind": None}}
V100 = ("Tesla V100-SXM2-32GB", 32768, "7.0")
GT1030 = ("NVIDIA GeForce GT 1030", 2048, "6.1")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_checks(project: Project | None, job: str | None, facts: dict[str, Any], *ids: str,
            answers: dict[Any, Any] | None = None) -> list[Any]:  # fmt: skip
    replies = Replies(NO_COMPAT if answers is None else answers)
    return results_of(make_context(project, job, facts=facts, answers=replies), *ids)


# -- architectures ---------------------------------------------------------------------------------

CODE = {
    "the same": (["sm_80"], (8, 0), "sm_80"),
    "an older one of the same major version": (["sm_80"], (8, 9), "sm_80"),
    "the nearest": (["sm_80", "sm_86", "sm_90"], (8, 9), "sm_86"),
    "not a newer one": (["sm_86"], (8, 0), None),
    "not another major version": (["sm_80", "sm_90"], (10, 0), None),
    "not from 10 to 12": (["sm_100"], (12, 0), None),
    "PTX on whatever is newer": (["sm_90", "compute_90"], (12, 0), "compute_90"),
    "no PTX on what is older": (["compute_90"], (8, 6), None),
    "machine code before PTX": (["compute_80", "sm_80"], (8, 6), "sm_80"),
    "90a on 9.0": (["sm_90a"], (9, 0), "sm_90a"),
    "90a on nothing else": (["sm_90a", "compute_90a"], (10, 0), None),
    "100f in its family": (["sm_100f"], (10, 3), "sm_100f"),
    "100f not beyond": (["sm_100f", "compute_100f"], (12, 0), None),
    "of ROCm": (["gfx90a"], (9, 0), None),
}


@pytest.mark.parametrize(("archs", "card", "expected"), CODE.values(), ids=CODE)
def test_which_code_a_gpu_runs(
    archs: list[str], card: tuple[int, int], expected: str | None
) -> None:
    assert cuda_compat.code_for(archs, card) == expected


ARCHS = {
    "5090, cu128": (CUDA, box(RTX5090, RTX5090, torch=torch()), "ok", "has sm_120"),
    "5090, cu126": (
        CUDA,
        box(RTX5090, RTX5090, torch=torch("2.7.0+cu126", "12.6", CU126)),
        "fail",
        "no code for sm_120 (NVIDIA GeForce RTX 5090)",
    ),
    "4090, cu126": (
        TORCHRUN + "profile: rtx4090\n",
        box(RTX4090, torch=torch("2.7.0+cu126", "12.6", CU126)),
        "ok",
        "has sm_86",
    ),
    "V100 without 7.0": (
        TORCHRUN + "profile: a100\n",
        box(V100, torch=torch("2.11.0+cu128", "12.8", CU128)),
        "fail",
        "sm_70",
    ),
    "nobody says CUDA": (
        TORCHRUN,
        box(RTX5090, torch=torch("2.7.0+cu126", "12.6", CU126)),
        "warn",
        "sm_120",
    ),
    "not told": (CUDA, box(RTX5090, torch=torch(archs=None)), "skip", "architectures"),
    "the card does not tell": (
        TORCHRUN + "profile: a100-sxm\n",
        box((A100[0], 81920, "[N/A]"), torch=torch("2.7", "12.6", CU126)),
        "ok",
        "sm_80",
    ),
    "PTX, and a driver that does not tell its CUDA": (
        CUDA,
        box(RTX5090, torch=torch("2.6", "12.4", ["sm_90", "compute_90"]),
            ),
        "warn",
        "compile",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("job", "facts", "status", "words"), ARCHS.values(), ids=ARCHS)
def test_whether_torch_has_code_for_the_gpus(
    project: Project, job: str, facts: dict[str, Any], status: str, words: str
) -> None:
    (result,) = run_checks(project, job, facts, "torch-archs")
    assert (result.status, words in result.evidence) == (status, True), result


def test_ptx_passes_where_the_driver_knows_that_cuda(project: Project) -> None:
    facts = box(RTX5090, torch=torch("2.6", "12.4", ["sm_90", "compute_90"]))
    facts["gpus"]["cuda"] = "12.8"
    (result,) = run_checks(project, CUDA, facts, "torch-archs")
    assert (result.status, "compute_90" in result.evidence) == ("ok", True)


def test_the_build_that_has_the_code_is_named(project: Project) -> None:
    facts = box(RTX5090, python=python(), torch=torch("2.7.0+cu126", "12.6", CU126))
    (result,) = run_checks(project, CUDA, facts, "torch-archs")
    assert "--index-url https://download.pytorch.org/whl/cu128`" in result.hint


def test_a_gpu_for_the_screen_stops_nothing(project: Project) -> None:
    facts = box(GT1030, A100, A100, torch=torch("2.11", "12.8", CU128))
    (result,) = run_checks(project, TORCHRUN + "profile: a100\n", facts, "torch-archs")
    assert (result.status, "`gpus: [1, 2]`" in result.hint) == ("warn", True)


def test_only_the_jobs_own_gpus_count(project: Project) -> None:
    facts = box(GT1030, A100, A100, torch=torch("2.11", "12.8", CU128))
    (result,) = run_checks(project, TORCHRUN + "gpus: [1, 2]\n", facts, "torch-archs")
    assert result.status == "ok"


def test_a_machine_alone_is_warned_about_at_most() -> None:
    facts = box(RTX5090, torch=torch("2.7.0+cu126", "12.6", CU126))
    assert [each.status for each in run_checks(None, None, facts, "torch-archs")] == ["warn"]


QUIET = {
    "on the CPU": TORCHRUN + "profile: cpu\n",
    "another program": "launcher: command\ncommand: [bash, x.sh]\nprofile: rtx5090\n",
}


@pytest.mark.parametrize("job", QUIET.values(), ids=QUIET)
def test_who_has_nothing_to_do_with_torch_and_gpus(project: Project, job: str) -> None:
    facts = box(RTX5090, RTX5090, torch=torch("2.7.0+cu126", "12.6", CU126, "2.26.2", "12.2"))
    ids = ("torch-build", "torch-archs", "torch-driver", "nccl-build", "nccl-several")
    assert run_checks(project, job, facts, *ids) == []


# -- builds ----------------------------------------------------------------------------------------

BUILDS = {
    "CUDA": (CUDA, torch(), "ok"),
    "CPU": (CUDA, torch("2.8.0+cpu", None, None, None), "fail"),
    "CPU, nobody says CUDA": (TORCHRUN, torch("2.8.0+cpu", None, None, None), "warn"),
    "no CUDA, and not said to be for the CPU": (CUDA, torch("2.5.1", None, None, None), "warn"),
    "ROCm": (CUDA, torch("2.8.0+rocm6.4", None, None, None, hip="6.4"), "fail"),
}


@pytest.mark.parametrize(("job", "facts", "status"), BUILDS.values(), ids=BUILDS)
def test_what_torch_is_built_for(
    project: Project, job: str, facts: dict[str, Any], status: str
) -> None:
    (result,) = run_checks(project, job, box(RTX5090, torch=facts), "torch-build")
    assert result.status == status


PYTHON = "launcher: python\nscript: train.py\ngpus: 1\n"


@pytest.mark.parametrize(("text", "expected"), [
    ("import torch\n", ["fail"]), ("from transformers import pipeline\n", ["fail"]),
    ("import unheard\n", []), ("import json, numpy\n", []), ("import jax\n", []),
    ("import unheard\nprint(unheard.torch)\n", ["warn"]), ("import jax, transformers\n", []),
    ("import jax, transformers, torch\n", ["fail"]),
    ("import plotly, sys\nsys.path[:0] = []\n", []),
    ("def main():\n    import torch\n", ["fail"]), ("import numpy, helper\n", ["fail"]),
    ("import os\nos.system('torchrun x.py')\n", ["warn"]), ("import json  # no torch\n", []),
])  # fmt: skip
def test_a_build_for_the_cpu_matters_where_the_program_imports_torch(
    project: Project, text: str, expected: list[str]
) -> None:
    project.write(text, "train.py")
    project.write("def load():\n    from torch import load\n", "helper.py")
    facts = box(RTX5090, torch=torch("2.8.0+cpu", None, []))
    assert [r.status for r in run_checks(project, PYTHON, facts, "torch-build")] == expected


@pytest.mark.parametrize(
    ("module", "expected"),
    [("venv", []), ("tool", []), ("torch.utils", ["fail"]), ("trl", ["fail"])],
)
def test_of_modules_that_are_not_in_the_project_only_libraries_of_torch_need_cuda(
    project: Project, module: str, expected: list[str]
) -> None:
    job = f"launcher: python\nmodule: {module}\ngpus: 1\n"
    facts = box(RTX5090, torch=torch("2.8.0+cpu", None, []))
    assert [r.status for r in run_checks(project, job, facts, "torch-build")] == expected


@pytest.mark.parametrize(("job", "expected"), [(PYTHON, []), (TORCHRUN, ["warn"])])
def test_nothing_is_said_of_the_torch_of_a_script_that_is_missing_unless_its_launcher_has_it(
    project: Project, job: str, expected: list[str]
) -> None:
    facts = box(RTX5090, torch=torch("2.8.0+cpu", None, []))
    answers = Replies({**NO_COMPAT, ("path", "train.py"): {"kind": None}})
    context = make_context(project, job, facts=facts, answers=answers)
    (project.folder / "train.py").unlink()  # after the plan, which is only made where it is there
    assert [result.status for result in results_of(context, "torch-build")] == expected


def test_torch_for_the_cpu_passes_without_gpus(project: Project) -> None:
    facts = box(torch=torch("2.8.0+cpu", None, None, None))
    assert run_checks(project, TORCHRUN, facts, "torch-build") == []


# -- drivers ---------------------------------------------------------------------------------------

DRIVERS = {
    "new": ("580.65.06", "13.0", "ok"),
    "a CUDA newer than the driver's, of the same major version": ("525.60.13", "12.9", "ok"),
    "too old for 12": ("525.60.11", "12.1", "fail"),
    "too old for 13": ("570.86.10", "13.0", "fail"),
    "11": ("450.80.02", "11.8", "ok"),
    "10.1": ("418.67", "10.1", "ok"),
    "too old for 10.2": ("418.67", "10.2", "fail"),
}


@pytest.mark.parametrize(("driver", "built", "status"), DRIVERS.values(), ids=DRIVERS)
def test_the_driver_for_a_cuda(project: Project, driver: str, built: str, status: str) -> None:
    facts = box(A100, torch=torch("2.9", built))
    facts["gpus"] |= {"driver": driver, "cuda": None}
    job = TORCHRUN + "profile: a100-sxm\n"
    (result,) = run_checks(project, job, facts, "torch-driver")
    assert result.status == status, result


def test_nvidias_containers_run_newer_cuda_on_older_drivers(project: Project) -> None:
    facts = box(A100, torch=torch("1.14.0a0", "12.0"))
    facts["gpus"] |= {"driver": "470.57.02", "cuda": None}
    answers = {COMPAT: {"kind": "file"}}
    job = TORCHRUN + "profile: a100-sxm\n"
    (result,) = run_checks(project, job, facts, "torch-driver", answers=answers)
    assert result.status == "warn"


def test_what_nvidia_smi_says_of_its_libcuda_counts(project: Project) -> None:
    facts = box(A100, torch=torch("1.14.0a0", "12.0"))
    facts["gpus"] |= {"driver": "470.57.02", "cuda": "12.0"}
    job = TORCHRUN + "profile: a100-sxm\n"
    (result,) = run_checks(project, job, facts, "torch-driver")
    assert result.status == "ok"


def test_recorded_machines_whose_torch_ran(project: Project) -> None:
    """Each of these reports says that CUDA was available; that of a container had compat."""
    from support.facts.gpu_machines import RECORDS  # noqa: PLC0415 - here only

    job = TORCHRUN + "profile: a100\n"
    judged = []
    for record in RECORDS.values():
        replies = record["expected"]
        if record["kind"] != "collect-env" or not replies.get("torch_cuda") or not replies["names"]:
            continue
        report = read_report(record["text"], record["command"])
        facts = box(A100, torch=torch(replies["torch"], replies["torch_cuda"]))
        facts["gpus"] |= {"driver": report.driver, "cuda": None}
        answers = {COMPAT: {"kind": "file" if "container" in record["id"] else None}}
        judged += run_checks(project, job, facts, "torch-driver", answers=answers)
    assert len(judged) > 4
    assert {each.status for each in judged} <= {"ok", "warn"}
    assert [each.status for each in judged].count("warn") == 1


# -- NCCL ------------------------------------------------------------------------------------------

NCCLS = {
    "the bad build": ("2.26.2", "12.2", None, "warn"),
    "its repaired wheel": ("2.26.2", "12.8", "2.26.2.post1", "ok"),
    "by the wheel alone": ("2.26.2", None, "2.26.2.post1", "ok"),
    "nothing but the version": ("2.26.2", None, None, "warn"),
    "new enough": ("2.26.5", None, None, "ok"),
    "too much shared memory": ("2.25.1", "12.8", "2.25.1.post1", "warn"),
    "old": ("2.21.5", "12.4", None, "warn"),
}


@pytest.mark.parametrize(("version", "built", "wheel", "status"), NCCLS.values(), ids=NCCLS)
def test_nccl_for_blackwell(
    project: Project, version: str, built: str | None, wheel: str | None, status: str
) -> None:
    facts = box(RTX5090, RTX5090, torch=torch(nccl=version, built=built, wheel=wheel))
    (result,) = run_checks(project, CUDA, facts, "nccl-build")
    assert result.status == status, result
    assert status == "ok" or "'nvidia-nccl-cu12>=2.26.5' --no-deps" in result.hint


def test_any_nccl_passes_on_older_gpus(project: Project) -> None:
    facts = box(A100, A100, torch=torch(nccl="2.26.2", built="12.2"))
    (result,) = run_checks(project, TORCHRUN + "profile: a100-sxm\n", facts, "nccl-build")
    assert result.status == "ok"


def test_the_oldest_nccl_of_a_profile(project: Project) -> None:
    facts = box(H100, H100, torch=torch(nccl="2.18.1", built="12.1"))
    (result,) = run_checks(project, TORCHRUN + "profile: h800\n", facts, "nccl-build")
    assert (result.status, "2.19.3 or newer" in result.evidence) == ("warn", True)


def test_one_rank_needs_no_nccl(project: Project) -> None:
    job = "launcher: torchrun\nscript: train.py\nprocesses: 1\nprofile: rtx5090\n"
    facts = box(RTX5090, torch=torch(nccl="2.26.2", built="12.2"))
    assert run_checks(project, job, facts, "nccl-build") == []


def test_two_nccl_wheels_are_one_too_many(project: Project) -> None:
    installed = {"nvidia-nccl-cu12": "2.27.3", "nvidia-nccl-cu11": "2.14.3"}
    facts = box(A100, A100, python=python(installed), torch=torch())
    job = TORCHRUN + "profile: a100-sxm\n"
    (result,) = run_checks(project, job, facts, "nccl-several")
    assert result.status == "warn"
    assert "uninstall -y nvidia-nccl-cu11`, then" in result.hint
    assert "nvidia-nccl-cu12==2.27.3 --no-deps --force-reinstall" in result.hint


def test_one_nccl_wheel_passes(project: Project) -> None:
    facts = box(A100, A100, python=python({"nvidia-nccl-cu12": "2.27.3"}), torch=torch())
    assert run_checks(project, TORCHRUN + "profile: a100-sxm\n", facts, "nccl-several") == []


CONFIGS = {
    "takes the place of null": ("NCCL_ALGO=Tree", "env: {NCCL_ALGO: null}\n", "warn"),
    "switches peers off": ("NCCL_P2P_DISABLE=1 \n", "", "warn"),
    "is beaten": ("NCCL_P2P_DISABLE=1", "env: {NCCL_P2P_DISABLE: 0}\n", None),
    "is harmless": ("# NCCL_P2P_DISABLE=1\nNCCL_DEBUG=WARN\n", "", "ok"),
    "switches nothing off": ("NCCL_P2P_DISABLE=0", "", "ok"),
    "is no configuration": ("\x00\x01=\nfoo", "", None),
}


@pytest.mark.parametrize(("text", "job", "status"), CONFIGS.values(), ids=CONFIGS)
def test_what_a_configuration_file_of_nccl_adds(
    project: Project, text: str, job: str, status: str | None
) -> None:
    facts = box(A100, A100, torch=torch(), config={"/home/me/.nccl.conf": text})
    results = run_checks(project, TORCHRUN + "profile: a100-sxm\n" + job, facts, "nccl-config")
    assert [each.status for each in results] == ([status] if status else [])


# -- a machine that tells little -------------------------------------------------------------------


def test_a_machine_whose_nvidia_smi_hangs_gives_no_failure(project: Project) -> None:
    facts = recorded()
    facts["skipped"] = {"torch": "nothing within 10.0 s", "python": "nothing within 10.0 s"}
    results = run_checks(project, CUDA, facts)
    failed = [each for each in results if each.family == "environment" and each.status == "fail"]
    assert failed == []


def test_a_gpu_of_the_screen_is_reported_by_index(project: Project) -> None:
    facts = box(A100, T4, torch=torch("2.9", "12.8", ["sm_80"]))
    result = result_of(
        make_context(project, TORCHRUN + "profile: a100\n", facts=facts, answers=Replies()),
        "torch-archs",
    )
    assert result.hint == "`gpus: [0]` leaves it out"
