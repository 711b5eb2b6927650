"""Checks of the ways between GPUs, and of the cores near them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import L40S, Replies, box, matrix, other

from safelaunch.checks.hardware.cpu_binding import core_numbers
from safelaunch.runtime.facts import rare_questions

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

    from safelaunch.checks.registry import CheckResult

TORCHRUN = "launcher: torchrun\nscript: train.py\n"
TWO = "profile: l40s\nprocesses: 2\n"
KERNEL: dict[str, Any] = {
    "iommu": {},
    "options": [],
    "peer_modules": [],
    "modules_seen": True,
    "is_open": False,
    "imex": False,
    "imex_channels": 0,
    "cores": [0, 1, 2, 3],
}
TRANSLATED = {"0000:01:00.0": "DMA-FQ", "0000:02:00.0": "DMA-FQ"}
PEERS = {"peers": matrix(2, "OK"), "topology": matrix(2, "NODE")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_check(
    project: Project, job: str, check_id: str, facts: dict[str, Any], **kernel: Any
) -> list[CheckResult]:
    answers = Replies({("kernel",): {**KERNEL, **kernel}})
    context = make_context(project, TORCHRUN + job, facts=facts, answers=answers)
    return [result for result in results_of(context, check_id) if result.status != "skip"]


@pytest.mark.parametrize(
    ("job", "peers", "groups", "status"),
    [
        (TWO, "OK", TRANSLATED, ["warn"]),
        (TWO, "OK", dict.fromkeys(TRANSLATED, "identity"), ["ok"]),
        (TWO, "NS", TRANSLATED, []),  # no peer access: nothing goes that way
        (TWO, "OK", {}, []),  # a guest
        (TWO + "env: {NCCL_P2P_DISABLE: '1'}\n", "OK", TRANSLATED, []),
        ("profile: l40s\nprocesses: 1\n", "OK", TRANSLATED, []),
    ],
)
def test_an_iommu_between_gpus_is_named(
    job: str, peers: str, groups: dict[str, str], status: list[str], project: Project
) -> None:
    facts = box(L40S, L40S, outputs={**PEERS, "peers": matrix(2, peers)})
    assert [r.status for r in run_check(project, job, "iommu", facts, iommu=groups)] == status


def test_an_iommu_between_gpus_of_amd_is_named(project: Project) -> None:
    facts = box(others=other("rocm-smi", "rocm-id-mi300x"))
    job = "profile: mi300x\nprocesses: 2\n"
    [result] = run_check(project, job, "iommu", facts, iommu=TRANSLATED)
    assert (result.status, "iommu=pt" in result.hint) == ("warn", True)


def test_a_network_that_is_not_there_is_named(project: Project) -> None:
    job = TWO + "env: {NCCL_NET: IB}\n"
    card = {"network": {"infiniband": [{"name": "mlx5_0"}]}}
    for parts, status in ((None, "warn"), (card, "ok")):
        assert [
            r.status for r in run_check(project, job, "nccl-net", box(L40S, L40S, parts=parts))
        ] == [status]
    off = job.replace("IB}", "IB, NCCL_IB_DISABLE: '1'}")
    [result] = run_check(project, off, "nccl-net", box(L40S, L40S, parts=card))
    assert (result.status, result.hint) == ("warn", "remove one of them")


@pytest.mark.parametrize(
    ("system", "answer", "status"),
    [
        ({"kernel": "6.8.0-45-generic"}, {}, "warn"),
        ({"kernel": "6.8.0-45-generic"}, {"peer_modules": ["nvidia_peermem"]}, "ok"),
        ({"kernel": "6.8.0-45-generic"}, {"is_open": True}, "ok"),
        ({"kernel": "5.4.0-1-generic"}, {"is_open": True}, "warn"),
    ],
)
def test_rdma_that_does_not_read_gpu_memory_is_named(
    system: dict[str, str], answer: dict[str, Any], status: str, project: Project
) -> None:
    card = {"network": {"infiniband": [{"name": "mlx5_0"}]}}
    facts = box(L40S, L40S, system=system, parts=card)
    job = TWO + "hosts: [a, b]\n"
    answers = Replies({("kernel",): {**KERNEL, **answer}})
    context = make_context(project, TORCHRUN + job, facts=facts, answers=answers)
    assert {r.status for r in results_of(context, "gpudirect")} == {status}


def test_cores_far_from_the_gpus_are_named(project: Project) -> None:
    head = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    near = head + "GPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t4-7\t1\n"
    facts = box(L40S, L40S, outputs={"topology": near})
    [result] = run_check(project, TWO, "numa", facts)
    assert (result.status, "GPU 1 is near cores 4-7" in result.evidence) == ("warn", True)
    [result] = run_check(project, "profile: l40s\ngpus: [0]\n", "numa", facts)
    assert result.status == "ok"


def test_more_threads_than_cores_are_named(project: Project) -> None:
    facts = box(L40S, L40S, system={"usable_cores": 8})
    [result] = run_check(project, TWO + "env: {OMP_NUM_THREADS: 16}\n", "threads", facts)
    assert "is 32 threads on 8 usable cores" in result.evidence
    assert run_check(project, TWO + "env: {OMP_NUM_THREADS: 4}\n", "threads", facts) == []


def test_one_thread_for_each_rank_is_no_matter_of_threads(project: Project) -> None:
    facts = {"cores": {"usable": 1}}
    assert run_check(project, TWO + "env: {OMP_NUM_THREADS: 1}\n", "threads", facts) == []


def test_lists_of_cores_are_read() -> None:
    assert core_numbers("0-2,8") == {0, 1, 2, 8}
    assert core_numbers("N/A") == set()
    assert core_numbers("0-99999999") == set()


def test_the_kernel_is_read_from_its_files(tmp_path: Path) -> None:
    files = {
        "proc/cmdline": "root=/dev/sda1 intel_iommu=on quiet",
        "proc/modules": "nvidia_peermem 16384 0 - Live\nnvidia 1 2\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64",
        "proc/77/comm": "nvidia-imex\n",
        "dev/nvidia-caps-imex-channels/channel0": "",
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        "sys/bus/pci/devices/0000:01:00.0/iommu_group/type": "DMA\n",
        "sys/bus/pci/devices/0000:02:00.0/vendor": "0x8086\n",
        "sys/bus/pci/devices/0000:02:00.0/class": "0x030000\n",
        "sys/bus/pci/devices/0000:02:00.0/iommu_group/type": "DMA\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    answer = rare_questions.kernel("", str(tmp_path))
    answer.pop("cores")
    assert answer == {
        "iommu": {"0000:01:00.0": "DMA"},
        "options": ["intel_iommu=on"],
        "peer_modules": ["nvidia_peermem"],
        "modules_seen": True,
        "is_open": True,
        "imex": True,
        "imex_channels": 1,
    }
