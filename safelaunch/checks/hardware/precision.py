"""Checks whether the GPUs of a host support the precision that the job computes in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from safelaunch.checks.context import HostContext

# least compute capability, what happens below it, source
_PRECISIONS = {
    "bf16": (
        (8, 0),
        "bf16 is refused there, or emulated and slow",
        "NVIDIA CUDA programming guide, compute capabilities; accelerate, is_bf16_available",
    ),
    "fp8": (
        (8, 9),
        "FP8 is refused there, or ignored",
        "Transformer Engine documentation; accelerate, check_cuda_fp8_capability",
    ),
}
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "float8": "fp8"}


@check("precision", needs=("gpus",))
def precision(host: HostContext) -> Answer | None:
    """Whether the GPUs support the precision of the job."""
    name, words, key = _requested_precision(host)
    if not name or not visible_gpus.has_gpus(host):
        return None
    capabilities = [
        ((int(match[1]), int(match[2])), gpu)
        for gpu in visible_gpus.visible(host).gpus
        if (match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(gpu["compute_capability"])))
    ]
    if not capabilities:
        raise NotKnown("the compute capability of the GPUs is not known")
    least, problem, source = _PRECISIONS[name]
    lowest = min(capability for capability, _ in capabilities)
    old = [gpu for capability, gpu in capabilities if capability < least]
    if not old:
        return ok(f"compute capability {lowest[0]}.{lowest[1]} has {name}")
    other = "bf16" if name == "fp8" and lowest >= _PRECISIONS["bf16"][0] else "fp16"
    return warn(
        f"`{words}`, and {visible_gpus.names(old)} has compute capability "
        f"{old[0]['compute_capability']}: {problem}",
        _other_precision(host, key, words, other),
        source,
    )


def _requested_precision(host: HostContext) -> tuple[str, str, str]:
    """Return the precision that the job sets, the words that set it, and their key.

    The key is `mixed_precision` of the job, or an option of its program.
    """
    job = host.job
    if job.mixed_precision in _PRECISIONS:
        return job.mixed_precision, f"mixed_precision: {job.mixed_precision}", "mixed_precision"
    options = job_options.options(job)
    for name in _PRECISIONS:
        if job_options.is_on(options, name):
            return name, f"--{name}", f"args.{name}"
    for key in ("torch_dtype", "dtype"):
        value = job_options.first_value(options, key)
        if value in _DTYPES:
            return _DTYPES[value], f"--{key} {value}", f"args.{key}"
    return "", "", ""


def _other_precision(host: HostContext, key: str, words: str, other: str) -> str:
    """Return how the job sets another precision."""
    if key == "mixed_precision":
        return f"`--set mixed_precision={other}`"
    if not host.job.args.is_mapping:
        return f"give the program {other} in place of `{words}`"
    if key.endswith("dtype"):
        return f"`--set {key}={'bfloat16' if other == 'bf16' else 'float16'}`"
    return f"`--set {key}=null --set args.{other}=true`"
