"""Finds keys of accelerate and DeepSpeed configurations that nothing reads, and refused values.

Sources: accelerate 1.15.0 (commands/config/config_args.py: fields of ClusterConfig; launch.py: a
key of a block becomes an argument of the launch parser, other keys are dropped);
DeepSpeed 0.19.8 (runtime/config.py: top-level keys are read one by one, the rest is ignored;
zero/config.py, offload_config.py, precision_config.py: `extra="forbid"`, an unknown key is an
error). Keys that only older versions read are listed separately and accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import did_you_mean
from safelaunch.launchers.accelerate.choices import CHOICES, wrong_values
from safelaunch.launchers.accelerate.config_file import KEYS, TYPE_BLOCKS
from safelaunch.lint.finding import ERROR, WARNING, LintFinding
from safelaunch.lint.kinds import DEEPSPEED_KEYS, OLD_DEEPSPEED_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.lint.yaml_files.rules import Document

ID = "config-key"
VALUE = "config-value"


class _KeySet(NamedTuple):
    """The keys of one mapping, separated by spaces, and the severity and harm of any other."""

    effect: tuple[str, str]
    current: str
    older: str = ""
    prefix: str = ""  # accelerate adds it to keys that lack it


_UNREAD_BY_ACCELERATE = (WARNING, "accelerate does not read this key here")
_UNREAD_BY_DEEPSPEED = (WARNING, "DeepSpeed does not read this key here")
_FORBIDDEN = (ERROR, "DeepSpeed refuses the file (extra keys are forbidden here)")
_ACCELERATE_TOP = _KeySet(
    (ERROR, "accelerate refuses the file (ValueError: unknown keys)"),
    " ".join(sorted(KEYS)),
    older="tpu_cluster ipex_config use_xpu num_cpu_threads_per_process",
)
_ACCELERATE_BLOCKS = {
    "deepspeed_config": _KeySet(
        (WARNING, "accelerate does not read this key here; DeepSpeed uses its default"),
        "deepspeed_config_file deepspeed_exclusion_filter deepspeed_hostfile"
        " deepspeed_inclusion_filter deepspeed_moe_layer_cls_names"
        " deepspeed_multinode_launcher gradient_accumulation_steps gradient_clipping"
        " offload_optimizer_device offload_optimizer_nvme_path offload_param_device"
        " offload_param_nvme_path zero3_init_flag zero3_save_16bit_model zero_stage",
        older="zero3_save_fp16_model use_deepspeed_config",
    ),
    "fsdp_config": _KeySet(
        _UNREAD_BY_ACCELERATE,
        "fsdp_activation_checkpointing fsdp_activation_checkpointing_offload"
        " fsdp_auto_wrap_policy fsdp_backward_prefetch fsdp_cpu_ram_efficient_loading"
        " fsdp_forward_prefetch fsdp_min_num_params fsdp_offload_params"
        " fsdp_reshard_after_forward fsdp_sharding_strategy fsdp_state_dict_type"
        " fsdp_sync_module_states fsdp_transformer_layer_cls_to_wrap fsdp_use_orig_params"
        " fsdp_version",
        older="fsdp_backward_prefetch_policy",
        prefix="fsdp_",
    ),
    "dynamo_config": _KeySet(
        _UNREAD_BY_ACCELERATE,
        "dynamo_backend dynamo_mode dynamo_use_dynamic dynamo_use_fullgraph"
        " dynamo_use_regional_compilation",
        prefix="dynamo_",
    ),
}
# keys that belong into a DeepSpeed configuration
_DEEPSPEED_ONLY = (
    "reduce_bucket_size allgather_bucket_size overlap_comm contiguous_gradients reduce_scatter"
    " allgather_partitions round_robin_gradients sub_group_size stage3_prefetch_bucket_size"
    " stage3_param_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance"
    " train_micro_batch_size_per_gpu train_batch_size optimizer scheduler bf16 fp16"
    " steps_per_print wall_clock_breakdown zero_optimization"
)

_DEEPSPEED_TOP = _KeySet(
    (WARNING, "DeepSpeed does not read this key"), DEEPSPEED_KEYS, older=OLD_DEEPSPEED_KEYS
)
_ZERO = (
    "stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce"
    " allgather_partitions allgather_bucket_size overlap_comm compute_grad_norm"
    " load_from_fp32_weights elastic_checkpoint offload_param offload_optimizer zenflow"
    " sub_group_size cpu_offload_param cpu_offload_use_pin_memory cpu_offload"
    " stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1"
    " round_robin_gradients parameter_alignment zero_hpz_partition_size zero_quantized_weights"
    " zero_quantized_nontrainable_weights zero_quantized_gradients memory_efficient_linear"
    " pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings"
    " enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module"
)
_STAGE_3 = (
    "prefetch_bucket_size param_persistence_threshold model_persistence_threshold"
    " max_live_parameters max_reuse_distance gather_16bit_weights_on_model_save"
    " module_granularity_threshold use_all_reduce_for_fetch_params allgather_sequential"
)
_DEEPSPEED_BLOCKS = {
    ("zero_optimization",): _KeySet(
        _FORBIDDEN,
        f"{_ZERO} {_STAGE_3} " + " ".join(f"stage3_{name}" for name in _STAGE_3.split()),
        older="mics_shard_size mics_hierarchical_params_gather zeropp_loco_param",
    ),
    ("zero_optimization", "offload_param"): _KeySet(
        _FORBIDDEN,
        "device nvme_path buffer_count buffer_size max_in_cpu pin_memory",
    ),
    ("zero_optimization", "offload_optimizer"): _KeySet(
        _FORBIDDEN,
        "device nvme_path buffer_count pin_memory pipeline_read pipeline_write fast_init ratio"
        " super_offload cpuadam_cores_perc pipeline",
    ),
    ("fp16",): _KeySet(
        _UNREAD_BY_DEEPSPEED,
        "enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis"
        " consecutive_hysteresis min_loss_scale fp16_master_weights_and_grads",
        older="opt_level",
    ),
    ("bf16",): _KeySet(
        _UNREAD_BY_DEEPSPEED,
        "enabled immediate_grad_update check_grad_overflow bf16_master_weights_and_grads"
        " bf16_optimizer_states",
        older="auto_cast loss_scale initial_scale_power loss_scale_window hysteresis",
    ),
}


# the values of a file of DeepSpeed's own, by the flag of accelerate that sets the same
_DEEPSPEED_VALUES = {
    ("zero_optimization", "stage"): "zero_stage",
    ("zero_optimization", "offload_param", "device"): "offload_param_device",
    ("zero_optimization", "offload_optimizer", "device"): "offload_optimizer_device",
}


def check_accelerate(document: Document, file: str) -> Iterator[LintFinding]:
    """Yield findings for keys of an accelerate configuration that nothing reads, and for values."""
    environment = document.value("compute_environment")
    if environment is not None and environment.text == "AMAZON_SAGEMAKER":
        return  # a different class with different keys
    yield from _unknown_keys(document, file, (), _ACCELERATE_TOP)
    for name, block in _ACCELERATE_BLOCKS.items():
        yield from _unknown_keys(document, file, (name,), block)
        yield from _wrong_values(document, file, name)


def _wrong_values(document: Document, file: str, block: str) -> Iterator[LintFinding]:
    """Yield findings for values of a block that its type of training refuses."""
    kind = document.value("distributed_type")
    if kind is None or TYPE_BLOCKS.get(kind.text.upper()) != block:
        return  # accelerate does not read the block
    scalars = {
        scalar.path[1]: scalar
        for scalar in document.scalars
        if not scalar.is_key and len(scalar.path) == 2 and scalar.path[0] == block  # noqa: PLR2004
    }
    for name, message, fix in wrong_values({name: s.text for name, s in scalars.items()}):
        scalar = scalars[name]
        yield LintFinding(file, scalar.line, scalar.column, VALUE, message, fix, ERROR)


def check_deepspeed(document: Document, file: str) -> Iterator[LintFinding]:
    """Yield findings for keys of a DeepSpeed configuration that nothing reads."""
    yield from _unknown_keys(document, file, (), _DEEPSPEED_TOP)
    for path, block in _DEEPSPEED_BLOCKS.items():
        yield from _unknown_keys(document, file, path, block)
    for path, setting in _DEEPSPEED_VALUES.items():
        scalar = document.value(*path)
        if scalar is None:
            continue
        for _, _, fix in wrong_values({setting: scalar.text}):
            message = f"`{'.'.join(path)}: {scalar.text}`: {CHOICES[setting].effect}"
            yield LintFinding(file, scalar.line, scalar.column, VALUE, message, fix, ERROR)


def _unknown_keys(
    document: Document, file: str, path: tuple[str, ...], block: _KeySet
) -> Iterator[LintFinding]:
    current = block.current.split()
    accepted = {*current, *block.older.split()}
    for key in document.keys_below(*path):
        name = key.text
        if name in accepted or block.prefix + name in accepted or name.startswith(("_", "#", "//")):
            continue
        where = f" under `{'.'.join(path)}`" if path else ""
        if path == ("deepspeed_config",) and name in _DEEPSPEED_ONLY.split():
            fix = "move it to a DeepSpeed JSON file, and set `deepspeed_config_file` to that file"
        else:
            fix = did_you_mean(name, current) or "remove it"
        severity, harm = block.effect
        message = f"`{name}`{where}: {harm}"
        yield LintFinding(file, key.line, key.column, ID, message, fix, severity)
