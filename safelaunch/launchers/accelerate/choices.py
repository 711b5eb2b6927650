"""Which values accelerate's settings of FSDP and DeepSpeed may have: others end each rank.

Sources: accelerate 1.0.1 and 1.15.0, utils/constants.py (FSDP_*) and utils/dataclasses.py
(FullyShardedDataParallelPlugin.__post_init__, set_state_dict_type): upper and lower case, and for
some of them the number of the member of torch's enumeration. DeepSpeed 0.19.8,
runtime/zero/offload_config.py and config.py (OffloadDeviceEnum, ZeroStageEnum).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class SettingValues(NamedTuple):
    """The words that a setting may be, up to which number it may be one, and what follows else."""

    words: tuple[str, ...]
    numbers: int = 0
    effect: str = "accelerate ends each rank with a KeyError"


_OFFLOAD = SettingValues(("none", "cpu", "nvme"), effect="DeepSpeed refuses it")
_STRATEGY = "fsdp_sharding_strategy"
CHOICES = {
    _STRATEGY: SettingValues(
        ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"), 5
    ),
    "fsdp_auto_wrap_policy": SettingValues(
        ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
        effect="accelerate ends each rank with a ValueError",
    ),
    "fsdp_backward_prefetch": SettingValues(("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"), 2),
    "fsdp_state_dict_type": SettingValues(
        ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"), 3
    ),
    "offload_optimizer_device": _OFFLOAD,
    "offload_param_device": _OFFLOAD,
    "zero_stage": SettingValues(("0", "1", "2", "3"), effect="DeepSpeed has no such stage"),
}
# of all releases from 1.0.1 to 1.15.0 (utils/dataclasses.py, DynamoBackend)
DYNAMO_BACKENDS = frozenset((
    "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS",
    "OFI", "FX2TRT", "ONNXRT", "TENSORRT", "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM",
))  # fmt: skip
# torch's own names of members, beside accelerate's
_TORCH = frozenset({"_HYBRID_SHARD_ZERO2"})
_UNSET = frozenset({"", "null", "none", "~", "auto"})


def wrong_values(settings: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, what is wrong with its value, what to write) of flags, or of a file's block.

    The keys of a block may lack the `fsdp_` of the flags.
    """
    version = settings.get("fsdp_version", settings.get("version", "1"))
    for key, value in settings.items():
        name = key if key in CHOICES else f"fsdp_{key}"
        choice = CHOICES.get(name)
        if choice is None or value.lower() in _UNSET or (name == _STRATEGY and version == "2"):
            continue
        if value.isdecimal() and 0 < int(value) <= choice.numbers:
            continue
        words = {word.upper() for word in choice.words} | _TORCH
        if value.upper() not in words:
            listed = f"one of {', '.join(choice.words)}"
            fix = did_you_mean(value, choice.words) or listed
            yield key, f"`{key}: {value}`: {choice.effect}", fix
