"""Checks of room: what `needs:` asks for, and what no start goes without: memory, disks, cores."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.runtime.units import job_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext

_MIB, _GIB = 1 << 20, 1 << 30
# the driver shows less than a card is sold with: of some a sixteenth is for ECC (recorded: 15360 of
# 16384 MiB of a T4, 46068 of 49152 MiB of an L40S)
_SHOWN = 0.93
_SHM = "/dev/shm"  # noqa: S108 - the file system
_DOCKER_SHM = 64 * _MIB  # docker run, --shm-size
_NCCL_SHM = "NCCL user guide, troubleshooting, shared memory"
_OUTPUTS = ("output_dir", "output_path", "save_dir", "save_path", "ckpt_path", "logging_dir",
            "fileroot", "cluster.fileroot")  # fmt: skip
_WORKERS = ("num_workers", "dataloader_num_workers")


# -- cards -----------------------------------------------------------------------------------------


@check("gpu-memory", "hardware", needs=("gpus",))
def gpu_memory(host: HostContext) -> Answer | None:
    """Whether each card has the memory of `needs`, and has it free."""
    needed = host.job.needs.gpu_memory
    if needed is None or visible_gpus.needs_gpu(host) is False or not visible_gpus.all_gpus(host):
        return None
    used = visible_gpus.visible(host).gpus
    sizes = [(card, _memory(host, card)) for card in used]
    known = [(total, card) for card, total in sizes if total is not None]
    if not known:
        raise NotKnown("the memory of the cards is not known")
    least, card = min(known, key=lambda one: one[0])
    if least < needed * _SHOWN:
        return fail(
            f"card {card['index']} ({card['name']}) has {job_size(least)}, and "
            f"`needs.gpu_memory` is {job_size(needed)}",
            _larger(host, needed)
            or f"larger cards, or a smaller batch and `gpu_memory: {_whole(least)}`",
        )
    busy = [
        (card, total - (card["used_mib"] or 0) * _MIB)
        for total, card in known
        if card["used_mib"] and total - card["used_mib"] * _MIB < needed * _SHOWN
    ]
    if not busy:
        return ok(f"{job_size(least)} on each card")
    one, free = busy[0]
    return warn(
        f"card {one['index']} has {job_size(max(free, 0))} free of {job_size(needed)} that "
        f"are needed: {_holders(host, one['index'])}",
        "wait until they end, or take other cards with `gpus:`; safelaunch ends nobody's process",
    )


def _memory(host: HostContext, card: visible_gpus.Gpu) -> int | None:
    """Return the bytes of a card, or of the smallest slice of it that the job may get."""
    if not card.get("mig"):
        return None if card["memory_mib"] is None else card["memory_mib"] * _MIB
    names = (visible_gpus.visible_devices(host)[0] or "").split(",")
    named = [word.strip() for word in names if word.strip().startswith("MIG-")]
    found = [
        one["memory_mib"]
        for one in host.get("gpus", "slices") or ()
        if one["card"] == card["index"] and one["memory_mib"] is not None
        and (not named or any(str(one["uuid"]).startswith(word) for word in named))
    ]  # fmt: skip
    return min(found) * _MIB if found else None


def _larger(host: HostContext, needed: int) -> str | None:
    """Return how to take cards of the machine that are large enough; None where too few are."""
    fit = [
        card
        for card in visible_gpus.all_gpus(host)
        if (_memory(host, card) or 0) >= needed * _SHOWN and not card.get("mig")
    ]
    count = max(visible_gpus.ranks(host, visible_gpus.visible(host)), 1)
    return f"`--set 'gpus={visible_gpus.indices(fit[:count])}'`" if len(fit) >= count else None


def _holders(host: HostContext, index: int) -> str:
    told = [one for one in host.get("gpus", "processes") or () if one["card"] == index]
    named = [f"{one['name'] or 'unknown'} (pid {one['pid']}, {one['user'] or '?'})" for one in told]
    return ", ".join(named[:3]) or "who holds the rest is not known"


def _whole(size: int) -> str:
    return f"{size // _GIB}GiB" if size >= _GIB else f"{size // _MIB}MiB"


# -- memory ----------------------------------------------------------------------------------------


@check("memory", "hardware", needs=("memory",), quick=True)
def memory(host: HostContext) -> Answer | None:
    """Whether the machine, or its container, has the memory of `needs`."""
    needed = host.job.needs.ram
    if needed is None:
        return None
    told = host.fact("memory")
    total, limit, free = told.get("total"), told.get("limit"), told.get("available")
    if total is None and limit is None:
        raise NotKnown("the memory of the machine is not known")
    if limit is not None and limit < needed:
        return fail(
            f"the cgroup allows {job_size(limit)} ({told.get('limit_from')}), and `needs.ram` is "
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
            "`ps aux --sort=-rss | head` shows who holds it; wait, or end what is yours",
        )
    return ok(f"{job_size(free if free is not None else total)} free")


# -- /dev/shm --------------------------------------------------------------------------------------


@check("shared-memory", "hardware", quick=True, source=_NCCL_SHM)
def shared_memory(host: HostContext) -> Answer | None:
    """Whether /dev/shm has the room of `needs`, or more than Docker gives it."""
    needed = host.job.needs.shm
    if needed is None and not _shares(host):
        return None
    told = host.fact("disks", "shm")
    total, free = told.get("total"), told.get("free")
    if total is None or free is None:
        raise NotKnown("the room in /dev/shm is not known")
    if needed is not None and total < needed:
        evidence = f"{_SHM} has {job_size(total)}, and `needs.shm` is {job_size(needed)}"
        return fail(evidence, _enlarge(host, needed))
    if needed is not None and free < needed:
        return warn(
            f"{_SHM} has {job_size(free)} free of {job_size(needed)} that are needed",
            "`ls -la /dev/shm`: remove what is left of runs that are over (nccl-*, torch_*)",
        )
    if needed is None and total <= _DOCKER_SHM:
        return warn(
            f"{_SHM} has {job_size(total)}: NCCL and data loaders share memory there",
            _enlarge(host, _GIB),
        )
    return ok(f"{job_size(free)} free in /dev/shm")


def _shares(host: HostContext) -> bool:
    """Whether the job has processes that share memory: ranks on cards, or data loaders."""
    several = host.plan.processes is None or host.plan.processes > 1
    if several and visible_gpus.needs_gpu(host) is not False:
        return True
    workers = job_options.first_value(job_options.options(host.job), *_WORKERS)
    return workers not in (None, "0", "1")


def _enlarge(host: HostContext, size: int) -> str:
    gib = max(-(-size // _GIB), 1)
    if host.get("system", "container"):
        return f"start the container with `--shm-size={gib}g` or `--ipc=host`"
    return f"`sudo mount -o remount,size={gib}G /dev/shm`; in a container `--shm-size={gib}g`"


# -- disks -----------------------------------------------------------------------------------------


def _written(host: HostContext) -> list[tuple[str, str]]:
    """Return where the job writes, and what is written there."""
    if host.node is None:
        return []
    job, found = host.job, [("the working directory", host.cwd)]
    if job.log:
        folder = posixpath.dirname(job.log.split("{")[0] + "x")
        found.append(("the log", posixpath.join(host.cwd, folder)))
    options = job_options.options(job)
    for name in _OUTPUTS:
        output = job_options.first_value(options, name)
        if output is not None and "://" not in output:
            found.append((name, posixpath.join(host.cwd, output)))
    return found


def _rooms(host: HostContext) -> list[Question]:
    if host.node is None or host.job.needs.disk is None:
        return []
    return [("room", path) for _, path in _written(host)]


@check("disk", "hardware", asks=_rooms, quick=True)
def disk(host: HostContext) -> Iterator[Answer]:
    """Whether the disks that the job writes to have the room of `needs`."""
    needed = host.job.needs.disk
    if needed is None:
        return
    seen: set[Any] = set()
    for what, path in _written(host):
        told = host.answer("room", path)
        if told.get("free") is None or told.get("device") in seen:
            continue
        seen.add(told.get("device"))
        evidence = f"{job_size(told['free'])} free in {told['folder']} ({what})"
        if told["free"] >= needed:
            yield ok(evidence)
            continue
        yield fail(
            f"{evidence}, and `needs.disk` is {job_size(needed)}",
            f"`du -xh --max-depth=2 {told['folder']} | sort -h | tail` shows what fills it; or "
            "write to another disk",
        )


@check("disks-full", "hardware", job=False, needs=("disks",), quick=True)
def disks_full(host: HostContext) -> Iterator[Answer]:
    """Whether home, working directory and /tmp have any room: logs, locks and caches go there."""
    seen = set()
    home = "the run's own folder" if "SAFELAUNCH_HOME" not in host.context.environ else "the home"
    uses = {"home": home, "cwd": "the working directory", "tmp": "temporary files"}
    for name, what in uses.items():
        told = host.get("disks", name)
        if not told or (told.get("mount"), told.get("source")) in seen or not told.get("total"):
            continue
        seen.add((told.get("mount"), told.get("source")))
        free, inodes = told.get("free"), told.get("inodes_free")
        is_full = free == 0 or inodes == 0
        # what is only short in the home is told by `run-folder`
        if not is_full and (free is None or free >= _GIB or (name == "home" and host.node)):
            continue
        left = "no inode is free" if inodes == 0 else f"{job_size(free or 0)} are free"
        bars = is_full and name == "home" and what != "the home" and host.node is not None
        if inodes != 0 and host.get("system", "user") == "root":
            bars = False  # what a file system reserves for root is not counted as free
        yield (fail if bars else warn)(
            f"{left} on {told.get('mount') or told.get('path')} ({what})",
            f"`du -xh --max-depth=2 {told.get('path')} | sort -h | tail` shows what fills it; "
            "remove what you do not need",
        )


# -- cores and limits ------------------------------------------------------------------------------


@check("cores", "hardware", needs=("cores",), quick=True)
def cores(host: HostContext) -> Answer | None:
    """Whether each rank has a core."""
    usable, ranks = host.fact("cores", "usable"), host.ranks
    if ranks is None or ranks < 2:  # noqa: PLR2004 - several
        return None
    told = host.fact("cores")
    if usable >= ranks:
        return ok(f"{usable} cores for {ranks} ranks")
    why, hint = "", f"`--set processes={usable}`"
    if told.get("quota") is not None:
        why = f" (quota of {told['quota']:g} in {told.get('quota_from')})"
        hint = f"raise the quota (`docker run --cpus={ranks}`), or {hint}"
    elif (told.get("present") or 0) > usable:
        why = f" of {told['present']}, by `taskset` or a cpuset"
        hint = f"start it without `taskset` or with a larger cpuset, or {hint}"
    return warn(f"{usable} usable cores{why} for {ranks} ranks: they wait for each other", hint)


# what Ray asks for (ray services.py: at least 8192 is recommended), and RDMA (NCCL user guide)
_FILES = 8192
_RAY = "Ray, python/ray/_private/services.py"
_RDMA = "NCCL user guide, troubleshooting, memory lock"


@check("limits", "hardware", quick=True)
def limits(host: HostContext) -> Iterator[Answer]:
    """Whether limits of open files and locked memory are what Ray and RDMA want."""
    told = host.get("system", "limits") or {}
    files = told.get("files")
    cluster = launchers.load(host.job.launcher).CLUSTER
    if cluster and cluster.uses_ray and files and 0 <= files[0] < _FILES:
        hint = f"`setup: [ulimit -n {_FILES}]`"
        if 0 <= files[1] < _FILES:
            hint = f"`* - nofile {_FILES}` in /etc/security/limits.conf, then log in again"
        yield warn(f"{files[0]} open files are allowed; Ray wants {_FILES}", hint, _RAY)
    locked = told.get("locked")
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
