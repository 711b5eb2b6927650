"""Checks variables that select AMD GPUs and Ascend NPUs: those that contradict or do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.checks import visible_gpus
from safelaunch.checks.answers import Answer, warn
from safelaunch.checks.registry import check
from safelaunch.runtime.start.accelerators import split_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.context import HostContext

_ROCR, _HIP, _CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
_ASCEND = "ASCEND_RT_VISIBLE_DEVICES"
_ISOLATION = "ROCm documentation, GPU isolation techniques; clr, rocdevice.cpp"


@check("rocm-visibility", quick=True, source=_ISOLATION)
def rocm(host: HostContext) -> Iterator[Answer]:
    """Whether the variables that select AMD GPUs agree: ROCR, then HIP, or CUDA in its place."""
    if visible_gpus.kind_name(host) != "rocm":
        return
    values = {n: visible_gpus.setting(host, n) for n in (_ROCR, _HIP, _CUDA)}
    (rocr, rocr_from), (hip, hip_from), (cuda, cuda_from) = values.values()
    if hip and cuda and split_words(hip) != split_words(cuda):
        yield warn(
            f"{_HIP}={hip} ({hip_from}) and {_CUDA}={cuda} ({cuda_from}): HIP reads the first "
            "alone, and programs that count GPUs by the second see others",
            f"keep one: `env: {{{_CUDA}: null}}`",
        )
    name, value = (_HIP, hip) if hip else (_CUDA, cuda)
    if not rocr or not value:
        return
    count = len(split_words(rocr))
    beyond = [w for w in split_words(value) if w.isdigit() and int(w) >= count]
    if beyond:
        yield warn(
            f"{_ROCR}={rocr} ({rocr_from}) leaves {count}, numbered from 0, and {name}={value} "
            f"names {', '.join(beyond)}: Slurm sets both to the same numbers",
            f"`env: {{{_ROCR}: null}}` leaves the choice to {name}, or `env: {{{name}: null}}`",
            f"{_ISOLATION}; Slurm, gres.conf, Flags",
        )


@check("npu-visibility", quick=True, source="CANN, ASCEND_RT_VISIBLE_DEVICES")
def npu(host: HostContext) -> Answer | None:
    """Whether Ascend NPUs are selected by their own variable: CUDA's has no effect on them."""
    if visible_gpus.kind_name(host) != "npu" or visible_gpus.setting(host, _ASCEND)[0] is not None:
        return None
    value, origin = visible_gpus.setting(host, _CUDA)
    if not value:
        return None
    return warn(
        f"{_CUDA}={value} ({origin}) selects no NPU: the job sees all of them",
        f"`--profile ascend` with `gpus: [{value}]`, which sets {_ASCEND}",
    )
