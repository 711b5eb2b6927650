"""Checks of how cards are and how they are joined: drivers, other users, precisions, fabrics."""

from __future__ import annotations

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
    Known,
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


def results(project: Project, job: str, facts: dict[str, Any], *ids: str, **more: Any) -> list[Any]:
    answers = Known(more.pop("answers", {}))
    return results_of(make_context(project, job, facts=facts, answers=answers, **more), *ids)


def one(project: Project, job: str, facts: dict[str, Any], id: str, **more: Any) -> CheckResult:  # noqa: A002
    found = results(project, job, facts, id, **more)
    assert len(found) == 1, found
    return found[0]  # type: ignore[no-any-return]


# -- gpu-driver ------------------------------------------------------------------------------------


def wrong(text: str, code: int = 255) -> dict[str, Any]:
    """Return facts of a machine on which nvidia-smi says only this."""
    return box(said={"query": {"text": text, "command": "nvidia-smi", "exit": code}})


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
    found = one(project, A100S, facts, "gpu-driver")
    assert found.status == status
    assert found.hint.startswith(hint) or hint in found.hint
    assert found.source
    # a job that may run on the CPU is warned, and one that does is not
    assert one(project, TORCHRUN + "processes: 2\n", facts, "gpu-driver").status == "warn"
    assert results(project, TORCHRUN + "profile: cpu\nprocesses: 2\n", facts, "gpu-driver") == []


@pytest.mark.parametrize(
    "text", ["NVML: Insufficient Permissions", "couldn't find libnvidia-ml.so"]
)
def test_what_only_nvidia_smi_stumbles_over_warns(text: str, project: Project) -> None:
    assert one(project, A100S, wrong(text), "gpu-driver").status == "warn"


def test_nvidia_smi_that_hangs_is_told_with_what_to_do(project: Project) -> None:
    hanging = {"text": "", "why": "it did not end within 10 s, and cannot be killed (state D)"}
    found = one(project, A100S, box(said={"query": hanging}), "gpu-driver")
    assert found.status == "warn"
    assert "state D" in found.evidence
    assert "reboot" in found.hint


def test_a_lost_card_bars_only_jobs_that_take_it(project: Project) -> None:
    text = query(A100, A100) + "Unable to determine the device handle for GPU2: 0000:41:00.0: "
    facts = box(said={"query": text + "GPU is lost.  Reboot the system to recover this GPU\n"})
    assert one(project, A100S, facts, "gpu-driver").status == "fail"
    others = TORCHRUN + "profile: a100-sxm\ngpus: [0, 1]\n"
    assert one(project, others, facts, "gpu-driver").status == "warn"


def test_a_card_that_tells_less_than_the_others_is_named(project: Project) -> None:
    text = query(A100, A100).replace("1, NVIDIA A100-SXM4-80GB", "1, ERR!")
    found = results(project, A100S, box(said={"query": text}), "gpu-driver")
    assert [f.evidence.split(" (")[0] for f in found if f.status == "warn"] == [
        "GPU 1 reports no name"
    ]


def test_a_driver_that_is_well_is_named(project: Project) -> None:
    found = one(project, A100S, box(A100, A100), "gpu-driver")
    assert (found.status, found.evidence) == ("ok", "driver 570.86.10: 2 x NVIDIA A100-SXM4-80GB")


# -- gpu-processes ---------------------------------------------------------------------------------

APPS = "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n"


def used(*rows: str, cards: int = 2) -> dict[str, Any]:
    output = {"query": query(*[A100] * cards), "apps": APPS + "".join(row + "\n" for row in rows)}
    return box(said=output, users={"77": "ann", "78": "me"})


def test_processes_of_others_are_named_and_left_alone(project: Project) -> None:
    rows = ("77, GPU-00000001, 40000 MiB, /opt/bin/python", "78, GPU-00000001, 10 MiB, python")
    found = one(project, A100S, used(*rows), "gpu-processes")
    assert found.status == "warn"
    ann, me = found.evidence.removeprefix("other processes: ").split("; ")
    assert ann == "GPU 1: python (pid 77, ann, 40000 MiB)"
    assert me == "GPU 1: python (pid 78, you, 10 MiB)"
    assert "never ends a process of others" in found.hint
    more = one(project, A100S, used(*rows, cards=3), "gpu-processes")
    assert more.hint == "`--set 'gpus=[0, 2]'` uses free GPUs"


def test_processes_on_other_cards_are_no_matter(project: Project) -> None:
    facts = used("77, GPU-00000001, 40000 MiB, python", cards=3)
    job = TORCHRUN + "profile: a100-sxm\ngpus: [0, 2]\n"
    assert one(project, job, facts, "gpu-processes").status == "ok"
    assert one(project, A100S, box(A100, A100), "gpu-processes").status == "skip"


# -- gpu-sets --------------------------------------------------------------------------------------


def live(cards: str | None) -> dict[tuple[Any, ...], Any]:
    env = {} if cards is None else {"CUDA_VISIBLE_DEVICES": {"value": cards}}
    plan = {"nodes": [{"node_rank": 0, "env": env}]}
    return {("runs",): [{"id": "server-1", "node": "node-0", "name": "server", "plan": plan}]}


@pytest.mark.parametrize(("theirs", "job", "clash"), [
    ("0", "gpus: [0, 1]\n", "0"),
    ("0", "profile: a100\nprocesses: 2\n", "0"),
    ("0", "gpus: [1, 2]\n", None),
    ("0", "processes: 2\n", None),  # nothing says that it wants cards
    ("0", "profile: cpu\nprocesses: 2\n", None),
    ("", "gpus: [0]\n", None),
    (None, "gpus: [0]\n", None),
])  # fmt: skip
def test_a_live_run_on_the_same_cards_is_named(
    theirs: str | None, job: str, clash: str | None, project: Project
) -> None:
    found = results(project, TORCHRUN + job, {}, "gpu-sets", answers=live(theirs), is_quick=True)
    assert [f.status for f in found] == (["warn"] if clash else [])
    assert clash is None or f"`server` (server-1) has {clash}" in found[0].evidence


def test_cards_that_no_run_has_are_named(project: Project) -> None:
    job, facts = TORCHRUN + "gpus: [GPU-00000000, GPU-00000001]\n", box(*[A100] * 4)
    found = one(project, job, facts, "gpu-sets", answers=live("1"))
    assert "uses GPUs 0, 1, and the live run `server` (server-1) has 1" in found.evidence
    assert found.hint == "`--set 'gpus=[0, 2]'` uses other GPUs"
    assert results(project, TORCHRUN + "gpus: [0, 2]\n", facts, "gpu-sets", answers=live("1")) == []


@pytest.mark.parametrize("plan", [None, {}, {"nodes": None}, {"nodes": [{"node_rank": 0}]}, []])
def test_a_run_whose_plan_is_broken_clashes_with_nothing(plan: Any, project: Project) -> None:
    answers = {("runs",): [{"id": "x", "node": "node-0", "name": None, "plan": plan}]}
    assert results(project, TORCHRUN + "gpus: [0]\n", {}, "gpu-sets", answers=answers) == []


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
def test_an_engine_has_cards_of_its_own(job: str, status: str | None, project: Project) -> None:
    found = results(project, TORCHRUN + job, box(*[A100] * 4), "gpu-engine")
    assert [f.status for f in found] == ([status] if status else [])


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
])  # fmt: skip
def test_a_precision_wants_cards_that_have_it(
    job: str, card: tuple[str, int, str], hint: str | None, project: Project
) -> None:
    found = results(project, ACCELERATE + job, box(card), "precision")
    statuses = [] if hint == "" else ["ok" if hint is None else "warn"]
    assert [f.status for f in found] == statuses
    assert not hint or found[0].hint == hint


def test_a_capability_that_is_not_known_is_no_finding(project: Project) -> None:
    facts = box(T4, proc=True)
    assert one(project, ACCELERATE + "mixed_precision: bf16\n", facts, "precision").status == "skip"


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
    found = results(project, job, facts, "fabric-manager")
    assert [f.status for f in found] == ([status] if status else [])
    assert status != "fail" or "of version 570.86.10 as the driver" in found[0].hint


# -- nvlink, peer-access ---------------------------------------------------------------------------


def joined(link: str, peers: str, *cards: tuple[str, int, str], **more: str) -> dict[str, Any]:
    size = len(cards)
    output = {"query": query(*cards), "topology": matrix(size, link), "peers": matrix(size, peers)}
    return box(said={**output, **more})


def test_links_of_other_cards_than_the_profiles_are_not_missed(project: Project) -> None:
    job = TORCHRUN + "profile: h100\nprocesses: 2\n"
    facts = joined("PHB", "GNS", RTX4090, RTX4090)
    assert [each.status for each in results(project, job, facts, "profile-fits")] == ["warn"]
    assert one(project, job, facts, "nvlink").status == "ok"


def test_a_profile_with_nvlink_is_told_where_there_is_none(project: Project) -> None:
    job = TORCHRUN + "profile: h100\nprocesses: 2\n"
    assert one(project, job, joined("PHB", "OK", H100, H100), "nvlink").status == "warn"
    assert one(project, job, joined("NV18", "OK", H100, H100), "nvlink").status == "ok"
    other = TORCHRUN + "profile: rtx4090\nprocesses: 2\n"
    assert one(project, other, joined("PHB", "GNS", RTX4090, RTX4090), "nvlink").status == "ok"


def test_a_card_with_fewer_links_than_the_others_is_named(project: Project) -> None:
    text = RECORDS["nvlink-v100x8-six-links"]["text"]
    whole = joined("NV6", "OK", *[A100] * 8, links=text)
    job = TORCHRUN + "profile: a100-sxm\ngpus: auto\n"
    assert one(project, job, whole, "nvlink").status == "ok"
    lines = text.splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if "Link" in line)
    broken = joined("NV6", "OK", *[A100] * 8, links="".join(lines[:last] + lines[last + 1 :]))
    found = one(project, job, broken, "nvlink")
    assert found.evidence == "GPU 7 has 5 of 6 NVLinks up"


def test_peer_access_that_is_switched_off_for_nothing_is_told(project: Project) -> None:
    job = TORCHRUN + "profile: rtx5090\nprocesses: 2\n"
    found = one(project, job, joined("PHB", "OK", RTX5090, RTX5090), "peer-access")
    assert found.status == "warn"
    assert "`--no-workarounds`, or `env: {NCCL_P2P_DISABLE: null}`" in found.hint
    cured = job + "env: {NCCL_P2P_DISABLE: null}\n"
    assert one(project, cured, joined("PHB", "OK", RTX5090, RTX5090), "peer-access").status == "ok"
    assert one(project, job, joined("PHB", "GNS", RTX5090, RTX5090), "peer-access").status == "ok"


@pytest.mark.parametrize("record", ["p2p-8gpu-pcie-read-ok", "p2p-h100x8-all-ok"])
def test_recorded_peer_access_is_compared_with_the_jobs_switch(
    record: str, project: Project
) -> None:
    facts = box(said={"query": query(*[L40S] * 8), "peers": RECORDS[record]["text"]})
    job = TORCHRUN + "gpus: auto\n"
    assert (
        one(project, job, facts, "peer-access").evidence == "all 28 pairs of GPUs have peer access"
    )
    off = one(project, job + "env: {NCCL_P2P_DISABLE: 1}\n", facts, "peer-access")
    assert off.status == "warn"
    assert "workarounds" not in off.hint


def test_a_single_card_is_joined_to_nothing(project: Project) -> None:
    job = TORCHRUN + "profile: h100\nprocesses: 1\n"
    facts = joined("PHB", "OK", H100, H100)
    assert results(project, job, facts, "nvlink", "peer-access") == []
