"""What the words of a job mean by the names of their options: models, configs, outputs, resumes.

Pure: whether a path exists is asked by others. Names are compared in the underscore spelling;
`--a.b value` and Hydra's `a.b=value` are both `a.b`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis import argv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Args

_CONFIG_ENDS = (".yaml", ".yml", ".json", ".toml")

# A model or a dataset: a folder, a file, or a name on the hub. From the option lists of
# transformers' and trl's scripts, ms-swift, LightRFT, OpenRLHF, verl, AReaL and MiniOneRec.
_MODELS = frozenset(
    {
        *("model", "model_name_or_path", "model_name", "model_path", "base_model", "pretrain"),
        *("tokenizer_name", "tokenizer_path", "tokenizer", "tokenizer_name_or_path"),
        *("reward_model", "reward_model_path", "reward_pretrain", "reward_model_name_or_path"),
        *("critic_pretrain", "critic_model", "ref_model", "ref_model_path", "teacher_model"),
        *("draft_model", "value_model", "sft_model_path", "pretrained_model_name_or_path"),
        *("adapter_name_or_path", "actor.path", "critic.path", "ref.path", "actor.type._path"),
        *("actor_rollout_ref.model.path", "critic.model.path", "reward_model.model.path"),
        *("mcore_model", "ref_load"),
    }
)
_DATASETS = frozenset(
    {
        *("dataset", "dataset_name", "dataset_path", "dataset_name_or_path", "prompt_data"),
        *("eval_data", "pretrain_data", "train_dataset.path", "valid_dataset.path", "val_dataset"),
    }
)
_OUTPUTS = frozenset(
    {
        *("output_dir", "output_path", "save_path", "save_dir", "save"),
        *("logging_dir", "log_dir", "tensorboard_dir", "checkpoint_dir", "experiment_dir"),
        *("hydra.run.dir", "hydra.sweep.dir", "trainer.default_local_dir", "default_root_dir"),
        *("cluster.fileroot", "cluster_config.fileroot", "fileroot"),
        "external_configs.cluster_config.fileroot",
    }
)
_LOADS_CKPT = frozenset({"load_checkpoint", "load_ckpt"})  # LightRFT, OpenRLHF
_RESUMES = frozenset(
    {
        *("resume_from_checkpoint", "resume", "resume_path", "load", "load_path", "resume_from"),
        *("resume_ckpt", "trainer.resume_from_path", "mcore_adapter", "ckpt_path_local"),
    }
)
_ENV_OUTPUTS = ("OUTPUT_DIR", "WANDB_DIR", "TENSORBOARD_LOGGING_DIR", "SWANLAB_LOG_DIR")
_FALSE = frozenset({"", "none", "null", "false", "true", "no", "yes", "auto", "0", "1", "must"})

# huggingface_hub/utils/_validators.py, validate_repo_id: letters, digits, `-`, `_`, `.`, at most
# 96 in all, neither at an end, none doubled.
_PART = r"[A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?"
_HUB_ID = rf"(?a){_PART}/{_PART}"
_HUB_LENGTH = 96
_FILE_ENDS = (
    r"(?i)\.(?:jsonl?|ya?ml|toml|csv|tsv|txt|parquet|arrow|pkl|npz|npy|pt|pth|bin|ckpt|safetensors"
    r"|gguf|py|sh|gz|zip|tar|model)$"
)
_FOLDERS = frozenset(
    {
        *("models", "model", "data", "dataset", "datasets", "checkpoints", "checkpoint", "ckpt"),
        *("ckpts", "output", "outputs", "results", "runs", "experiments", "pretrained", "weights"),
        *("configs", "config", "logs", "saved_models", "tmp", "home", "mnt", "storage", "src"),
    }
)


class Named(NamedTuple):
    """A value with the option that gives it, as spelled, and the job key that it stands under."""

    option: str
    value: str
    key: str = "args"


def named(args: Args) -> Iterator[Named]:
    """Yield each option's values in order, of either form: `--k v`, `--k a b`, `--k=v`, `a.b=v`.

    An option without a value is `true`, or `false` where the mapping says so.
    """
    for name, values in argv.options(args):
        said = (str(values).lower(),) if isinstance(values, bool) else values
        yield from (Named(name, value) for value in said)


def config_files(args: Args) -> list[Named]:
    """Return the words that name a configuration file; `option` empty for one by itself.

    Data is often JSON too: an option whose name speaks of data, an index or results gives none.
    """
    return [
        found
        for found in named(args)
        if found.value.lower().endswith(_CONFIG_ENDS)
        and "://" not in found.value
        and not re.search(r"data|index|meta|info|result|output|prompt|vocab", _plain(found))
    ]


def looks_like_hub_id(word: str) -> bool:
    """Whether a word is `org/name` as the hub has it, and no path by its look."""
    if len(word) > _HUB_LENGTH or not re.fullmatch(_HUB_ID, word) or "--" in word or ".." in word:
        return False
    return not re.search(_FILE_ENDS, word) and word.partition("/")[0].lower() not in _FOLDERS


def model_paths(args: Args) -> list[Named]:
    """Return what names a model or a tokenizer, path or hub id."""
    return _of(args, _MODELS)


def dataset_paths(args: Args) -> list[Named]:
    """Return what names a dataset, path or hub id."""
    return _of(args, _DATASETS)


def hub_ids(args: Args) -> list[Named]:
    """Return the models and datasets that would come from the hub unless a folder has that name."""
    found = (*model_paths(args), *dataset_paths(args))
    return [one for one in found if looks_like_hub_id(one.value)]


def output_folders(args: Args, env: Mapping[str, str]) -> list[Named]:
    """Return the folders that the job writes into, of its arguments and its environment.

    AReaL's are `fileroot/{checkpoints,logs}/.../experiment/trial`: `fileroot` alone is shared by
    all experiments, so see `experiment` for what two runs must not share. `ckpt_path` is the
    folder that LightRFT and OpenRLHF save into, unless it is a file as with Lightning.
    """
    paths = [one for one in _of(args, {"ckpt_path"}) if not _is_checkpoint(one)]
    found = [one for one in (*_of(args, _OUTPUTS), *paths) if "://" not in one.value]
    by_env = (Named(name, env[name], "env") for name in _ENV_OUTPUTS if env.get(name))
    return [*found, *by_env]


def experiment(args: Args) -> tuple[Named, ...]:
    """Return the names that AReaL and verl keep a run's files under: experiment, trial, project.

    Two runs with the same ones, in the same `fileroot`, destroy each other's.
    """
    wanted = {"experiment_name", "trial_name", "trainer.experiment_name", "trainer.project_name"}
    return tuple(one for one in named(args) if _plain(one) in wanted)


def resume_paths(args: Args) -> list[Named]:
    """Return the checkpoints that the job goes on from, where a word names one.

    `ckpt_path` is one with `--load_checkpoint` (LightRFT, OpenRLHF), or as a file (Lightning).
    """
    found = _of(args, _RESUMES)
    loads = [g for g in named(args) if _plain(g) in _LOADS_CKPT and g.value.lower() == "true"]
    paths = _of(args, {"ckpt_path"})
    return [*found, *(path for path in paths if loads or _is_checkpoint(path))]


def _is_checkpoint(found: Named) -> bool:
    return found.value.endswith((".ckpt", ".pt", ".pth"))


def _of(args: Args, names: frozenset[str] | set[str]) -> list[Named]:
    return [
        found
        for found in named(args)
        if _plain(found) in names and found.value.strip().lower() not in _FALSE
    ]


def _plain(found: Named) -> str:
    return found.option.replace("-", "_")
