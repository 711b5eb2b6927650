"""Fields that newer versions of transformers and TRL no longer have, and what replaces them.

Each is the replacement that the deprecation message of the last version with the field names. What
has none is removed from the line: a name that looks alike means something else.
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
    # TRL 0.24.0 dpo_config.py:447, grpo_config.py:674, kto_config.py:213
    "use_liger_loss": "use_liger_kernel",
}
_VALUES = {
    # transformers 4.57.6 training_args.py:598; gone in 5.0
    "adafactor": ("optim", "adafactor"),
    # transformers 5.24.0 training_args.py:643
    "group_by_length": ("train_sampling_strategy", "group_by_length"),
}
# an option that a variable replaces: transformers 5.24.0 integrations/integration_utils.py:602
_VARIABLES = {"logging_dir": "TENSORBOARD_LOGGING_DIR"}
# fields of transformers 4.57.6 that 5.24.0 has not, and of TRL 0.24.0 or older that 1.16.0 has not
_REMOVED = frozenset({
    "fp16_backend", "fp16_opt_level", "half_precision_backend", "jit_mode_eval", "mp_parameters",
    "overwrite_output_dir", "past_index", "ray_scope", "save_safetensors", "tpu_metrics_debug",
    "tpu_num_cores", "use_ipex", "use_legacy_prediction_loop", "use_mps_device",
    "base_model_attribute_name", "chars_per_token", "dataset_batch_size", "force_use_ref_model",
    "generate_during_eval", "gradient_checkpointing_use_reentrant", "is_encoder_decoder",
    "label_pad_token_id", "max_prompt_length", "max_target_length", "model_adapter_name",
    "padding_value", "ref_adapter_name", "ref_model_init_kwargs", "reference_free", "rpo_alpha",
    "use_logits_to_keep", "vllm_device", "vllm_dtype", "vllm_enable_prefix_caching",
})  # fmt: skip
_TRAINER_FIELD = "per_device_train_batch_size"


def replacement(name: str, names: Container[str]) -> str | None:
    """Return what to do about a field or `--field` that is gone; None for another class."""
    dashes = name[: len(name) - len(name.lstrip("-"))]
    field = name.lstrip("-").replace("-", "_")
    if field in _REMOVED and dashes + _TRAINER_FIELD in names:
        return f"remove `{name}`: this version has no such option"
    if field in _VARIABLES and dashes + _TRAINER_FIELD in names:
        return f"remove `{name}`, and set the variable {_VARIABLES[field]}"
    option, value = _VALUES.get(field, ("", ""))
    if dashes + option in names and option:
        return f"write `{dashes}{option}{' ' if dashes else ': '}{value}`, which replaces it"
    new = _REPLACEMENTS.get(field)
    if new is None or dashes + new not in names:
        return None
    return f"write `{dashes}{new}`, which replaces it"
