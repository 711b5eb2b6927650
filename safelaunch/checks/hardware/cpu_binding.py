"""Checks the cores that a job may use: near its GPUs, and enough for its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.registry import check
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from safelaunch.checks.context import HostContext


@check(
    "numa",
    asks=lambda _: [("kernel",)],
    needs=("gpus",),
    source="nvidia-smi topo -m, CPU affinity; NCCL user guide, NCCL_IGNORE_CPU_AFFINITY",
)
def numa(host: HostContext) -> Answer | None:
    """Whether the job may run on cores that are near each of its GPUs."""
    if not visible_gpus.has_gpus(host):
        return None
    near = host.get("gpus", "topology", "cpu_affinity") or ()
    cores = host.answer("kernel")["cores"]
    if not near or cores is None:
        raise NotKnown("the cores near the GPUs are not known")
    allowed = set(cores)
    used = [gpu["index"] for gpu in visible_gpus.visible(host).gpus if gpu["index"] < len(near)]
    ranges = {index: core_numbers(near[index]) for index in used}
    far = [index for index, numbers in ranges.items() if numbers and not numbers & allowed]
    if not far:
        return ok("the job may run on cores near its GPUs") if any(ranges.values()) else None
    return warn(
        f"GPU {', '.join(map(str, far))} is near cores {near[far[0]]}, and the job may use none of "
        "them: each transfer crosses the sockets",
        "start it without `taskset`, `numactl` or the cpuset, or give it those cores; or use GPUs "
        "near its cores with `gpus:`",
    )


def core_numbers(text: str) -> set[int]:
    """Return the cores of a list of ranges, `0-31,64-95`; an empty set of any other text."""
    numbers: set[int] = set()
    for part in text.split(","):
        low, _, high = part.strip().partition("-")
        high = high or low
        if not (low.isdecimal() and high.isdecimal()) or len(high) > 6:  # noqa: PLR2004 - no core
            return set()
        numbers.update(range(int(low), int(high) + 1))
    return numbers


_THREADS = "OMP_NUM_THREADS"


@check("threads", needs=("cores",), quick=False, source="PyTorch, torchrun: OMP_NUM_THREADS")
def threads(host: HostContext) -> Answer | None:
    """Whether the threads of all ranks have a core each, by OMP_NUM_THREADS."""
    value, origin = visible_gpus.setting(host, _THREADS)
    ranks, usable = host.ranks, host.fact("cores", "usable")
    if not value or not value.isdecimal() or len(value) > 6 or not ranks:  # noqa: PLR2004
        return None
    needed = int(value) * ranks
    if needed <= usable or int(value) == 1:
        return None  # of one thread each, `cores` reports it
    quota = host.get("cores", "quota")
    why = f" (quota of {quota:g} in {host.get('cores', 'quota_from')})" if quota else ""
    return warn(
        f"{_THREADS}={value} ({origin}) for {quantity(ranks, 'rank')} is {needed} threads on "
        f"{usable} usable cores{why}: they wait for each other",
        f"`env: {{{_THREADS}: {max(usable // ranks, 1)}}}`",
    )
