"""Options of libraries that not every version has, each with its versions.

Remedies name them as `{{key}}`, so that each says for which versions it holds.
"""

from __future__ import annotations

from typing import NamedTuple


class LibraryOption(NamedTuple):
    """An option as remedies show it, and its names, which no remedy has without the versions."""

    text: str
    names: tuple[str, ...]
    source: str


OPTIONS = {
    "attention-backend": LibraryOption(
        "`--attention-backend` (vLLM 0.13 and newer; older ones read `VLLM_ATTENTION_BACKEND`)",
        ("VLLM_ATTENTION_BACKEND",),
        "https://github.com/vllm-project/vllm/issues/50292",
    ),
    "swap-space": LibraryOption(
        "`swap_space` (vLLM before 0.18; newer ones have none)",
        ("swap_space",),
        "https://github.com/unslothai/unsloth-zoo/issues/1210",
    ),
    "lean-loading": LibraryOption(
        "`low_cpu_mem_usage=True` (transformers before 4.52; newer ones always load so)",
        ("low_cpu_mem_usage",),
        "https://github.com/huggingface/transformers/pull/38792",
    ),
    "flight-recorder": LibraryOption(
        "`TORCH_FR_BUFFER_SIZE=2000` (torch 2.11 and newer; before `TORCH_NCCL_TRACE_BUFFER_SIZE`)",
        ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        "https://github.com/pytorch/pytorch/pull/152563",
    ),
    "allocator-settings": LibraryOption(
        "`PYTORCH_CUDA_ALLOC_CONF` (torch 2.10 and newer also read `PYTORCH_ALLOC_CONF`)",
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        "https://github.com/pytorch/pytorch/issues/183387",
    ),
    "hf-transfer": LibraryOption(
        "`HF_HUB_ENABLE_HF_TRANSFER` (huggingface_hub before 1.0)",
        ("HF_HUB_ENABLE_HF_TRANSFER",),
        "https://huggingface.co/docs/huggingface_hub/concepts/migration",
    ),
    "model-dtype": LibraryOption(
        "`dtype` (transformers before 4.56: `torch_dtype`)",
        ("torch_dtype",),
        "https://github.com/huggingface/transformers/pull/39782",
    ),
    "eval-strategy": LibraryOption(
        "`eval_strategy` (transformers before 4.41: `evaluation_strategy`)",
        ("evaluation_strategy",),
        "https://github.com/huggingface/transformers/pull/30190",
    ),
    "sequence-length": LibraryOption(
        "`max_length` (TRL before 0.20: `max_seq_length`)",
        ("max_seq_length",),
        "https://github.com/huggingface/trl/pull/3912",
    ),
    "length-sampler": LibraryOption(
        '`train_sampling_strategy="group_by_length"` (transformers before 5.2: `group_by_length`)',
        ("group_by_length",),
        "https://github.com/huggingface/transformers/pull/43138",
    ),
    "fsdp-1": LibraryOption(
        "`fsdp_version: 1` (deprecated in transformers 5, which plans to remove it)",
        ("fsdp_version",),
        "https://github.com/huggingface/transformers/blob/main/src/transformers/training_args.py",
    ),
}
