"""Fields that newer versions of transformers and TRL no longer have, and what replaces them.

Each is the replacement that the deprecation message of the last version with the field names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

_REPLACEMENTS = {
    # transformers 4.46.3 training_args.py:1569; gone since 4.47
    "evaluation_strategy": "eval_strategy",
    # transformers 4.57.6 training_args.py:872-881, 1637, 1731, 1815, 2112-2140, 2160; gone in 5.0
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "no_cuda": "use_cpu",
    "torchdynamo": "torch_compile_backend",
    "push_to_hub_token": "hub_token",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_organization": "hub_model_id",
    "include_inputs_for_metrics": "include_for_metrics",
    # transformers 4.57.6 training_args.py:1955, 1965
    "fsdp_min_num_params": "fsdp_config",
    "fsdp_transformer_layer_cls_to_wrap": "fsdp_config",
    # transformers 4.46.3 training_args.py:1475, 1480
    "dispatch_batches": "accelerator_config",
    "split_batches": "accelerator_config",
    # transformers 5.0.0 training_args.py:863: it takes a fraction too; gone in 5.2
    "warmup_ratio": "warmup_steps",
    # TRL 0.17.0 sft_config.py:218, 233, 240
    "max_seq_length": "max_length",
    "num_of_sequences": "max_length",
    "use_liger": "use_liger_kernel",
    # TRL 0.24.0 model_config.py:195
    "torch_dtype": "dtype",
}


def replacement(name: str, names: Container[str]) -> str | None:
    """Return what to write instead of a field or `--field` that is gone, if the class has it."""
    dashes = name[: len(name) - len(name.lstrip("-"))]
    new = _REPLACEMENTS.get(name.lstrip("-").replace("-", "_"))
    if new is None or dashes + new not in names:
        return None
    return f"write `{dashes}{new}`, which replaces it"
