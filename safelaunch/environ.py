"""Variables: allowed names, what is scrubbed from the caller, how layers merge."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import join_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.model import EnvVar, Origin, Topology

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Names that bash refuses to set: `export UID=1` fails (bash manual, "Bash Variables").
_READONLY = frozenset(
    {"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "BASH_ARGC", "BASH_ARGV"}
)

# Names whose value bash itself sets: an export succeeds, and the program sees something else
# (each tried with bash 5.2: `export NAME=x; exec env`).
_SET_BY_BASH = frozenset((
    "BASHPID", "BASH_ALIASES", "BASH_CMDS", "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE",
    "BASH_SUBSHELL", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "FUNCNAME", "GROUPS",
    "HISTCMD", "LINENO", "OPTIND", "RANDOM", "SECONDS", "SHLVL", "SRANDOM", "_",
))  # fmt: skip

# Variables that launchers set for their workers. Inherited from another job or a cluster's prologue
# they change a launch silently: torchrun reads PET_<OPTION> for every option, a left-over
# WORLD_SIZE hangs the rendezvous, SLURM_* makes accelerate and Lightning detect a cluster.
SCRUBBED = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_*", "ROLE_*", "MASTER_*",
    "NPROC_PER_NODE", "NNODES", "NODE_RANK", "FORCE_TORCHRUN", "PET_*", "TORCHELASTIC_*",
    "ACCELERATE_*", "SLURM_*", "PMI_*", "PMIX_*", "OMPI_*", "MV2_*", "MPI_*", "SAFELAUNCH_*",
    "PYTHONHOME",
    "PYTHON_EXEC",  # torchrun starts its workers with it
)  # fmt: skip

# Left to the job all the same: by these programs name a Slurm job, find its scratch folder, or go
# on after a requeue, and reach its Slurm. They say nothing of ranks (sbatch(1), OUTPUT ENVIRONMENT
# VARIABLES).
SLURM_JOB = (
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_*", "SLURM_TMPDIR", "SLURM_RESTART_COUNT",
    "SLURM_SUBMIT_DIR", "SLURM_CONF",
)  # fmt: skip

# Variables that a launcher sets for each rank: a job that sets them would fight its own launcher.
RANK_NAMES = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "NODE_RANK"}
)

# Variables by which a platform that starts one container for each node or process tells a program
# where the others are (torch/distributed/rendezvous.py, env://; the PyTorchJob of Kubeflow).
PROCESS_GROUP = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "NODE_RANK", "NNODES", "NPROC_PER_NODE", "FORCE_TORCHRUN", "PET_*",
)  # fmt: skip

# Inherited names that the start reports: they change a job without a trace in its files.
NOTEWORTHY = (
    "NCCL_*", "TORCH_NCCL_*", "GLOO_*", "UCX_*", "FI_*", "HCCL_*", "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
    "OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG", "LD_PRELOAD",
)  # fmt: skip

# Kept by `inherit: none`: without them programs lose the user's home, language and temporary files.
BASICS = (
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TERM",
    "PWD", "SHLVL", "_",
)  # fmt: skip

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def check_name(name: str, where: Origin | str) -> None:
    """Refuse a name that is no variable name, or that a job cannot set. Raises ConfigError."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits and `_`, not beginning with a digit"
        if name.strip() != name or name.rstrip("=") != name:
            hint = "remove the blank or the `=`"
        raise ConfigError(f"`{name}` is no variable name", where=where, hint=hint)
    if name in _READONLY:
        raise ConfigError(f"`{name}` is read-only in bash", where=where)
    if name in _SET_BY_BASH:
        raise ConfigError(f"`{name}` is a variable that bash sets itself", where=where)
    if name.startswith("SAFELAUNCH_"):
        raise ConfigError(f"`{name}` is reserved for safelaunch itself", where=where)


def rank_values(topology: Topology) -> dict[str, str]:
    """Return the RANK_NAMES that are the same for all ranks, with their values."""
    node = 0 if topology.nodes == 1 else topology.node_rank
    values = {} if node is None else {"NODE_RANK": str(node), "GROUP_RANK": str(node)}
    if topology.world_size is not None:
        values |= {"LOCAL_WORLD_SIZE": str(topology.processes)}
        values |= {"WORLD_SIZE": str(topology.world_size)}
    if topology.world_size == 1:
        values |= {"RANK": "0", "LOCAL_RANK": "0", "ROLE_RANK": "0"}
    return values


def check_rank_name(var: EnvVar, launcher: str = "the launcher") -> None:
    """Refuse a variable that a launcher sets for each of its ranks. Raises ConfigError."""
    if var.name in RANK_NAMES and var.value is not None:
        raise ConfigError(
            f"`{var.name}` is set by {launcher} for each rank",
            where=var.origin,
            hint="set `processes:` and `nodes:` instead",
        )


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of the names or `PREFIX_*` patterns."""
    names, prefixes = _names_and_prefixes(tuple(patterns))
    return name in names or name.startswith(prefixes)


@lru_cache(maxsize=256)
def _names_and_prefixes(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    names = frozenset(p for p in patterns if not p.endswith("*"))
    return names, tuple(p[:-1] for p in patterns if p.endswith("*"))


def removals(patterns: Iterable[str], requested: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the patterns of what is removed from an environment, each with the names to keep.

    `requested` are names and `PREFIX_*` patterns that the job asks for: they beat the removal, as
    do those of the Slurm job.
    """
    requested, left = (*requested, *SLURM_JOB), {}
    for pattern in patterns:
        name = pattern.removesuffix("*")
        if name == pattern and matches(name, requested):
            continue
        if not any(k.endswith("*") and name.startswith(k[:-1]) for k in requested):
            left[pattern] = tuple(k for k in requested if name != pattern and k.startswith(name))
    return left


def is_removed(name: str, patterns: Iterable[str], requested: Sequence[str]) -> bool:
    """Whether a variable of the caller is removed, and not requested."""
    return matches(name, patterns) and not matches(name, (*requested, *SLURM_JOB))


def merge(layers: Iterable[Iterable[EnvVar]]) -> dict[str, EnvVar]:
    """Return the variables of all layers; a later one overrides, and records what it overrides.

    The value of a variable with `prepend` is put before the value of the layers below it.
    """
    merged: dict[str, EnvVar] = {}
    for var in (var for layer in layers for var in layer):
        below = merged.get(var.name)
        merged[var.name] = var.over(below)
        if below is None or not var.prepend or below.computed:
            continue
        value, prepend = var.value, False  # what the target has is removed: nothing to prepend to
        if below.value is not None:
            value = join_words(":", [word for word in (var.value, below.value) if word])
            prepend = below.prepend
        merged[var.name] = replace(merged[var.name], value=value, prepend=prepend)
    return merged


def inherited(environ: Mapping[str, str], patterns: Sequence[str]) -> list[str]:
    """Return the names of the caller's environment that match, sorted."""
    return sorted(name for name in environ if matches(name, patterns))
