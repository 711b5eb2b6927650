"""Checks memory, disks and cores: what `needs:` asks for, and what every start requires."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.runtime.start.accelerators import split_words
from safelaunch.runtime.units import job_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext
    from safelaunch.checks.visible_gpus import Gpu

_MIB, _GIB = 1 << 20, 1 << 30
# the driver shows less than a GPU is sold with: of some a sixteenth is for ECC (recorded: 15360 of
# 16384 MiB of a T4, 46068 of 49152 MiB of an L40S)
_USABLE = 0.93
_SHM = "/dev/shm"  # noqa: S108 - the file system
_DOCKER_SHM = 64 * _MIB  # docker run, --shm-size
_NCCL_SHM = "NCCL user guide, troubleshooting, shared memory"
_OUTPUTS = ("output_dir", "output_path", "save_dir", "save_path", "ckpt_path", "logging_dir",
            "fileroot", "cluster.fileroot")  # fmt: skip
_WORKERS = ("num_workers", "dataloader_num_workers")


@check("gpu-memory", needs=("gpus",))
def gpu_memory(host: HostContext) -> Answer | None:
    """Whether each GPU has the memory of `needs`, and has it free."""
    needed = host.job.needs.gpu_memory
    if needed is None or not visible_gpus.has_devices(host):
        return None
    sizes = [(_memory(host, gpu), gpu) for gpu in visible_gpus.visible(host).gpus]
    totals = [(size, gpu) for size, gpu in sizes if size is not None]
    if not totals:
        raise NotKnown("the memory of the GPUs is not known")
    least, gpu = min(totals, key=lambda total: total[0])
    if least < needed * _USABLE:
        return fail(
            f"GPU {gpu['index']} ({gpu['name']}) has {job_size(least)}, and "
            f"`needs.gpu_memory` is {job_size(needed)}",
            _larger_gpus(host, needed)
            or f"larger GPUs, or a smaller batch and `gpu_memory: {_whole(least)}`",
        )
    for total, gpu in totals:
        free = total - (gpu["used_mib"] or 0) * _MIB
        if gpu["used_mib"] and free < needed * _USABLE:
            return warn(
                f"GPU {gpu['index']} has {job_size(max(free, 0))} free of {job_size(needed)} that "
                f"are needed: {_processes(host, gpu['index'])}",
                "wait until they end, or use other GPUs with `gpus:`; safelaunch never ends a "
                "process of others",
            )
    return ok(f"{job_size(least)} on each GPU")


def _memory(host: HostContext, gpu: Gpu) -> int | None:
    """Return the bytes of a GPU, or of the smallest slice of it that the job may get."""
    if not gpu.get("mig"):
        return None if gpu["memory_mib"] is None else gpu["memory_mib"] * _MIB
    words = split_words(visible_gpus.visible_devices(host)[0] or "")
    named = tuple(word for word in words if word.startswith("MIG-"))
    sizes = [
        piece["memory_mib"]
        for piece in host.get("gpus", "slices") or ()
        if piece["card"] == gpu["index"]
        and piece["memory_mib"] is not None
        and (not named or str(piece["uuid"]).startswith(named))
    ]
    return min(sizes) * _MIB if sizes else None


def _larger_gpus(host: HostContext, needed: int) -> str | None:
    """Return the option for GPUs that are large enough; None where too few are."""
    large = [
        gpu
        for gpu in visible_gpus.all_gpus(host)
        if (_memory(host, gpu) or 0) >= needed * _USABLE and not gpu.get("mig")
    ]
    count = max(visible_gpus.ranks(host, visible_gpus.visible(host)), 1)
    return f"`--set 'gpus={visible_gpus.indices(large[:count])}'`" if len(large) >= count else None


def _processes(host: HostContext, index: int) -> str:
    processes = [
        f"{p['name'] or 'unknown'} (pid {p['pid']}, {p['user'] or '?'})"
        for p in host.get("gpus", "processes") or ()
        if p["card"] == index
    ]
    return ", ".join(processes[:3]) or "the processes that use the rest are not known"


def _whole(size: int) -> str:
    return f"{size // _GIB}GiB" if size >= _GIB else f"{size // _MIB}MiB"


@check("memory", needs=("memory",), quick=True)
def memory(host: HostContext) -> Answer | None:
    """Whether the machine, or its container, has the memory of `needs`."""
    needed = host.job.needs.ram
    if needed is None:
        return None
    facts = host.fact("memory")
    total, limit, free = facts.get("total"), facts.get("limit"), facts.get("available")
    if total is None and limit is None:
        raise NotKnown("the memory of the machine is not known")
    if limit is not None and limit < needed:
        return fail(
            f"the cgroup allows {job_size(limit)} ({facts.get('limit_from')}), and `needs.ram` is "
            f"{job_size(needed)}",
            f"raise it (`docker run --memory`, the scheduler's `--mem`), or `ram: {_whole(limit)}` "
            "under `needs` if that is enough",
        )
    if total is not None and total < needed:
        return fail(
            f"the machine has {job_size(total)}, and `needs.ram` is {job_size(needed)}",
            f"another machine, or `ram: {_whole(total)}` under `needs` if that is enough",
        )
    if free is not None and free < needed:
        return warn(
            f"{job_size(free)} of {job_size(needed)} that are needed are free",
            "`ps aux --sort=-rss | head` shows what uses it; wait, or end your own processes",
        )
    return ok(f"{job_size(free if free is not None else total)} free")


@check("shared-memory", quick=True, source=_NCCL_SHM)
def shared_memory(host: HostContext) -> Answer | None:
    """Whether /dev/shm has the space of `needs`, or more than Docker's default."""
    needed = host.job.needs.shm
    if needed is None and not _shares_memory(host):
        return None
    disk = host.fact("disks", "shm")
    total, free = disk.get("total"), disk.get("free")
    if total is None or free is None:
        raise NotKnown("the space in /dev/shm is not known")
    if needed is not None and total < needed:
        evidence = f"{_SHM} has {job_size(total)}, and `needs.shm` is {job_size(needed)}"
        return fail(evidence, _enlarge(host, needed))
    if needed is not None and free < needed:
        return warn(
            f"{_SHM} has {job_size(free)} free of {job_size(needed)} that are needed",
            "`ls -la /dev/shm`: remove what ended runs left there (nccl-*, torch_*)",
        )
    if needed is None and total <= _DOCKER_SHM:
        evidence = f"{_SHM} has {job_size(total)}: NCCL and data loaders share memory there"
        return warn(evidence, _enlarge(host, _GIB))
    return ok(f"{job_size(free)} free in /dev/shm")


def _shares_memory(host: HostContext) -> bool:
    """Whether the job has processes that share memory: ranks on GPUs, or data loaders."""
    several = host.plan.processes is None or host.plan.processes > 1
    if several and visible_gpus.needs_device(host) is not False:
        return True
    workers = job_options.first_value(job_options.options(host.job), *_WORKERS)
    return workers not in (None, "0", "1")


def _enlarge(host: HostContext, size: int) -> str:
    gib = max(-(-size // _GIB), 1)
    if host.get("system", "container"):
        return f"start the container with `--shm-size={gib}g` or `--ipc=host`"
    return f"`sudo mount -o remount,size={gib}G /dev/shm`; in a container `--shm-size={gib}g`"


def _outputs(host: HostContext) -> list[tuple[str, str]]:
    """Return what the job writes, and where."""
    job, outputs = host.job, [("the working directory", host.cwd)]
    if job.log:
        folder = posixpath.dirname(job.log.split("{")[0] + "x")
        outputs.append(("the log", posixpath.join(host.cwd, folder)))
    options = job_options.options(job)
    for name in _OUTPUTS:
        output = job_options.first_value(options, name)
        if output is not None and "://" not in output:
            outputs.append((name, posixpath.join(host.cwd, output)))
    return outputs


def _disk_questions(host: HostContext) -> list[Question]:
    return [] if host.job.needs.disk is None else [("room", path) for _, path in _outputs(host)]


@check("disk", asks=_disk_questions, quick=True)
def disk(host: HostContext) -> Iterator[Answer]:
    """Whether the disks that the job writes to have the space of `needs`."""
    needed = host.job.needs.disk
    if needed is None:
        return
    devices: set[Any] = set()
    for what, path in _outputs(host):
        room = host.answer("room", path)
        if room.get("free") is None or room.get("device") in devices:
            continue
        devices.add(room.get("device"))
        evidence = f"{job_size(room['free'])} free in {room['folder']} ({what})"
        if room["free"] >= needed:
            yield ok(evidence)
            continue
        yield fail(
            f"{evidence}, and `needs.disk` is {job_size(needed)}",
            f"`du -xh --max-depth=2 {room['folder']} | sort -h | tail` shows what fills it; or "
            "write to another disk",
        )


@check("disks-full", job=False, needs=("disks",), quick=True)
def disks_full(host: HostContext) -> Iterator[Answer]:
    """Whether home, working directory and /tmp have space for logs, locks and caches."""
    mounts = set()
    own_folder = "SAFELAUNCH_HOME" not in host.context.environ
    home = "the run's own folder" if own_folder else "the home"
    uses = {"home": home, "cwd": "the working directory", "tmp": "temporary files"}
    for name, what in uses.items():
        disk = host.get("disks", name) or {}
        mount = (disk.get("mount"), disk.get("source"))
        if mount in mounts or not disk.get("total"):
            continue
        mounts.add(mount)
        free, inodes = disk.get("free"), disk.get("inodes_free")
        is_full = free == 0 or inodes == 0
        # `run-folder` reports little space in the home
        if not is_full and (free is None or free >= _GIB or (name == "home" and host.node)):
            continue
        left = "no inode is free" if inodes == 0 else f"{job_size(free or 0)} are free"
        is_fatal = is_full and name == "home" and own_folder and host.node is not None
        if inodes != 0 and host.get("system", "user") == "root":
            is_fatal = False  # what a file system reserves for root is not counted as free
        yield (fail if is_fatal else warn)(
            f"{left} on {disk.get('mount') or disk.get('path')} ({what})",
            f"`du -xh --max-depth=2 {disk.get('path')} | sort -h | tail` shows what fills it; "
            "remove what you do not need",
        )


@check("cores", needs=("cores",), quick=True)
def cores(host: HostContext) -> Answer | None:
    """Whether each rank has a core."""
    facts, usable, ranks = host.fact("cores"), host.fact("cores", "usable"), host.ranks
    if ranks is None or ranks < 2:  # noqa: PLR2004 - several
        return None
    if usable >= ranks:
        return ok(f"{usable} cores for {ranks} ranks")
    why, hint = "", f"`--set processes={usable}`"
    if facts.get("quota") is not None:
        why = f" (quota of {facts['quota']:g} in {facts.get('quota_from')})"
        hint = f"raise the quota (`docker run --cpus={ranks}`), or {hint}"
    elif (facts.get("present") or 0) > usable:
        why = f" of {facts['present']}, by `taskset` or a cpuset"
        hint = f"start it without `taskset` or with a larger cpuset, or {hint}"
    return warn(f"{usable} usable cores{why} for {ranks} ranks: they wait for each other", hint)


# what Ray recommends (ray services.py: at least 8192), and RDMA (NCCL user guide)
_FILES = 8192
_RAY = "Ray, python/ray/_private/services.py"
_RDMA = "NCCL user guide, troubleshooting, memory lock"


@check("limits", quick=True)
def limits(host: HostContext) -> Iterator[Answer]:
    """Whether the limits of open files and locked memory suffice for Ray and RDMA."""
    limits = host.get("system", "limits") or {}
    files, locked = limits.get("files"), limits.get("locked")
    cluster = launchers.load(host.job.launcher).CLUSTER
    if cluster and cluster.uses_ray and files and 0 <= files[0] < _FILES:
        hint = f"`setup: [ulimit -n {_FILES}]`"
        if 0 <= files[1] < _FILES:
            hint = f"`* - nofile {_FILES}` in /etc/security/limits.conf, then log in again"
        yield warn(f"{files[0]} open files are allowed; Ray needs {_FILES}", hint, _RAY)
    if len(host.context.hosts) < 2 or not locked or locked[0] < 0 or not _rdma(host):  # noqa: PLR2004
        return
    hint = "`setup: [ulimit -l unlimited]`"
    if locked[1] >= 0:
        hint = "`* - memlock unlimited` in /etc/security/limits.conf, then log in again"
        if host.get("system", "container"):
            hint = "start the container with `--ulimit memlock=-1`"
    yield warn(
        f"{job_size(locked[0])} may be locked in memory; RDMA between nodes registers more",
        hint,
        _RDMA,
    )


def _rdma(host: HostContext) -> bool:
    off = host.plan.env.get("NCCL_IB_DISABLE")
    return bool(host.get("network", "infiniband")) and (off is None or off.value != "1")
