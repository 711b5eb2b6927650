"""Checks of cards: how many, of which kind, and whose facts the hosts file declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, result_of, results_of
from support.facts.gpu_machines import (
    A100,
    GTX1080,
    H100,
    RTX4090,
    RTX5090,
    T4,
    Replies,
    box,
    matrix,
    other,
    query,
    recorded,
)

from safelaunch.config.hosts_file.save_facts import save
from safelaunch.config.resolve import Flags
from safelaunch.hostfacts.assemble import from_probe
from safelaunch.hostfacts.profile_detection import gate_facts

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.registry import CheckResult

TORCHRUN = "launcher: torchrun\nscript: train.py\n"
NONE = {("path", name): {"kind": None} for name in ("/dev/kfd", "/dev/dxg", "/dev/nvmap",
                                                    "/dev/nvidiactl")}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_checks(
    project: Project, job: str, facts: dict[str, Any], *ids: str, **more: Any
) -> list[Any]:
    answers = Replies({**NONE, **more.pop("answers", {})})
    return results_of(make_context(project, job, facts=facts, answers=answers, **more), *ids)


def run_check(
    project: Project, job: str, facts: dict[str, Any], check_id: str, **more: Any
) -> CheckResult:
    answers = Replies({**NONE, **more.pop("answers", {})})
    return result_of(make_context(project, job, facts=facts, answers=answers, **more), check_id)


# -- gpu-count -------------------------------------------------------------------------------------

COUNTS = {
    "as many as ranks": ("profile: a100-sxm\nprocesses: 4\n", box(*[A100] * 4), "ok", ""),
    "more cards": ("profile: a100-sxm\nprocesses: 2\n", box(*[A100] * 4), "ok", ""),
    "all of them": ("profile: a100-sxm\ngpus: auto\n", box(*[A100] * 4), "ok", ""),
    "fewer": ("profile: a100-sxm\nprocesses: 4\n", box(A100, A100), "fail", "--set processes=2"),
    "fewer by /proc": (
        "profile: a100-sxm\nprocesses: 4\n",
        box(A100, A100, proc=True),
        "fail",
        "--set processes=2",
    ),
    "fewer than listed": ("gpus: [0, 1, 2]\n", box(A100, A100), "fail", "--set gpus=2"),
    "others than listed": ("gpus: [2, 5]\n", box(*[A100] * 4), "fail", "gpus=[0, 1]"),
    "a spare one is missing": (
        "gpus: [0, 1, 4]\nprocesses: 2\n",
        box(*[A100] * 4),
        "warn",
        "gpus=[0, 1]",
    ),
    "by UUID": ("gpus: [GPU-00000001, GPU-00000003]\n", box(*[A100] * 4), "ok", ""),
    "hidden by env": (
        "profile: a100-sxm\nprocesses: 2\nenv: {CUDA_VISIBLE_DEVICES: 0}\n",
        box(A100, A100),
        "fail",
        "remove CUDA_VISIBLE_DEVICES from `env:`",
    ),
    "none": ("profile: a100-sxm\nprocesses: 4\n", box(), "fail", "--profile cpu"),
    "none for auto": ("gpus: auto\n", box(), "fail", "--set processes=1"),
    "none for its memory": (
        "processes: 4\nneeds: {gpu_memory: 24GiB}\n",
        box(),
        "fail",
        "--profile cpu",
    ),
    "nothing says cards": ("processes: 4\n", box(A100), "warn", "--set processes=1"),
}


@pytest.mark.parametrize("what", COUNTS)
def test_each_rank_needs_a_gpu(what: str, project: Project) -> None:
    job, facts, status, hint = COUNTS[what]
    result = run_check(project, TORCHRUN + job, facts, "gpu-count")
    assert result.status == status
    assert hint in result.hint


@pytest.mark.parametrize("reported", [{}, {"query": ""}, {"query": "no such field"}, {"list": ""}])
def test_a_tool_that_reports_nothing_is_no_proof_that_there_is_no_gpu(
    reported: dict[str, str], project: Project
) -> None:
    facts = box(outputs=reported)
    facts["gpus"]["nvidia_smi"] = "/usr/bin/nvidia-smi"
    assert facts["gpus"]["troubles"] == []
    result = run_check(project, TORCHRUN + "profile: a100-sxm\nprocesses: 4\n", facts, "gpu-count")
    assert result.status == "skip"
    if not reported:
        assert result.evidence.endswith("reports no GPU, and no error either")


def test_a_tool_that_says_there_is_none_is_proof(project: Project) -> None:
    facts = box(outputs={"query": "No devices were found\n"})
    result = run_check(project, TORCHRUN + "profile: a100-sxm\nprocesses: 4\n", facts, "gpu-count")
    assert (result.status, "there is no NVIDIA GPU" in result.evidence) == ("fail", True)


@pytest.mark.parametrize("what", [w for w in COUNTS if COUNTS[w][2] == "fail"])
def test_what_the_hint_sets_cures_the_count(what: str, project: Project) -> None:
    job, facts, _, _ = COUNTS[what]
    hint = run_check(project, TORCHRUN + job, facts, "gpu-count").hint
    sets = [w.strip("'`\"") for w in hint.replace("'gpus=", "gpus=").split("--set ")[1:]]
    sets = [w.split("`")[0].strip().rstrip("'") for w in sets]
    profile = "cpu" if "--profile cpu" in hint else None
    if not sets and profile is None:
        return  # words for a person
    flags = Flags(profile=profile, sets=tuple(sets))
    results = run_checks(project, TORCHRUN + job, facts, "gpu-count", flags=flags)
    assert [f.status for f in results] in (["ok"], [])


def test_an_answer_that_was_cut_off_is_no_machine_without_gpus(project: Project) -> None:
    facts = box(outputs={"query": f"{query()}0, NVIDIA A100-SXM4-80GB, GPU-0"})
    job = TORCHRUN + "profile: a100-sxm\nprocesses: 1\n"
    assert run_check(project, job, facts, "gpu-count").status == "skip"


def test_an_inherited_variable_that_hides_gpus_is_named(project: Project) -> None:
    job = TORCHRUN + "profile: a100-sxm\nprocesses: 2\n"
    environ = {"CUDA_VISIBLE_DEVICES": "3"}
    result = run_check(project, job, box(A100, A100), "gpu-count", environ=environ)
    assert result.status == "fail"
    assert "CUDA_VISIBLE_DEVICES (your environment) names 3" in result.evidence
    assert "`unset CUDA_VISIBLE_DEVICES`" in result.hint
    job += "inherit: none\n"
    assert run_check(project, job, box(A100, A100), "gpu-count", environ=environ).status == "ok"


def test_gpus_behind_one_that_is_not_there_are_not_seen(project: Project) -> None:
    job = TORCHRUN + "gpus: [0, 7, 1]\nprocesses: 2\n"
    result = run_check(project, job, box(A100, A100), "gpu-count")
    assert result.status == "fail"
    assert result.hint == "`--set 'gpus=[0, 1]'`"


@pytest.mark.parametrize("name", ["MIG-a", "GPU-00000001"])
def test_a_name_that_cannot_be_looked_up_is_not_denied(name: str, project: Project) -> None:
    facts = box(H100, H100, proc=True)
    for card in facts["gpus"]["cards"]:
        card["uuid"] = None
    results = run_checks(project, TORCHRUN + f"gpus: [{name}]\n", facts, "gpu-count")
    assert [f.status for f in results] == ["skip"]


@pytest.mark.parametrize(
    ("job", "facts"),
    [
        ("processes: 4\n", box()),  # a job for the CPU
        ("profile: cpu\nprocesses: 4\n", box(A100)),
        ("processes: 4\nenv: {CUDA_VISIBLE_DEVICES: ''}\n", box(A100)),
        ("profile: a100\nprocesses: 4\n", box(others={"rocm-smi": "/opt/rocm/bin/rocm-smi"})),
    ],
)
def test_a_job_without_cuda_needs_no_gpus(
    job: str, facts: dict[str, Any], project: Project
) -> None:
    assert run_checks(project, TORCHRUN + job, facts, "gpu-count") == []


def test_gpus_that_nvidia_does_not_show_are_not_denied(project: Project) -> None:
    answers = {("path", "/dev/kfd"): {"kind": "other"}}
    job = TORCHRUN + "profile: a100\nprocesses: 1\n"
    result = run_check(project, job, box(), "gpu-count", answers=answers)
    assert (result.status, result.evidence) == ("skip", "no GPU is visible, but /dev/kfd exists")


def test_a_quick_look_counts_by_proc_and_says_nothing_where_it_cannot(project: Project) -> None:
    job = TORCHRUN + "profile: a100-sxm\nprocesses: 4\n"
    few = run_checks(project, job, box(A100, proc=True), "gpu-count", is_quick=True)
    assert [f.status for f in few] == ["fail"]
    unknown = box(outputs={"query": {"text": "", "why": "it did not end"}})
    assert run_checks(project, job, unknown, "gpu-count", is_quick=True) == []


# -- gpu-order, gpu-slices -------------------------------------------------------------------------


def test_numbers_of_different_gpus_want_an_order(project: Project) -> None:
    facts = box(RTX5090, A100, A100)
    job = TORCHRUN + "gpus: [1, 2]\n"
    result = run_check(project, job, facts, "gpu-order")
    assert (result.status, result.hint) == ("warn", "`env: {CUDA_DEVICE_ORDER: PCI_BUS_ID}`")
    cured = run_check(project, job + "env: {CUDA_DEVICE_ORDER: PCI_BUS_ID}\n", facts, "gpu-order")
    assert cured.status == "ok"
    assert run_checks(project, job, box(A100, A100, A100), "gpu-order") == []


def test_several_ranks_on_slices_are_reported(project: Project) -> None:
    facts = box(H100, H100, mig=(0,))
    result = run_check(project, TORCHRUN + "profile: h100\nprocesses: 2\n", facts, "gpu-slices")
    assert result.status == "warn"
    assert "gpus=[1]" in result.hint
    assert run_check(project, TORCHRUN + "processes: 1\n", facts, "gpu-slices").status == "ok"
    assert run_checks(project, TORCHRUN + "processes: 2\n", box(H100, H100), "gpu-slices") == []


# -- profile-fits ----------------------------------------------------------------------------------

FITS = {
    "it does": ("profile: a100-sxm\n", box(A100), "ok", ""),
    "the family does": ("profile: a100\n", box(A100), "ok", ""),
    "another is right": ("profile: rtx5090\n", box(A100), "warn", "`--profile a100-sxm`"),
    "another is right by /proc": (
        "profile: rtx5090\n",
        box(A100, proc=True),
        "warn",
        "`--profile a100-sxm`",
    ),
    "some do": ("profile: rtx5090\ngpus: auto\n", box(RTX5090, T4), "warn", "gpus: [0]"),
    "none does": ("profile: rtx5090\n", box(GTX1080), "warn", "remove `profile`"),
    "recorded": ("profile: h100\n", recorded(query="smi-h200x8-570"), "warn", "--profile h200"),
    "recorded list": ("profile: h100\n", recorded(query="list-h100x8-vm"), "ok", ""),
    "no profile, and one would help": (
        "gpus: [0, 1]\n",
        box(RTX5090, RTX5090),
        "warn",
        "`--profile rtx5090`",
    ),
    "no profile, and one changes nothing": ("gpus: [0]\n", box(A100), "ok", ""),
    "no profile, and its workarounds are over": (
        "gpus: [0, 1]\n",
        box(RTX4090, RTX4090),  # driver 570.86.10
        "ok",
        "",
    ),
}


@pytest.mark.parametrize("what", FITS)
def test_the_right_profile_is_named(what: str, project: Project) -> None:
    job, facts, status, hint = FITS[what]
    job += "" if "gpus" in job else "processes: 1\n"
    result = run_check(project, TORCHRUN + job, facts, "profile-fits")
    assert result.status == status
    assert hint in result.hint


def test_the_profile_that_is_named_cures_it(project: Project) -> None:
    job = TORCHRUN + "profile: rtx5090\nprocesses: 1\n"
    result = run_check(project, job, box(A100), "profile-fits", flags=Flags(profile="a100-sxm"))
    assert result.status == "ok"


@pytest.mark.parametrize(
    ("job", "facts"),
    [
        ("profile: cpu\n", box(A100)),
        ("", box(GTX1080)),  # no profile is for it, and none is given
        ("profile: rtx5090\n", box()),  # gpu-count says it
    ],
)
def test_no_profile_is_asked_for_where_none_matters(
    job: str, facts: dict[str, Any], project: Project
) -> None:
    assert run_checks(project, TORCHRUN + job + "processes: 1\n", facts, "profile-fits") == []


def test_a_machine_alone_is_reported_its_profile() -> None:
    case = make_context(None, None, facts=box(GTX1080), answers=Replies())
    assert results_of(case, "profile-fits") == []
    case = make_context(None, None, facts=box(A100, A100), answers=Replies())
    result = result_of(case, "profile-fits")
    assert result.evidence == "2 x NVIDIA A100-SXM4-80GB: profile a100-sxm is for them"


# -- profile-facts ---------------------------------------------------------------------------------

NEW = {"torch": {"version": "2.8.0+cu128", "cuda": "12.8", "nccl": {"version": "2.27.3"}}}
OLD = {"torch": {"version": "2.7.0", "cuda": "12.6", "nccl": {"version": "2.26.2"}}}


HOSTS = "hosts:\n  localhost:\n    profile: rtx5090\n"


def facts_of(project: Project, more: dict[str, Any], text: str = HOSTS) -> CheckResult:
    project.write(text, "hosts.yaml")
    flags = Flags(hosts_file="hosts.yaml")
    peers = matrix(2, "CNS")  # the stock driver
    facts = box(RTX5090, RTX5090, outputs={"peers": peers}, parts=more)
    return run_check(project, TORCHRUN + "processes: 2\n", facts, "profile-facts", flags=flags)


def test_facts_that_would_lift_variables_are_asked_for(project: Project) -> None:
    result = facts_of(project, NEW)
    assert result.status == "warn"
    assert "NCCL_SHM_DISABLE" in result.evidence
    assert "nccl is 2.27.3, which does not need them" in result.evidence


def test_what_saves_facts_names_the_job_whose_interpreter_has_them(project: Project) -> None:
    assert facts_of(project, NEW).hint.startswith("`safelaunch check --save job.yaml` writes")


def test_saved_facts_lift_them(project: Project) -> None:
    saved = save(HOSTS, "hosts.yaml", "localhost", gate_facts(box(RTX5090, parts=NEW)))
    assert facts_of(project, NEW, saved).status == "ok"


def test_facts_that_are_not_known_are_not_asked_for(project: Project) -> None:
    job = TORCHRUN + "profile: rtx5090\nprocesses: 2\n"
    assert run_checks(project, job, box(RTX5090, RTX5090), "profile-facts") == []


def test_facts_that_change_nothing_are_not_asked_for(project: Project) -> None:
    assert facts_of(project, OLD).status == "ok"


# -- accelerators of other makers ------------------------------------------------------------------

NPUS = other("npu-smi", "npu-info-a3-two-chips")


@pytest.mark.parametrize(
    ("gpus", "status", "evidence"),
    [
        ("[0, 1]", "ok", "2 of 2 GPUs for 2 ranks"),
        ("[0, 5]", "fail", "ASCEND_RT_VISIBLE_DEVICES (job.yaml:4:7) names 5"),
    ],
)
def test_npus_are_counted_by_their_own_variable(
    project: Project, gpus: str, status: str, evidence: str
) -> None:
    job = TORCHRUN + f"profile: ascend910c\ngpus: {gpus}\n"
    result = run_check(project, job, box(others=NPUS), "gpu-count")
    assert (result.status, evidence in result.evidence) == (status, True)


def test_a_profile_of_another_maker_is_no_profile_for_a_machine_without_its_devices(
    project: Project,
) -> None:
    job = TORCHRUN + "profile: mi300x\ngpus: [0, 1]\n"
    result = run_check(project, job, box(others=NPUS), "gpu-count")
    assert (result.status, "no AMD GPU" in result.evidence) == ("fail", True)


@pytest.mark.parametrize(("profile", "status"), [("ascend910c", "ok"), ("ascend910b", "warn")])
def test_the_profile_of_npus_is_compared_with_their_names(
    project: Project, profile: str, status: str
) -> None:
    job = TORCHRUN + f"profile: {profile}\ngpus: [0, 1]\n"
    result = run_check(project, job, box(others=NPUS), "profile-fits")
    assert result.status == status
    assert "Ascend910" in result.evidence


@pytest.mark.parametrize(("needed", "status"), [("60GiB", "ok"), ("70GiB", "fail")])
def test_memory_of_npus_is_compared_with_what_the_job_needs(
    project: Project, needed: str, status: str
) -> None:
    job = TORCHRUN + f"profile: ascend910c\ngpus: [0, 1]\nneeds: {{gpu_memory: {needed}}}\n"
    assert run_check(project, job, box(others=NPUS), "gpu-memory").status == status


def test_a_quick_look_does_not_take_npus_that_it_did_not_ask_for_as_missing(
    project: Project,
) -> None:
    job = TORCHRUN + "profile: ascend910c\ngpus: [0, 1]\n"
    facts = from_probe("localhost", {"parts": {"cards": {"value": {"proc": {}, "said": {}}}}})
    assert run_check(project, job, facts, "gpu-count").status == "skip"
