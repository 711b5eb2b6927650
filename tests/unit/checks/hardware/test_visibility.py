"""Checks of AMD GPUs and Ascend NPUs: counts and settings by the variables of their runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import A100, Replies, box, other

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.registry import CheckResult

TORCHRUN = "launcher: torchrun\nscript: train.py\n"
AMD8 = box(others=other("rocm-smi", "rocm-concise-8x0x74a2"))
NPUS = box(others=other("npu-smi", "npu-info-a3-two-chips"))
ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_checks(
    project: Project, job: str, check_id: str, environ: dict[str, str], facts: object = AMD8
) -> list[CheckResult]:
    assert isinstance(facts, dict)
    context = make_context(project, TORCHRUN + job, facts=facts, answers=Replies(), environ=environ)
    return results_of(context, check_id)


COUNTS = {
    "all": ("profile: rocm\nprocesses: 8\n", {}, "8 of 8"),
    "listed": ("profile: rocm\ngpus: [4, 5]\n", {}, "2 of 8"),
    "left by ROCR": ("profile: rocm\ngpus: auto\n", {ROCR: "4,5,6"}, "3 of 8"),
    "listed in what ROCR leaves": ("profile: rocm\ngpus: [1]\n", {ROCR: "4,5"}, "1 of 8"),
    "HIP before CUDA": ("profile: rocm\ngpus: auto\n", {HIP: "1,2", CUDA: "0"}, "2 of 8"),
    "CUDA alone": ("profile: rocm\ngpus: auto\n", {CUDA: "0"}, "1 of 8"),
    "an empty HIP beside CUDA": ("profile: rocm\ngpus: auto\n", {HIP: "", CUDA: "3"}, "1 of 8"),
    "without a profile": ("gpus: [0, 7]\n", {}, "2 of 8"),
}


@pytest.mark.parametrize("what", COUNTS)
def test_amd_gpus_are_counted_as_their_runtimes_do(what: str, project: Project) -> None:
    job, environ, evidence = COUNTS[what]
    [result] = run_checks(project, job, "gpu-count", environ)
    assert (result.status, evidence in result.evidence) == ("ok", True), result


@pytest.mark.parametrize(
    ("job", "environ", "evidence"),
    [
        ("profile: rocm\ngpus: [4, 5]\n", {ROCR: "4,5"}, f"counts from 0 what {ROCR}=4,5 has left"),
        ("gpus: [8]\n", {}, "the GPUs are [0, 1, 2, 3, 4, 5, 6, 7]"),
        ("processes: 9\nneeds: {gpu_memory: 1GiB}\n", {}, "the machine has 8 GPUs"),
    ],
)
def test_amd_gpus_that_the_job_cannot_see_refuse_it(
    job: str, environ: dict[str, str], evidence: str, project: Project
) -> None:
    [result] = run_checks(project, job, "gpu-count", environ)
    assert (result.status, evidence in result.evidence) == ("fail", True), result


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({HIP: "0,1", CUDA: "2,3"}, 1),
        ({HIP: "0,1", CUDA: "0, 1"}, 0),
        ({ROCR: "4,5", CUDA: "4,5"}, 1),  # Slurm without AutoDetect
        ({ROCR: "4,5", HIP: "0,1"}, 0),
        ({ROCR: "4,5", CUDA: "4", HIP: "1"}, 1),
        ({CUDA: "0"}, 0),
    ],
)
def test_settings_of_amd_that_contradict_are_named(
    environ: dict[str, str], count: int, project: Project
) -> None:
    results = run_checks(project, "profile: rocm\ngpus: auto\n", "rocm-visibility", environ)
    assert [r.status for r in results if r.status != "skip"] == ["warn"] * count


def test_settings_of_slurm_do_not_matter_on_nvidia(project: Project) -> None:
    both = {ROCR: "1", CUDA: "1"}
    job = "profile: a100\ngpus: auto\n"
    assert run_checks(project, job, "rocm-visibility", both, box(A100, A100)) == []
    [result] = run_checks(project, job, "gpu-count", both, box(A100, A100))
    assert (result.status, "1 of 2" in result.evidence) == ("ok", True)


def test_a_variable_of_cuda_selects_no_npu(project: Project) -> None:
    [result] = run_checks(project, "gpus: [0]\n", "npu-visibility", {}, NPUS)
    assert (result.status, "--profile ascend" in result.hint) == ("warn", True)
    assert run_checks(project, "profile: ascend\ngpus: [0]\n", "npu-visibility", {}, NPUS) == []


def test_a_live_run_on_the_same_amd_gpus_is_named_by_what_both_levels_leave(
    project: Project,
) -> None:
    env = {ROCR: {"value": "4,5"}, HIP: {"value": "1"}}
    plan = {"nodes": [{"node_rank": 0, "env": env}]}
    live = {"live": [{"id": "server-1", "node": "node-0", "name": "server", "plan": plan}]}
    for gpu, expected in (("5", ["warn"]), ("1", [])):
        context = make_context(
            project,
            TORCHRUN + f"profile: rocm\ngpus: [{gpu}]\n",
            facts=AMD8,
            answers=Replies({("runs",): live}),
        )
        assert [r.status for r in results_of(context, "gpu-sets")] == expected
