"""Checks of how cards are and how they are joined: drivers, other users, precisions, fabrics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import (
    A100,
    H100,
    L40S,
    RECORDS,
    RTX4090,
    RTX5090,
    T4,
    Replies,
    box,
    matrix,
    query,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.registry import CheckResult

TORCHRUN = "launcher: torchrun\nscript: train.py\n"
A100S = TORCHRUN + "profile: a100-sxm\nprocesses: 2\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_checks(
    project: Project, job: str, facts: dict[str, Any], *ids: str, **more: Any
) -> list[Any]:
    answers = Replies(more.pop("answers", {}))
    return results_of(make_context(project, job, facts=facts, answers=answers, **more), *ids)


def run_check(
    project: Project, job: str, facts: dict[str, Any], check_id: str, **more: Any
) -> CheckResult:
    results = run_checks(project, job, facts, check_id, **more)
    assert len(results) == 1, results
    return results[0]  # type: ignore[no-any-return]


# -- gpu-driver ------------------------------------------------------------------------------------


def wrong(text: str, code: int = 255) -> dict[str, Any]:
    """Return facts of a machine on which nvidia-smi says only this."""
    return box(outputs={"query": {"text": text, "command": "nvidia-smi", "exit": code}})


TROUBLES = {
    "not running": ("err-driver-not-running-in-traceback", "fail", "sudo modprobe nvidia"),
    "mismatch": ("err-version-mismatch-470", "fail", "reboot; or"),
    "mismatch with a line": ("err-version-mismatch-with-nvml-line", "fail", "reboot; or"),
    "lost": ("err-gpu-lost-2019", "fail", "reboot the machine"),
    "unknown": ("err-nvml-unknown-container", "fail", "start the container again"),
}


@pytest.mark.parametrize("what", TROUBLES)
def test_what_bars_cuda_fails_and_says_what_to_do(what: str, project: Project) -> None:
    record, status, hint = TROUBLES[what]
    facts = wrong(RECORDS[record]["text"])
    result = run_check(project, A100S, facts, "gpu-driver")
    assert result.status == status
    assert result.hint.startswith(hint) or hint in result.hint
    assert result.source
    # a job that may run on the CPU is warned, and one that does is not
    assert run_check(project, TORCHRUN + "processes: 2\n", facts, "gpu-driver").status == "warn"
    assert run_checks(project, TORCHRUN + "profile: cpu\nprocesses: 2\n", facts, "gpu-driver") == []


@pytest.mark.parametrize(
    "text", ["NVML: Insufficient Permissions", "couldn't find libnvidia-ml.so"]
)
def test_what_only_nvidia_smi_stumbles_over_warns(text: str, project: Project) -> None:
    assert run_check(project, A100S, wrong(text), "gpu-driver").status == "warn"


def test_nvidia_smi_that_hangs_is_reported_with_what_to_do(project: Project) -> None:
    hanging = {"text": "", "why": "it did not end within 10 s, and cannot be killed (state D)"}
    result = run_check(project, A100S, box(outputs={"query": hanging}), "gpu-driver")
    assert result.status == "warn"
    assert "state D" in result.evidence
    assert "reboot" in result.hint


def test_a_lost_gpu_bars_only_jobs_that_take_it(project: Project) -> None:
    text = query(A100, A100) + "Unable to determine the device handle for GPU2: 0000:41:00.0: "
    facts = box(outputs={"query": text + "GPU is lost.  Reboot the system to recover this GPU\n"})
    assert run_check(project, A100S, facts, "gpu-driver").status == "fail"
    others = TORCHRUN + "profile: a100-sxm\ngpus: [0, 1]\n"
    assert run_check(project, others, facts, "gpu-driver").status == "warn"


def test_a_gpu_that_tells_less_than_the_others_is_named(project: Project) -> None:
    text = query(A100, A100).replace("1, NVIDIA A100-SXM4-80GB", "1, ERR!")
    results = run_checks(project, A100S, box(outputs={"query": text}), "gpu-driver")
    assert [f.evidence.split(" (")[0] for f in results if f.status == "warn"] == [
        "GPU 1 reports no name"
    ]


def test_a_driver_that_passes_is_named(project: Project) -> None:
    result = run_check(project, A100S, box(A100, A100), "gpu-driver")
    assert (result.status, result.evidence) == ("ok", "driver 570.86.10: 2 x NVIDIA A100-SXM4-80GB")


# -- gpu-processes ---------------------------------------------------------------------------------

APPS = "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n"


def used_gpus(*rows: str, cards: int = 2) -> dict[str, Any]:
    output = {"query": query(*[A100] * cards), "apps": APPS + "".join(row + "\n" for row in rows)}
    return box(outputs=output, users={"77": "ann", "78": "me"})


def test_processes_of_others_are_named_and_left_alone(project: Project) -> None:
    rows = ("77, GPU-00000001, 40000 MiB, /opt/bin/python", "78, GPU-00000001, 10 MiB, python")
    result = run_check(project, A100S, used_gpus(*rows), "gpu-processes")
    assert result.status == "warn"
    ann, me = result.evidence.removeprefix("other processes: ").split("; ")
    assert ann == "GPU 1: python (pid 77, ann, 40000 MiB)"
    assert me == "GPU 1: python (pid 78, you, 10 MiB)"
    assert "never ends a process of others" in result.hint
    more = run_check(project, A100S, used_gpus(*rows, cards=3), "gpu-processes")
    assert more.hint == "`--set 'gpus=[0, 2]'` uses free GPUs"


def test_processes_on_other_gpus_are_no_matter(project: Project) -> None:
    facts = used_gpus("77, GPU-00000001, 40000 MiB, python", cards=3)
    job = TORCHRUN + "profile: a100-sxm\ngpus: [0, 2]\n"
    assert run_check(project, job, facts, "gpu-processes").status == "ok"
    assert run_check(project, A100S, box(A100, A100), "gpu-processes").status == "skip"


# -- gpu-sets --------------------------------------------------------------------------------------


def live_runs(cards: str | None) -> dict[tuple[Any, ...], Any]:
    env = {} if cards is None else {"CUDA_VISIBLE_DEVICES": {"value": cards}}
    plan = {"nodes": [{"node_rank": 0, "env": env}]}
    return {
        ("runs",): {"live": [{"id": "server-1", "node": "node-0", "name": "server", "plan": plan}]}
    }


@pytest.mark.parametrize(("theirs", "job", "clash"), [
    ("0", "gpus: [0, 1]\n", "0"),
    ("0", "profile: a100\nprocesses: 2\n", "0"),
    ("0", "gpus: [1, 2]\n", None),
    ("0", "processes: 2\n", None),  # nothing says that it wants cards
    ("0", "profile: cpu\nprocesses: 2\n", None),
    ("", "gpus: [0]\n", None),
    (None, "gpus: [0]\n", None),
])  # fmt: skip
def test_a_live_run_on_the_same_gpus_is_named(
    theirs: str | None, job: str, clash: str | None, project: Project
) -> None:
    results = run_checks(
        project, TORCHRUN + job, {}, "gpu-sets", answers=live_runs(theirs), is_quick=True
    )
    assert [f.status for f in results] == (["warn"] if clash else [])
    assert clash is None or f"`server` (server-1) has {clash}" in results[0].evidence


def test_gpus_that_no_run_has_are_named(project: Project) -> None:
    job, facts = TORCHRUN + "gpus: [GPU-00000000, GPU-00000001]\n", box(*[A100] * 4)
    result = run_check(project, job, facts, "gpu-sets", answers=live_runs("1"))
    assert "uses GPUs 0, 1, and the live run `server` (server-1) has 1" in result.evidence
    assert result.hint == "`--set 'gpus=[0, 2]'` uses other GPUs"
    assert (
        run_checks(project, TORCHRUN + "gpus: [0, 2]\n", facts, "gpu-sets", answers=live_runs("1"))
        == []
    )


@pytest.mark.parametrize("plan", [None, {}, {"nodes": None}, {"nodes": [{"node_rank": 0}]}, []])
def test_a_run_whose_plan_is_broken_clashes_with_nothing(plan: Any, project: Project) -> None:
    answers = {("runs",): {"live": [{"id": "x", "node": "node-0", "name": None, "plan": plan}]}}
    assert run_checks(project, TORCHRUN + "gpus: [0]\n", {}, "gpu-sets", answers=answers) == []


# -- gpu-engine ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("job", "status"), [
    ("processes: 3\nargs: {vllm_device: auto}\n", "ok"),
    ("processes: 4\nargs: {vllm_device: auto}\n", "warn"),
    ("processes: 3\nargs: [--vllm-device, 'cuda:3']\n", "ok"),
    ("processes: 3\nargs: {vllm_device: 'cuda:2'}\n", "warn"),
    ("processes: 3\nargs: {vllm_device: 'cuda:4'}\n", "warn"),
    ("gpus: [1, 2, 3]\nargs: {vllm_mode: server, vllm_server_host: 127.0.0.1}\n", "ok"),
    ("processes: 4\nargs: {vllm_mode: server, vllm_server_host: 127.0.0.1}\n", "warn"),
    ("processes: 4\nargs: {vllm_mode: server, vllm_server_host: gpu2}\n", None),
    ("processes: 4\nargs: {vllm_mode: colocate}\n", None),
])  # fmt: skip
def test_an_engine_has_gpus_of_its_own(job: str, status: str | None, project: Project) -> None:
    results = run_checks(project, TORCHRUN + job, box(*[A100] * 4), "gpu-engine")
    assert [f.status for f in results] == ([status] if status else [])


# -- precision -------------------------------------------------------------------------------------

ACCELERATE = "launcher: accelerate\nscript: train.py\nprocesses: 1\n"


@pytest.mark.parametrize(("job", "card", "hint"), [
    ("mixed_precision: bf16\n", A100, None),
    ("mixed_precision: bf16\n", T4, "`--set mixed_precision=fp16`"),
    ("mixed_precision: fp16\n", T4, ""),
    ("mixed_precision: fp8\n", A100, "`--set mixed_precision=bf16`"),
    ("mixed_precision: fp8\n", T4, "`--set mixed_precision=fp16`"),
    ("mixed_precision: fp8\n", RTX4090, None),
    ("args: {bf16: true}\n", T4, "`--set args.bf16=null --set args.fp16=true`"),
    ("args: {bf16: true}\n", H100, None),
    ("args: {torch_dtype: bfloat16}\n", T4, "`--set args.torch_dtype=float16`"),
    ("args: [--bf16]\n", T4, "give the program fp16 in place of `--bf16`"),
    ("args: {bf16: false}\n", T4, ""),
    ("args: {tf32: true}\n", T4, "remove `--tf32`"),
    ("args: {tf32: true}\n", A100, None),
    ("args: {attn_implementation: flash_attention_2}\n", T4,
     "`sdpa` in place of `--attn_implementation flash_attention_2`"),
    ("args: {attn_implementation: flash_attention_2}\n", A100, None),
    ("args: {attn_implementation: flash_attention_3}\n", A100,
     "`sdpa` in place of `--attn_implementation flash_attention_3`"),
    ("args: {attn_implementation: sdpa}\n", T4, ""),
])  # fmt: skip
def test_a_precision_wants_gpus_that_have_it(
    job: str, card: tuple[str, int, str], hint: str | None, project: Project
) -> None:
    results = run_checks(project, ACCELERATE + job, box(card), "precision")
    statuses = [] if hint == "" else ["ok" if hint is None else "warn"]
    assert [f.status for f in results] == statuses
    assert not hint or results[0].hint == hint


def test_a_capability_that_is_not_known_is_no_finding(project: Project) -> None:
    facts = box(T4, proc=True)
    assert (
        run_check(project, ACCELERATE + "mixed_precision: bf16\n", facts, "precision").status
        == "skip"
    )


# -- fabric-manager --------------------------------------------------------------------------------


@pytest.mark.parametrize(("manager", "system", "job", "status"), [
    ({"switches": 6, "running": True}, {}, A100S, "ok"),
    ({"switches": 6, "running": False}, {}, A100S, "fail"),
    ({"switches": 6, "running": False}, {}, TORCHRUN + "processes: 2\n", "warn"),
    ({"switches": 6, "running": False}, {"container": "docker"}, A100S, "skip"),
    ({"switches": 0, "running": False}, {}, A100S, None),
    ({"switches": 6, "running": False}, {}, TORCHRUN + "profile: cpu\nprocesses: 2\n", None),
])  # fmt: skip
def test_nvswitches_want_their_manager(
    manager: dict[str, Any],
    system: dict[str, Any],
    job: str,
    status: str | None,
    project: Project,
) -> None:
    facts = box(A100, A100, fabric_manager=manager, system=system)
    results = run_checks(project, job, facts, "fabric-manager")
    assert [f.status for f in results] == ([status] if status else [])
    assert status != "fail" or "of version 570.86.10 as the driver" in results[0].hint


# -- nvlink, peer-access ---------------------------------------------------------------------------


def linked_gpus(link: str, peers: str, *cards: tuple[str, int, str], **more: str) -> dict[str, Any]:
    size = len(cards)
    output = {"query": query(*cards), "topology": matrix(size, link), "peers": matrix(size, peers)}
    return box(outputs={**output, **more})


def test_links_of_other_gpus_than_the_profiles_are_not_missed(project: Project) -> None:
    job = TORCHRUN + "profile: h100\nprocesses: 2\n"
    facts = linked_gpus("PHB", "GNS", RTX4090, RTX4090)
    assert [each.status for each in run_checks(project, job, facts, "profile-fits")] == ["warn"]
    assert run_check(project, job, facts, "nvlink").status == "ok"


def test_a_profile_with_nvlink_is_reported_where_there_is_none(project: Project) -> None:
    job = TORCHRUN + "profile: h100\nprocesses: 2\n"
    assert run_check(project, job, linked_gpus("PHB", "OK", H100, H100), "nvlink").status == "warn"
    assert run_check(project, job, linked_gpus("NV18", "OK", H100, H100), "nvlink").status == "ok"
    other = TORCHRUN + "profile: rtx4090\nprocesses: 2\n"
    assert (
        run_check(project, other, linked_gpus("PHB", "GNS", RTX4090, RTX4090), "nvlink").status
        == "ok"
    )


def test_a_gpu_with_fewer_links_than_the_others_is_named(project: Project) -> None:
    text = RECORDS["nvlink-v100x8-six-links"]["text"]
    whole = linked_gpus("NV6", "OK", *[A100] * 8, links=text)
    job = TORCHRUN + "profile: a100-sxm\ngpus: auto\n"
    assert run_check(project, job, whole, "nvlink").status == "ok"
    lines = text.splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if "Link" in line)
    broken = linked_gpus("NV6", "OK", *[A100] * 8, links="".join(lines[:last] + lines[last + 1 :]))
    result = run_check(project, job, broken, "nvlink")
    assert result.evidence == "GPU 7 has 5 of 6 NVLinks up"


def link_errors(*recoveries: int) -> str:
    """Return `nvidia-smi nvlink -e` of GPUs with one link, as stas00/ml-engineering shows it."""
    return "".join(
        f"GPU {at}: {A100[0]} (UUID: GPU-{at:08d})\n\t Link 0: Replay Errors: 3\n"
        f"\t Link 0: Recovery Errors: {count}\n\t Link 0: CRC Errors: 5\n\n"
        for at, count in enumerate(recoveries)
    )


def test_links_that_recovered_from_errors_are_named(project: Project) -> None:
    job = TORCHRUN + "profile: a100-sxm\ngpus: auto\n"
    links = "".join(f"GPU {at}: {A100[0]}\n\t Link 0: 25 GB/s\n" for at in range(2))
    linked = partial(linked_gpus, "NV1", "OK", A100, A100, links=links)
    assert run_check(project, job, linked(link_errors=link_errors(0, 0)), "nvlink").status == "ok"
    result = run_check(project, job, linked(link_errors=link_errors(0, 2)), "nvlink")
    assert result.status == "warn"
    assert result.evidence.endswith("(GPU 1: 2)")


def test_peer_access_that_is_switched_off_for_nothing_is_reported(project: Project) -> None:
    job = TORCHRUN + "profile: rtx5090\nprocesses: 2\n"
    result = run_check(project, job, linked_gpus("PHB", "OK", RTX5090, RTX5090), "peer-access")
    assert result.status == "warn"
    assert "`--no-workarounds`, or `env: {NCCL_P2P_DISABLE: null}`" in result.hint
    cured = job + "env: {NCCL_P2P_DISABLE: null}\n"
    assert (
        run_check(project, cured, linked_gpus("PHB", "OK", RTX5090, RTX5090), "peer-access").status
        == "ok"
    )
    assert (
        run_check(project, job, linked_gpus("PHB", "GNS", RTX5090, RTX5090), "peer-access").status
        == "ok"
    )


@pytest.mark.parametrize("record", ["p2p-8gpu-pcie-read-ok", "p2p-h100x8-all-ok"])
def test_recorded_peer_access_is_compared_with_the_jobs_switch(
    record: str, project: Project
) -> None:
    facts = box(outputs={"query": query(*[L40S] * 8), "peers": RECORDS[record]["text"]})
    job = TORCHRUN + "gpus: auto\n"
    assert (
        run_check(project, job, facts, "peer-access").evidence
        == "all 28 pairs of GPUs have peer access"
    )
    off = run_check(project, job + "env: {NCCL_P2P_DISABLE: 1}\n", facts, "peer-access")
    assert off.status == "warn"
    assert "workarounds" not in off.hint


def test_a_single_gpu_is_joined_to_nothing(project: Project) -> None:
    job = TORCHRUN + "profile: h100\nprocesses: 1\n"
    facts = linked_gpus("PHB", "OK", H100, H100)
    assert run_checks(project, job, facts, "nvlink", "peer-access") == []
