"""Reads what an accelerate config file says, as flags of `accelerate launch`.

Sources: accelerate 1.0.0 and 1.15.0, commands/config/config_args.py (the keys, the path of the
default file) and commands/launch.py, `_validate_launch_command` (what of the file applies). A flag
of the line beats the file, since 1.5.2 or earlier also a key inside a block; in 1.0.0 the block
beats the flag. No version asks the file for `rdzv_backend`, `same_network`, `enable_cpu_affinity`,
`downcast_bf16` and `tpu_use_sudo`: it does so only for flags that have no default.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers.common import is_zero
from safelaunch.launchers.flag_table import PASTED_LINE, LineFlag, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.launchers.flag_table import FlagTable

# fields of ClusterConfig, and what it converts: `fp16`, `dynamo_backend`
KEYS = frozenset((
    "command_file", "commands", "compute_environment", "debug", "deepspeed_config",
    "distributed_type", "downcast_bf16", "dynamo_backend", "dynamo_config", "enable_cpu_affinity",
    "fp16", "fp8_config", "fsdp_config", "gpu_ids", "machine_rank", "main_process_ip",
    "main_process_port", "main_training_function", "megatron_lm_config", "mixed_precision",
    "mpirun_config", "num_machines", "num_processes", "parallelism_config", "rdzv_backend",
    "same_network", "tpu_env", "tpu_name", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_zone",
    "use_cpu",
))  # fmt: skip
# a field until 1.12.0, which 1.15.0 refuses; it concerns Intel's extension alone
_OLDER_KEYS = frozenset({"ipex_config"})
_SINGLE = ("NO", "MULTI_CPU")  # accelerate starts the script itself, not torch's elastic agent
_OTHER_DEVICES = (
    "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON",
    "XLA", "TPU",
)  # fmt: skip
_TYPES = ("NO", "MULTI_CPU", "MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM", *_OTHER_DEVICES)
# these choices are lower case on the line; in a file their case is free
_LOWER = ("dynamo_backend", "fp8_backend", "mixed_precision")
# the parser calls bool() on their values: each word but the empty one is true
BOOL_CALLS = frozenset((
    "megatron_lm_use_custom_fsdp", "megatron_lm_no_load_optim", "megatron_lm_eod_mask_loss",
    "megatron_lm_overlap_cpu_optimizer_d2h_h2d", "megatron_lm_no_save_optim",
    "megatron_lm_optimizer_cpu_offload", "megatron_lm_use_precision_aware_optimizer",
    "parallelism_config_sp_seq_length_is_variable",
))  # fmt: skip
_NUMBERS = ("gradient_accumulation_steps", "gradient_clipping", "zero_stage")  # a file: also `auto`
# read from the file's block, without a flag
_FILE_ONLY = ("fsdp_ignored_modules", "fp8_use_mxfp8_block_scaling")


# what the keys of a block begin with as flags
_PREFIXES = {"fsdp_config": "fsdp_", "dynamo_config": "dynamo_", "fp8_config": "fp8_"}
TYPE_BLOCKS = {
    "DEEPSPEED": "deepspeed_config",
    "FSDP": "fsdp_config",
    "MEGATRON_LM": "megatron_lm_config",
}


def default_path(environ: Mapping[str, str]) -> str:
    """Return the config file that accelerate reads where the line names none.

    The name ends in .yaml also where accelerate's source speaks of JSON.
    """
    cache = environ.get("XDG_CACHE_HOME", "~/.cache")
    folder = environ.get("HF_HOME", os.path.join(cache, "huggingface"))
    if folder == "~" or folder.startswith("~/"):
        folder = (environ.get("HOME") or environ.get("USERPROFILE", "~")) + folder[1:]
    return os.path.join(folder, "accelerate", "default_config.yaml")


def complete(
    file: Setting, line: Mapping[str, str], table: FlagTable, types: Mapping[str, str]
) -> list[LineFlag]:
    """Return what the file adds to the flags of a line. Raises ConfigError.

    `types` are the flags that choose a distributed type; with one of them the file's does not
    count.
    """
    top = _entries(file)
    _check_keys(top)
    kind, is_from_file = _kind(file, top, line, types)
    flags: list[LineFlag] = []
    if "cpu" in line:  # beats every type, and the blocks of the types
        kind, is_from_file = "NO", False
    elif is_from_file:
        where = top["distributed_type"].origin
        flags += [LineFlag(name, (), where) for name, own in types.items() if own == kind]
        flags += _cpu(top, kind)
    on_cpu = "cpu" in line or any(flag.name == "cpu" for flag in flags)
    flags += _processes(file, top, kind, line, on_cpu=on_cpu)
    flags += _machines(top, line)
    flags += [] if on_cpu else _gpus(top, line)
    flags += _precision(top, line)
    if _is_true(top, "debug") and "debug" not in line:
        flags.append(LineFlag("debug", (), top["debug"].origin))
    if kind in _SINGLE:
        _refuse_mpirun(top)
    blocks = ["dynamo_config", *([TYPE_BLOCKS[kind]] if kind in TYPE_BLOCKS else [])]
    precision = next((f.values for f in flags if f.name == "mixed_precision"), None)
    if line.get("mixed_precision") == "fp8" or precision == ("fp8",):
        blocks.append("fp8_config")
    parallelism = [*_parallelism(top, kind, line)] if is_from_file else []
    if parallelism or "use_parallelism_config" in line:
        blocks.append("parallelism_config")
    flags += parallelism
    for name in blocks:
        flags += _block(top, name, line, table)
    return flags


def _entries(setting: Setting | None) -> dict[str, Setting]:
    """Return the keys of a block; none where it is absent or null."""
    if setting is None or setting.value is None:
        return {}
    if not isinstance(setting.value, dict):
        raise ConfigError(
            "accelerate fails on a block that is no mapping",
            where=setting.origin,
            hint="indented `key: value` lines, or nothing",
        )
    return setting.value


def _check_keys(top: Mapping[str, Setting]) -> None:
    environment = top.get("compute_environment")
    if environment is not None and environment.value == "AMAZON_SAGEMAKER":
        raise ConfigError(
            "the config is for Amazon SageMaker, where safelaunch starts nothing",
            where=environment.origin,
            hint="name another file with `--config_file`",
        )
    for name, setting in top.items():
        if name not in KEYS | _OLDER_KEYS:
            raise ConfigError(
                f"accelerate refuses the config file: unknown key `{name}`",
                where=setting.key,
                hint=did_you_mean(name, KEYS) or "remove it",
            )


def _kind(
    file: Setting, top: Mapping[str, Setting], line: Mapping[str, str], types: Mapping[str, str]
) -> tuple[str, bool]:
    """Return the distributed type, and whether it is the file's."""
    setting = top.get("distributed_type")
    if setting is None:
        raise ConfigError(
            "accelerate refuses the config file: no `distributed_type`",
            where=file.origin,
            hint="distributed_type: MULTI_GPU, or DEEPSPEED, FSDP, 'NO'",
        )
    by_flag = next((types[name] for name in types if name in line), None)
    if by_flag is not None or "multi_gpu" in line:
        return by_flag or "MULTI_GPU", False
    kind = "NO" if setting.value is False else str(setting.value)  # a plain NO is YAML's false
    if kind in _OTHER_DEVICES:
        raise ConfigError(
            f"`distributed_type: {kind}`: safelaunch starts jobs on NVIDIA GPUs and CPUs",
            where=setting.origin,
            hint="a job file with `launcher: command` runs the line as it is",
        )
    if kind not in _TYPES:
        hint = did_you_mean(kind, _TYPES) or "one of " + ", ".join(_TYPES[:6])
        raise ConfigError(
            f"accelerate has no `distributed_type: {kind}`", where=setting.origin, hint=hint
        )
    return kind, True


def _cpu(top: Mapping[str, Setting], kind: str) -> Iterator[LineFlag]:
    """Yield the flag for the CPU; the types that have an elastic agent do not read `use_cpu`."""
    if kind == "MULTI_CPU":
        yield LineFlag("cpu", (), top["distributed_type"].origin)
    elif kind == "NO" and (_text(top, "use_cpu") or "").lower() in ("true", "yes", "on", "1"):
        yield LineFlag("cpu", (), top["use_cpu"].origin)


def _processes(
    file: Setting,
    top: Mapping[str, Setting],
    kind: str,
    line: Mapping[str, str],
    *,
    on_cpu: bool,
) -> Iterator[LineFlag]:
    """Yield the number of processes where the line has none."""
    number, total = top.get("num_processes"), _text(top, "num_processes")
    if total is None and top["distributed_type"].value == "NO":
        total, number = "1", top["distributed_type"]
    if "num_processes" not in line and "cpu" not in line:
        if total in (None, "-1") or number is None:
            raise ConfigError(
                "the config file leaves the number of processes to the line",
                where=number.origin if number is not None else file.origin,
                hint="add --num_processes N to the line, or `num_processes: N` to the file",
            )
        if kind == "NO":  # accelerate starts one process, whatever number the file has
            total, number = "1", top["distributed_type"]
        yield LineFlag("num_processes", (str(total),), number.origin)
    count = line.get("num_processes", "1")
    has_none = is_zero(count)
    if has_none and kind != "NO":
        raise ConfigError(
            f"`{count}` processes: accelerate fails with `distributed_type: {kind}` and none",
            where=PASTED_LINE,
            hint="--num_processes N, at least 1",
        )
    if kind == "NO" and not on_cpu and count != "1" and not has_none:
        raise ConfigError(
            f"accelerate starts one process with `distributed_type: NO`, not {count}",
            where=top["distributed_type"].origin,
            hint=f"add --multi_gpu to the line for {count}, or --num_processes 1",
        )


def _machines(top: Mapping[str, Setting], line: Mapping[str, str]) -> Iterator[LineFlag]:
    """Yield the port, and of several machines their number, rank and address."""
    machines = line.get("num_machines") or _text(top, "num_machines") or "1"
    if not machines.isdecimal():
        raise ConfigError(
            f"`num_machines: {machines}` is no whole number",
            where=PASTED_LINE if "num_machines" in line else top["num_machines"].origin,
            hint="num_machines: 1, or how many machines there are",
        )
    names = ["main_process_port"] if _text(top, "main_process_port") != "0" else []
    names += ["num_machines", "machine_rank", "main_process_ip"] if machines != "1" else []
    for name in names:
        value = _text(top, name)
        if value is not None and name not in line:
            yield LineFlag(name, (value,), top[name].origin)


def _gpus(top: Mapping[str, Setting], line: Mapping[str, str]) -> Iterator[LineFlag]:
    setting = top.get("gpu_ids")
    if setting is None or setting.value in (None, "all") or "gpu_ids" in line:
        return
    if not isinstance(setting.value, str):
        raise ConfigError(
            "accelerate fails on a `gpu_ids` that is no text",
            where=setting.origin,
            hint="quote it, with commas: gpu_ids: '0,1'",
        )
    yield LineFlag("gpu_ids", (setting.value,), setting.origin)


def _precision(top: Mapping[str, Setting], line: Mapping[str, str]) -> Iterator[LineFlag]:
    setting = top.get("mixed_precision")
    if "mixed_precision" in line:
        return
    if setting is None and _is_true(top, "fp16"):
        yield LineFlag("mixed_precision", ("fp16",), top["fp16"].origin)
    elif setting is not None and setting.value is not None:
        yield LineFlag("mixed_precision", (_lower("mixed_precision", setting),), setting.origin)


def _lower(name: str, setting: Setting) -> str:
    if not isinstance(setting.value, str):
        raise ConfigError(
            f"accelerate fails on a `{name}` that is no text: YAML reads no, off and NO as false",
            where=setting.origin,
            hint=f"quote it: {name}: 'no'",
        )
    return setting.value.lower()


def _refuse_mpirun(top: Mapping[str, Setting]) -> None:
    hostfile = _entries(top.get("mpirun_config")).get("mpirun_hostfile")
    if hostfile is not None and hostfile.value:
        raise ConfigError(
            "accelerate would start mpirun, whose processes on other machines nobody watches",
            where=hostfile.origin,
            hint="remove mpirun_config; a job file names the machines under `hosts:`",
        )


def _parallelism(
    top: Mapping[str, Setting], kind: str, line: Mapping[str, str]
) -> Iterator[LineFlag]:
    """Yield the switch of parallelism_config, which the line takes only together with FSDP 2."""
    block = top.get("parallelism_config")
    if not _entries(block) or block is None or "use_parallelism_config" in line:
        return
    fsdp = _entries(top.get("fsdp_config"))
    own = next((fsdp[name].value for name in ("fsdp_version", "version") if name in fsdp), 1)
    is_flag = kind == "FSDP" and str(line.get("fsdp_version", own)) == "2"
    yield LineFlag("use_parallelism_config", () if is_flag else None, block.origin)


def _block(
    top: Mapping[str, Setting],
    block: str,
    line: Mapping[str, str],
    table: FlagTable,
) -> Iterator[LineFlag]:
    """Yield the keys of a block that are flags of the line; accelerate reads no others."""
    entries, prefix = dict(_entries(top.get(block))), _PREFIXES.get(block, "")
    if block == "dynamo_config" and "dynamo_backend" in top:
        entries = {"dynamo_backend": top["dynamo_backend"]}
    for key, setting in entries.items():
        name = key if key.startswith(prefix) else prefix + key
        if name in line or setting.value is None or name in table.owned:
            continue
        if name in _FILE_ONLY:
            yield LineFlag(name, None, setting.origin)
        elif name in table.switches:
            if setting.value not in (False, "false", ""):
                yield LineFlag(name, (), setting.origin)
        elif name in table.valued:
            yield from _valued(name, setting)


def _valued(name: str, setting: Setting) -> Iterator[LineFlag]:
    value = setting.value
    if name in _LOWER:
        value = _lower(name, setting)
        if name == "dynamo_backend" and value == "no":
            return
    if isinstance(value, dict) or (
        isinstance(value, tuple) and name != "fp8_override_linear_precision"
    ):
        raise ConfigError(
            f"`{name}` is one value, not several",
            where=setting.origin,
            hint="as text, with commas" if isinstance(value, tuple) else None,
        )
    if isinstance(value, tuple):
        words = [str(item.value).lower() for item in value if isinstance(item, Setting)]
        yield LineFlag(name, (",".join(words),), setting.origin)
        return
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if name in BOOL_CALLS and not value:
        text = ""
    if name == "fp8_override_linear_precision" and not re.fullmatch(r"\w+,\w+,\w+", text):
        yield LineFlag(name, None, setting.origin)  # accelerate fails on it only as it trains
        return
    # DeepSpeed is told of MS-AMP only by the upper case that the flag cannot have
    if text == "msamp" or (name in _NUMBERS and not re.fullmatch(r"[\d.]+", text)):
        yield LineFlag(name, None, setting.origin)
    else:
        yield LineFlag(name, (text,), setting.origin)


def _is_true(top: Mapping[str, Setting], name: str) -> bool:
    return name in top and bool(top[name].value)


def _text(top: Mapping[str, Setting], name: str) -> str | None:
    setting = top.get(name)
    if setting is None or setting.value is None:
        return None
    if isinstance(setting.value, (dict, tuple)):
        raise ConfigError(
            f"`{name}` is one value, not several", where=setting.origin, hint=f"{name}: VALUE"
        )
    return str(setting.value)
