"""Checks of room: memory, /dev/shm, disks, cores and limits, asked for by `needs:` or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.facts.check_cases import make_context, project_at, results_of
from support.facts.gpu_machines import A100, GIB, H100, L40S, MIB, RTX4090, T4, Replies, box, query

from safelaunch.config.resolve import Flags

if TYPE_CHECKING:
    from pathlib import Path

    from support.project import Project

TORCHRUN = "launcher: torchrun\nscript: train.py\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_at(tmp_path)


def run_checks(project: Project, job: str, facts: Any, *ids: str, **more: Any) -> list[Any]:
    answers = Replies(more.pop("answers", {}))
    return results_of(
        make_context(project, TORCHRUN + job, facts=facts, answers=answers, **more), *ids
    )


def run_check(project: Project, job: str, facts: Any, id: str) -> Any:  # noqa: A002
    (results,) = run_checks(project, job, facts, id)
    return results


def statuses(project: Project, job: str, facts: Any, *ids: str, **more: Any) -> list[str]:
    return [result.status for result in run_checks(project, job, facts, *ids, **more)]


# -- memory ----------------------------------------------------------------------------------------


def memory(total: int, available: int, limit: int | None = None) -> dict[str, Any]:
    meminfo = f"MemTotal: {total * GIB >> 10} kB\nMemAvailable: {available * GIB >> 10} kB\n"
    path = "/sys/fs/cgroup/memory.max"
    cgroup = {} if limit is None else {path: str(limit * GIB)}
    return box(A100, system={"meminfo": meminfo}, parts={"cgroup": cgroup})


@pytest.mark.parametrize(("facts", "status", "hint"), [
    (memory(128, 100), "ok", ""),
    (memory(128, 40), "warn", "ps aux"),
    (memory(48, 40), "fail", "`ram: 48GiB`"),
    (memory(128, 100, 32), "fail", "`ram: 32GiB`"),
    (memory(128, 100, 96), "ok", ""),
    (box(A100), "skip", ""),
])  # fmt: skip
def test_the_machine_or_its_container_has_the_memory(
    facts: dict[str, Any], status: str, hint: str, project: Project
) -> None:
    (result,) = run_checks(project, "processes: 1\nneeds: {ram: 64GiB}\n", facts, "memory")
    assert result.status == status
    assert hint in result.hint


def test_a_job_that_needs_nothing_is_reported_nothing(project: Project) -> None:
    assert run_checks(project, "processes: 1\n", memory(1, 1), "memory", "gpu-memory", "disk") == []


# -- /dev/shm --------------------------------------------------------------------------------------


def shm(total: int, free: int | None = None, container: str | None = None) -> dict[str, Any]:
    answers = {"path": "/dev/shm", "total": total, "free": total if free is None else free}
    return box(A100, A100, system={"container": container}, parts={"disk.shm": answers})


SHM = {
    "needs met": ("needs: {shm: 8GiB}\n", shm(16 * GIB), ["ok"]),
    "too small": ("needs: {shm: 8GiB}\n", shm(GIB), ["fail"]),
    "too full": ("needs: {shm: 8GiB}\n", shm(16 * GIB, GIB), ["warn"]),
    "docker's": ("", shm(64 * MIB), ["warn"]),
    "large": ("", shm(GIB), ["ok"]),
    "not known": ("", box(A100, A100), ["skip"]),
    "on the CPU": ("profile: cpu\n", shm(64 * MIB), []),
    "loaders on the CPU": ("profile: cpu\nargs: {num_workers: 4}\n", shm(64 * MIB), ["warn"]),
}


@pytest.mark.parametrize("what", SHM)
def test_shared_memory_is_looked_at(what: str, project: Project) -> None:
    job, facts, expected = SHM[what]
    assert statuses(project, "processes: 2\n" + job, facts, "shared-memory") == expected


def test_one_process_shares_nothing(project: Project) -> None:
    assert run_checks(project, "processes: 1\n", shm(64 * MIB), "shared-memory") == []


@pytest.mark.parametrize(
    ("container", "hint"),
    [
        ("docker", "start the container with `--shm-size=8g`"),
        (None, "sudo mount -o remount"),
    ],
)
def test_the_hint_is_for_where_the_job_runs(
    container: str | None, hint: str, project: Project
) -> None:
    facts = shm(64 * MIB, container=container)
    (result,) = run_checks(project, "processes: 2\nneeds: {shm: 8GiB}\n", facts, "shared-memory")
    assert hint in result.hint


# -- disks -----------------------------------------------------------------------------------------


def room(free: int, device: int = 1, folder: str = "/data") -> dict[str, Any]:
    return {"folder": folder, "writable": True, "free": free, "total": 1 << 50, "device": device}


def test_each_disk_that_is_written_to_has_the_room(project: Project) -> None:
    job = "processes: 1\nargs: {output_dir: /big/out, lr: 1}\nneeds: {disk: 200GiB}\n"
    workdir = ("room", str(project.folder))
    answers = {workdir: room(300 * GIB), ("room", "/big/out"): room(100 * GIB, 2, "/big")}
    results = run_checks(project, job, box(), "disk", answers=answers)
    assert [f.status for f in results] == ["fail", "ok"]
    assert results[0].evidence == "100GiB free in /big (output_dir), and `needs.disk` is 200GiB"
    same = {workdir: room(300 * GIB), ("room", "/big/out"): room(300 * GIB)}
    assert statuses(project, job, box(), "disk", answers=same) == ["ok"]


def test_the_folder_of_the_log_is_one_of_them(project: Project) -> None:
    job = "processes: 1\nlog: logs/{name}/{time}.log\nneeds: {disk: 1GiB}\n"
    answers = {
        ("room", str(project.folder)): room(2 * GIB),
        ("room", str(project.folder / "logs")): room(MIB, 2),
    }
    assert statuses(project, job, box(), "disk", answers=answers) == ["fail", "ok"]


def disks(**free: int | None) -> dict[str, Any]:
    """Return facts with this many bytes free; -1: no inode is."""
    return box(parts={
        f"disk.{name}": {
            "path": f"/{name}", "mount": f"/{name}", "source": name, "total": 1 << 40,
            "free": 5 * GIB if count == -1 else count, "inodes_free": 0 if count == -1 else 1000,
        }
        for name, count in free.items()
    })  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), [
    (disks(home=5 * GIB, cwd=5 * GIB, tmp=5 * GIB), []),
    (disks(home=0, cwd=5 * GIB), ["fail"]),
    (disks(home=-1), ["fail"]),
    (disks(cwd=MIB), ["warn"]),
    (disks(tmp=0), ["warn"]),
    (disks(tmp=-1), ["warn"]),
    (disks(tmp=None), []),
])  # fmt: skip
def test_full_disks_are_reported(
    facts: dict[str, Any], expected: list[str], project: Project
) -> None:
    assert statuses(project, "processes: 1\n", facts, "disks-full", is_quick=True) == expected


def test_what_is_reserved_for_root_is_no_bar_for_root(project: Project) -> None:
    facts = disks(home=0)
    facts["system"]["user"] = "root"
    assert statuses(project, "processes: 1\n", facts, "disks-full", is_quick=True) == ["warn"]
    facts = disks(home=-1)
    facts["system"]["user"] = "root"
    assert statuses(project, "processes: 1\n", facts, "disks-full", is_quick=True) == ["fail"]


def test_a_full_home_is_no_bar_where_runs_lie_elsewhere(project: Project) -> None:
    results = run_checks(project, "processes: 1\n", disks(home=0), "disks-full",
                    environ={"SAFELAUNCH_HOME": "/data/safelaunch"})  # fmt: skip
    assert [f.status for f in results] == ["warn"]


# -- cores and limits ------------------------------------------------------------------------------


@pytest.mark.parametrize(("usable", "job", "expected"), [
    (8, "processes: 8\n", ["ok"]),
    (4, "processes: 8\n", ["warn"]),
    (1, "processes: 1\n", []),
    (1, "gpus: auto\n", ["warn"]),
])  # fmt: skip
def test_each_rank_has_a_core(usable: int, job: str, expected: list[str], project: Project) -> None:
    facts = box(A100, A100, system={"usable_cores": usable})
    assert statuses(project, job, facts, "cores") == expected


def test_a_quota_is_reported_with_its_file(project: Project) -> None:
    path = "/sys/fs/cgroup/cpu.max"
    facts = box(A100, system={"usable_cores": 2}, parts={"cgroup": {path: "200000 100000"}})
    (result,) = run_checks(project, "processes: 4\n", facts, "cores")
    assert f"(quota of 2 in {path})" in result.evidence
    assert "--cpus=4" in result.hint
    flags = Flags(sets=("processes=2",))
    assert statuses(project, "processes: 4\n", facts, "cores", flags=flags) == ["ok"]


AREAL = """launcher: areal
version: "1"
script: train.py
"""


@pytest.mark.parametrize(("soft", "hard", "hint"), [
    (1024, 524288, "`setup: [ulimit -n 8192]`"),
    (1024, 4096, "/etc/security/limits.conf"),
    (65536, 65536, None),
    (-1, -1, None),
])  # fmt: skip
def test_ray_wants_many_files(soft: int, hard: int, hint: str | None, project: Project) -> None:
    facts = box(A100, system={"limits": {"files": [soft, hard]}})
    case = make_context(project, AREAL, facts=facts, answers=Replies())
    results = results_of(case, "limits")
    assert [f.status for f in results] == (["warn"] if hint else [])
    assert hint is None or hint in results[0].hint
    assert statuses(project, "processes: 1\n", facts, "limits") == []


@pytest.mark.parametrize(("locked", "devices", "env", "expected"), [
    (64 << 10, ["mlx5_0"], "", ["warn", "warn"]),
    (-1, ["mlx5_0"], "", []),
    (64 << 10, [], "", []),
    (64 << 10, ["mlx5_0"], "env: {NCCL_IB_DISABLE: 1}\n", []),
])  # fmt: skip
def test_rdma_between_nodes_wants_locked_memory(
    locked: int, devices: list[str], env: str, expected: list[str], project: Project
) -> None:
    network = {"infiniband": [{"name": name, "ports": []} for name in devices]}
    limits = {"limits": {"locked": [locked, locked]}}
    facts = box(A100, system=limits, parts={"network": network})
    job = "processes: 1\nhosts: [a, b]\n" + env
    assert statuses(project, job, facts, "limits") == expected
    assert statuses(project, "processes: 1\n" + env, facts, "limits") == []


# -- gpu-memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("needs", "cards", "status", "hint"), [
    ("24GiB", (RTX4090,), "ok", ""),  # sold with 24
    ("16GiB", (T4,), "ok", ""),
    ("48GiB", (L40S,), "ok", ""),
    ("80GiB", (H100,), "ok", ""),
    ("32GiB", (RTX4090,), "fail", "gpu_memory: 23GiB"),
    ("48GiB", (RTX4090, A100), "fail", "gpus=[1]"),
])  # fmt: skip
def test_each_gpu_has_the_memory_that_is_needed(
    needs: str, cards: Any, status: str, hint: str, project: Project
) -> None:
    job = f"processes: 1\nneeds: {{gpu_memory: {needs}}}\n"
    result = run_check(project, job, box(*cards), "gpu-memory")
    assert result.status == status
    assert hint in result.hint


def test_memory_that_others_hold_is_reported_with_their_names(project: Project) -> None:
    job = "gpus: [1]\nneeds: {gpu_memory: 60GiB}\n"
    row = "77, GPU-00000001, 40000 MiB, python\n"
    answers = {
        "query": query(A100, A100, used={1: 40000}),
        "apps": "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n" + row,
    }
    result = run_check(project, job, box(outputs=answers, users={"77": "ann"}), "gpu-memory")
    assert result.status == "warn"
    assert "python (pid 77, ann)" in result.evidence
    free = run_check(project, job.replace("[1]", "[0]"), box(outputs=answers), "gpu-memory")
    assert free.status == "ok"


def test_a_slice_has_the_memory_of_a_slice(project: Project) -> None:
    facts = box(H100, mig=(0,))
    facts["gpus"]["slices"] = [
        {"card": 0, "uuid": "MIG-a", "memory_mib": 40448},
        {"card": 0, "uuid": "MIG-b", "memory_mib": 9984},
    ]
    job = "gpus: [MIG-{}]\nneeds: {{gpu_memory: 20GiB}}\n"
    assert run_check(project, job.format("a"), facts, "gpu-memory").status == "ok"
    assert run_check(project, job.format("b"), facts, "gpu-memory").status == "fail"
