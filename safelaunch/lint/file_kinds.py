"""What a file is, told by its name and, for YAML and JSON, by its keys."""

from __future__ import annotations

import posixpath
import re
from enum import Enum
from typing import TYPE_CHECKING

from safelaunch import launchers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Kind(Enum):
    """A kind of file that has rules."""

    SHELL = "shell script"
    REQUIREMENTS = "requirements file"
    YAML = "YAML"  # which one, its keys tell
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

# Files whose YAML other tools read by rules of their own: only their syntax is looked at.
_OF_TOOLS = re.compile(
    r"(.*/)?\.[^/.].*|(.*/)?(docker-)?compose[\w.-]*\.ya?ml"
    r"|(.*/)?(mkdocs|environment|dependabot|_config|Chart|values)\.ya?ml"
)

_JOB = frozenset(
    {
        "extends", "name", "profile", "launcher", "version", "script", "module", "command", "args",
        "processes", "gpus", "nodes", "hosts", "mixed_precision", "launcher_args", "python", "venv",
        "conda", "conda_root", "workdir", "pythonpath", "env", "env_from", "inherit", "setup",
        "log", "force", "capture", "logs", "log_cap", "max_duration", "progress", "success", "hang",
        "recovery", "sync", "assets", "needs", "inputs", "smoke",
    }
)  # fmt: skip
_OVERLAID = frozenset(
    {"env", "env_from", "setup", "recovery", "hang", "success", "venv", "nodes", "needs", "inputs"}
)
_PROFILE = frozenset(
    {
        "extends", "description", "accelerator", "gpu_names", "facts", "env", "site", "ladder",
        "sources",
    }
)  # fmt: skip
_ACCELERATE = frozenset(
    {
        "compute_environment", "distributed_type", "deepspeed_config", "fsdp_config",
        "downcast_bf16", "rdzv_backend", "same_network", "main_training_function", "tpu_env",
        "tpu_use_cluster", "tpu_use_sudo",
    }
)  # fmt: skip
_DEEPSPEED = frozenset(
    {
        "zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer",
        "wall_clock_breakdown", "steps_per_print", "communication_data_type",
    }
)  # fmt: skip


def by_name(path: str, start: bytes) -> Kind | None:
    """Return what a file is by its name and first bytes; None for one that has no rules."""
    path = path.replace("\\", "/")
    name = posixpath.basename(path).lower()
    if name.endswith((".yaml", ".yml")):
        return Kind.YAML
    if name.endswith(".json"):
        return Kind.JSON
    two = "/".join(path.lower().split("/")[-2:])
    if _REQUIREMENTS.fullmatch(name) or _REQUIREMENTS.fullmatch(two):
        return Kind.REQUIREMENTS
    if name.endswith(_SHELL_ENDINGS):
        return Kind.SHELL
    if "." not in name and _SHEBANG.match(start.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0]):
        return Kind.SHELL
    return None


def by_keys(
    path: str, keys: Collection[str], launcher: str | None, parents: Sequence[str] = ()
) -> Kind:
    """Return what a YAML file with these keys at its top is.

    `launcher` is that key's text, `parents` are those of `extends`.
    """
    found = set(keys)
    if found and found <= {"hosts", "groups"}:
        return Kind.HOSTS
    if len(found & _ACCELERATE) > 1 or {"distributed_type", "num_processes"} <= found:
        return Kind.ACCELERATE
    if "zero_optimization" in found or len(found & _DEEPSPEED) > 1:
        return Kind.DEEPSPEED
    if _is_job(found, launcher) or _is_overlay(found, parents):
        return Kind.JOB
    if found & {"accelerator", "gpu_names", "ladder"} and _most(found, _PROFILE):
        return Kind.PROFILE
    return Kind.OTHER if _OF_TOOLS.fullmatch(path.replace("\\", "/")) else Kind.TRAINING


def _is_job(found: set[str], launcher: str | None) -> bool:
    if launcher in launchers.NAMES:
        return _most(found, _JOB)
    runs = found & {"script", "module", "command", "extends"}
    shaped = found & {"profile", "processes", "gpus", "hosts", "launcher_args", "args", "smoke"}
    return bool(runs and shaped) and _most(found, _JOB)


def _is_overlay(found: set[str], parents: Sequence[str]) -> bool:
    """Whether a file is nothing but what a job changes of others; training configs extend, too."""
    is_ours = found <= _JOB and bool(found & _OVERLAID)
    return bool(parents) and is_ours and all(p.endswith((".yaml", ".yml")) for p in parents)


def _most(found: set[str], known: Collection[str]) -> bool:
    return 2 * len(found.intersection(known)) > len(found)
