"""Determines the kind of a file from its name and, for YAML and JSON, from its keys."""

from __future__ import annotations

import posixpath
import re
from enum import Enum
from typing import TYPE_CHECKING

from safelaunch import launchers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class FileKind(Enum):
    """A kind of file that has rules."""

    SHELL = "shell script"
    REQUIREMENTS = "requirements file"
    YAML = "YAML"  # its keys determine which kind
    JSON = "JSON"
    JOB = "job"
    PROFILE = "profile"
    HOSTS = "hosts"
    ACCELERATE = "accelerate configuration"
    DEEPSPEED = "DeepSpeed configuration"
    TRAINING = "training configuration"
    OTHER = "file of another tool"


_SHELL_ENDINGS = (".sh", ".bash", ".sbatch", ".slurm", ".env")
_SHEBANG = re.compile(rb"#!.*[/ ](ba|da|z|k)?sh\b")
_REQUIREMENTS = re.compile(
    r"([\w.-]*requirements[\w.-]*|constraints[\w.-]*)\.(txt|in)|requirements/[\w.-]+\.(txt|in)"
)

# YAML files of other tools with their own rules: only their syntax is checked.
_OTHER_TOOLS = re.compile(
    r"(.*/)?\.[^/.].*|(.*/)?(docker-)?compose[\w.-]*\.ya?ml"
    r"|(.*/)?(mkdocs|environment|dependabot|_config|Chart|values)\.ya?ml"
)

_JOB = frozenset((
    "extends", "name", "profile", "prefix", "launcher", "version", "script", "module", "command",
    "args", "processes", "gpus", "queue", "nodes", "node_rank", "hosts", "mixed_precision",
    "launcher_args",
    "start", "peer_grace", "preload", "python", "python_options", "venv", "conda", "conda_root",
    "workdir", "pythonpath", "env", "env_from", "inherit", "setup", "log", "force", "capture",
    "logs", "log_cap", "max_duration", "progress", "success", "hang", "recovery", "sync", "assets",
    "needs", "inputs", "smoke", "slurm", "kubernetes", "ray", "container", "services",
    "shards", "matrix", "part_gpus", "at_once",
    "vars", "ray_cluster", "steps", "on_success", "on_failure", "on_end", "end_timeout", "upload",
    "pull", "shutdown", "max_cost", "preemption",
))  # fmt: skip
_OVERLAY_KEYS = frozenset((
    "env", "env_from", "setup", "recovery", "hang", "success", "venv", "nodes", "needs", "inputs",
    "slurm", "kubernetes", "ray", "container", "services", "on_success", "on_failure", "on_end",
    "upload", "pull", "shutdown", "max_cost", "preemption",
))  # fmt: skip
_PROFILE = frozenset((
    "extends", "description", "accelerator", "gpu_names", "facts", "env", "site", "ladder",
    "sources", "checked",
))  # fmt: skip
_ACCELERATE = frozenset((
    "compute_environment", "distributed_type", "deepspeed_config", "fsdp_config",
    "downcast_bf16", "rdzv_backend", "same_network", "main_training_function", "tpu_env",
    "tpu_use_cluster", "tpu_use_sudo",
))  # fmt: skip
_DEEPSPEED = frozenset((
    "zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer",
    "wall_clock_breakdown", "steps_per_print", "communication_data_type",
))  # fmt: skip
# the top-level keys that DeepSpeed 0.19.8 reads (runtime/config.py), and those of older versions
DEEPSPEED_KEYS = (
    "activation_checkpointing aio autotuning bf16 bfloat16 checkpoint comet"
    " communication_data_type comms_logger compile csv_monitor data_efficiency data_types"
    " dataloader_drop_last datastates_ckpt disable_allgather disable_python_gc dump_state"
    " expert_parallel flops_profiler fp16 gradient_accumulation_steps gradient_allreduce_op"
    " gradient_clipping gradient_predivide_factor hybrid_engine log_level"
    " managed_gradient_accumulation memory_breakdown optimizer pipeline prescale_gradients"
    " scheduler seq_parallel_communication_data_type sequence_parallel_size steps_per_print"
    " tensor_parallel tensorboard timers torch_autocast train_batch_size"
    " train_micro_batch_size_per_gpu use_data_before_expert_parallelism vocabulary_size wandb"
    " wall_clock_breakdown weight_quantization zero_allow_untested_optimizer"
    " zero_force_ds_cpu_optimizer zero_optimization allgather_size data_parallel_size"
)
OLD_DEEPSPEED_KEYS = (
    "amp compression_training curriculum_learning eigenvalue elasticity fp32_allreduce"
    " graph_harvesting nebula progressive_layer_drop quantize_training sparse_attention"
    " sparse_gradients hf_ds_config"
)


def kind_by_name(path: str, start: bytes) -> FileKind | None:
    """Return the kind of a file by its name and first bytes; None if there are no rules for it."""
    path = path.replace("\\", "/")
    name = posixpath.basename(path).lower()
    if name.endswith((".yaml", ".yml")):
        return FileKind.YAML
    if name.endswith(".json"):
        return FileKind.JSON
    two = "/".join(path.lower().split("/")[-2:])
    if _REQUIREMENTS.fullmatch(name) or _REQUIREMENTS.fullmatch(two):
        return FileKind.REQUIREMENTS
    if name.endswith(_SHELL_ENDINGS):
        return FileKind.SHELL
    if "." not in name and _SHEBANG.match(start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]):
        return FileKind.SHELL
    return None


def kind_by_keys(
    path: str, keys: Collection[str], launcher: str | None, parents: Sequence[str] = ()
) -> FileKind:
    """Return the kind of a YAML file with these top-level keys.

    `launcher` is the value of that key, `parents` are the entries of `extends`.
    """
    present = set(keys)
    if present and present <= {"hosts", "groups"}:
        return FileKind.HOSTS
    if len(present & _ACCELERATE) > 1 or {"distributed_type", "num_processes"} <= present:
        return FileKind.ACCELERATE
    # a trainer may read a file with DeepSpeed's keys among its own: GPT-NeoX
    foreign = present.difference(DEEPSPEED_KEYS.split(), OLD_DEEPSPEED_KEYS.split())
    if "zero_optimization" in present or len(present & _DEEPSPEED) > 1:
        return FileKind.TRAINING if _is_majority(present, foreign) else FileKind.DEEPSPEED
    if _is_job(present, launcher) or _is_overlay(present, parents):
        return FileKind.JOB
    if present & {"accelerator", "gpu_names", "ladder"} and _is_majority(present, _PROFILE):
        return FileKind.PROFILE
    return FileKind.OTHER if _OTHER_TOOLS.fullmatch(path.replace("\\", "/")) else FileKind.TRAINING


def _is_job(present: set[str], launcher: str | None) -> bool:
    if launcher in launchers.NAMES:
        return _is_majority(present, _JOB)
    runs = present & {"script", "module", "command", "extends", "steps"}
    shaped = present & {"profile", "processes", "gpus", "hosts", "launcher_args", "args", "smoke"}
    return bool(runs and shaped) and _is_majority(present, _JOB)


def _is_overlay(present: set[str], parents: Sequence[str]) -> bool:
    """Whether a file only changes keys of other job files; training configs have `extends` too."""
    is_ours = present <= _JOB and bool(present & _OVERLAY_KEYS)
    return bool(parents) and is_ours and all(p.endswith((".yaml", ".yml")) for p in parents)


def _is_majority(present: set[str], expected: Collection[str]) -> bool:
    return 2 * len(present.intersection(expected)) > len(present)
