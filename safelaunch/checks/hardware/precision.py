"""Checks whether the GPUs of a host support the precision that the job computes in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    "tf32": (
        (8, 0),
        "the Trainer refuses tf32 there",
        "transformers 4.45.2 to 5.23.0, training_args.py: --tf32 requires Ampere or a newer GPU",
    ),
    "flash_attention_2": (
        (8, 0),
        "FlashAttention only supports Ampere GPUs or newer",
        "https://github.com/Dao-AILab/flash-attention#nvidia-cuda-support",
    ),
    "flash_attention_3": (
        (9, 0),
        "FlashAttention 3 is for Hopper GPUs",
        "https://github.com/Dao-AILab/flash-attention#flashattention-3-beta-release",
    ),
}
_ATTENTIONS = ("flash_attention_2", "flash_attention_3")
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "float8": "fp8"}


class Request(NamedTuple):
    """What a job computes with, the words that ask for it, and their key."""

    name: str
    words: str
    key: str


@check("precision", needs=("gpus",))
def precision(host: HostContext) -> Iterator[Answer]:
    """Whether the GPUs support the precision and the attention of the job."""
    requests = [*_requested_precision(host), *_requested_features(host)]
    if not requests or not visible_gpus.has_gpus(host):
        return
    capabilities = [
        ((int(match[1]), int(match[2])), gpu)
        for gpu in visible_gpus.visible(host).gpus
        if (match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(gpu["compute_capability"])))
    ]
    if not capabilities:
        raise NotKnown("the compute capability of the GPUs is not known")
    lowest = min(capability for capability, _ in capabilities)
    for request in requests:
        least, problem, source = _PRECISIONS[request.name]
        old = [gpu for capability, gpu in capabilities if capability < least]
        if not old:
            yield ok(f"compute capability {lowest[0]}.{lowest[1]} has {request.name}")
            continue
        yield warn(
            f"`{request.words}`, and {visible_gpus.names(old)} has compute capability "
            f"{old[0]['compute_capability']}: {problem}",
            _remedy(host, request, lowest),
            source,
        )


def _remedy(host: HostContext, request: Request, lowest: tuple[int, int]) -> str:
    if request.name == "tf32":
        return f"remove `{request.words}`"
    if request.name in _ATTENTIONS:
        return f"`sdpa` in place of `{request.words}`"
    other = "bf16" if request.name == "fp8" and lowest >= _PRECISIONS["bf16"][0] else "fp16"
    return _other_precision(host, request.key, request.words, other)


def _requested_features(host: HostContext) -> Iterator[Request]:
    """Yield what options ask for beside the precision: TensorFloat-32, kernels of attention."""
    options = job_options.options(host.job)
    if job_options.is_on(options, "tf32"):
        yield Request("tf32", "--tf32", "args.tf32")
    for key in ("attn_implementation", "attn_impl"):
        value = job_options.first_value(options, key)
        if value in _ATTENTIONS:
            yield Request(value, f"--{key} {value}", f"args.{key}")


def _requested_precision(host: HostContext) -> list[Request]:
    """Return the precision that the job sets, by its `mixed_precision` or an option; or nothing."""
    job = host.job
    if job.mixed_precision in ("bf16", "fp8"):
        words = f"mixed_precision: {job.mixed_precision}"
        return [Request(job.mixed_precision, words, "mixed_precision")]
    options = job_options.options(job)
    for name in ("bf16", "fp8"):
        if job_options.is_on(options, name):
            return [Request(name, f"--{name}", f"args.{name}")]
    for key in ("torch_dtype", "dtype"):
        value = job_options.first_value(options, key)
        if value in _DTYPES:
            return [Request(_DTYPES[value], f"--{key} {value}", f"args.{key}")]
    return []


def _other_precision(host: HostContext, key: str, words: str, other: str) -> str:
    """Return how the job sets another precision."""
    if key == "mixed_precision":
        return f"`--set mixed_precision={other}`"
    if not host.job.args.is_mapping:
        return f"give the program {other} in place of `{words}`"
    if key.endswith("dtype"):
        return f"`--set {key}={'bfloat16' if other == 'bf16' else 'float16'}`"
    return f"`--set {key}=null --set args.{other}=true`"
