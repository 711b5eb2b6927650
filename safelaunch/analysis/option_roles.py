"""Finds models, configs, output folders and checkpoints in a job's options, by option name.

Pure: callers check whether a path exists. Names are compared in the underscore spelling;
`--a.b value` and Hydra's `a.b=value` are both `a.b`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis import argv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Args

_CONFIG_NAMES = ("config_name", "cn")
_CONFIG_ENDS = (".yaml", ".yml", ".json", ".toml")
_CONFIG_LIST = re.compile(r"\.(?:ya?ml|json|toml)[+,;:|\s]")  # several files in one value

# A model or a dataset: a folder, a file, or a name on the Hugging Face Hub. From the option lists
# of transformers' and trl's scripts, ms-swift, LightRFT, OpenRLHF, verl, AReaL and MiniOneRec.
_MODELS = frozenset((
    "model", "model_name_or_path", "model_name", "model_path", "base_model", "pretrain",
    "tokenizer_name", "tokenizer_path", "tokenizer", "tokenizer_name_or_path", "reward_model",
    "reward_model_path", "reward_pretrain", "reward_model_name_or_path", "critic_pretrain",
    "critic_model", "ref_model", "ref_model_path", "teacher_model", "draft_model", "value_model",
    "sft_model_path", "pretrained_model_name_or_path", "adapter_name_or_path", "actor.path",
    "critic.path", "ref.path", "actor.type._path", "actor_rollout_ref.model.path",
    "critic.model.path", "reward_model.model.path", "mcore_model", "ref_load",
))  # fmt: skip
_DATASETS = frozenset((
    "dataset", "dataset_name", "dataset_path", "dataset_name_or_path", "prompt_data", "eval_data",
    "pretrain_data", "train_dataset.path", "valid_dataset.path", "val_dataset",
))  # fmt: skip
# Data files: of transformers' and trl's scripts, ms-swift, OpenRLHF, verl. What has no ending is
# none in Megatron's `data_path` and the like: a prefix of two files.
_DATA_FILES = _DATASETS | {
    "train_file", "validation_file", "test_file", "train_data_file", "eval_data_file", "data_file",
    "data_path", "train_data", "train_data_path", "eval_data_path", "valid_data_path",
    "data.train_files", "data.val_files",
}  # fmt: skip
_DATA_FILE = re.compile(r"(?i)\.(jsonl?|csv|tsv|parquet|arrow|txt)(\.(gz|zst|xz|bz2))?$")
# options that may name the folder that other names are in
_DATA_FOLDERS = re.compile(
    r"(^|[._])(data|datasets?|input|image|media)_?(base_)?(dir|root|folder|base_path)s?$"
    r"|^(root|base)(_dir|_path)?$"
)
# options for the name of a file without its place: of a hub's repository, of a folder of results
_FILE_NAME = re.compile(r"(^|[_.])file_?names?$")
_OUTPUTS = frozenset((
    "output_dir", "output_path", "save_path", "save_dir", "save", "logging_dir", "log_dir",
    "tensorboard_dir", "checkpoint_dir", "experiment_dir", "hydra.run.dir", "hydra.sweep.dir",
    "trainer.default_local_dir", "default_root_dir", "cluster.fileroot", "cluster_config.fileroot",
    "fileroot", "external_configs.cluster_config.fileroot",
))  # fmt: skip
_LOADS_CKPT = frozenset({"load_checkpoint", "load_ckpt"})  # LightRFT, OpenRLHF
_RESUMES = frozenset((
    "resume_from_checkpoint", "resume", "resume_path", "load", "load_path", "resume_from",
    "resume_ckpt", "trainer.resume_from_path", "mcore_adapter", "ckpt_path_local",
))  # fmt: skip
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
_FOLDERS = frozenset((
    "models", "model", "data", "dataset", "datasets", "checkpoints", "checkpoint", "ckpt",
    "ckpts", "output", "outputs", "results", "runs", "experiments", "pretrained", "weights",
    "configs", "config", "logs", "saved_models", "tmp", "home", "mnt", "storage", "src",
))  # fmt: skip
_DATA_NAME = r"data|index|meta|info|result|output|prompt|vocab"
# words of options for files that a program writes, or that an earlier stage has written
_WRITTEN_NAME = (
    r"(?:^|[_.])(?:out|dst|dest|save|answers?|preds?|predictions?|upload|report|dump|log|metrics?|"
    r"scores?|export|generated)(?:$|[_.])"
)


class NamedArgument(NamedTuple):
    """A value with the option that sets it, as spelled, and the job key that contains it."""

    option: str
    value: str
    key: str = "args"

    @property
    def normalized(self) -> str:
        """The option in the underscore spelling."""
        return self.option.replace("-", "_")


def named_arguments(args: Args) -> Iterator[NamedArgument]:
    """Yield each option's values in order, from `--k v`, `--k a b`, `--k=v` and `a.b=v`.

    An option without a value is `true`, or `false` where the mapping says so.
    """
    for name, values in argv.options(args):
        texts = (str(values).lower(),) if isinstance(values, bool) else values
        yield from (NamedArgument(name, value) for value in texts)


def config_files(args: Args) -> list[NamedArgument]:
    """Return the arguments that name a configuration file; `option` is empty for a positional one.

    Data is often JSON too, and so is what a program writes: options of data files, and those whose
    names contain data, index, answer, save or the like are skipped.
    Hydra's `--config-name` is no path: it is looked up in the folder of the program's configs.
    Of several JSON files without an option the first is read; others may be what it becomes.
    """
    arguments = list(named_arguments(args))
    unnamed = [a for a in arguments if not a.option and a.value.lower().endswith(".json")]
    return [
        argument
        for argument in arguments
        if argument.value.lower().endswith(_CONFIG_ENDS)
        and argument not in unnamed[1:]
        and "://" not in argument.value
        and not _CONFIG_LIST.search(argument.value)
        and not re.search(f"{_DATA_NAME}|{_WRITTEN_NAME}", argument.normalized)
        and argument.normalized not in (*_CONFIG_NAMES, *_DATA_FILES)
        and ("/" in argument.value or not _FILE_NAME.search(argument.normalized))
    ]


def looks_like_hub_id(word: str) -> bool:
    """Whether a word is a valid `org/name` of the Hugging Face Hub and not likely a path."""
    if len(word) > _HUB_LENGTH or not re.fullmatch(_HUB_ID, word) or "--" in word or ".." in word:
        return False
    return not re.search(_FILE_ENDS, word) and word.partition("/")[0].lower() not in _FOLDERS


def model_paths(args: Args) -> list[NamedArgument]:
    """Return the arguments that name a model or a tokenizer, as a path or a Hub id."""
    return _arguments_named(args, _MODELS)


def dataset_paths(args: Args) -> list[NamedArgument]:
    """Return the arguments that name a dataset, as a path or a Hub id."""
    return _arguments_named(args, _DATASETS)


def hub_ids(args: Args) -> list[NamedArgument]:
    """Return the models and datasets that are loaded from the Hub unless such a folder exists."""
    arguments = (*model_paths(args), *dataset_paths(args))
    return [argument for argument in arguments if looks_like_hub_id(argument.value)]


def output_folders(args: Args, env: Mapping[str, str]) -> list[NamedArgument]:
    """Return the folders that the job writes to, from its arguments and its environment.

    AReaL's are `fileroot/{checkpoints,logs}/.../experiment/trial`: `fileroot` alone is shared by
    all experiments; `experiment` returns the names that two runs must not share. `ckpt_path` is the
    folder that LightRFT and OpenRLHF save to, unless it is a file (Lightning).
    """
    paths = [path for path in _arguments_named(args, {"ckpt_path"}) if not _is_checkpoint(path)]
    outputs = (*_arguments_named(args, _OUTPUTS), *paths)
    from_env = (NamedArgument(name, env[name], "env") for name in _ENV_OUTPUTS if env.get(name))
    return [*(argument for argument in outputs if "://" not in argument.value), *from_env]


def experiment(args: Args) -> tuple[NamedArgument, ...]:
    """Return the experiment, trial and project names under which AReaL and verl store a run.

    Two runs with the same names in the same `fileroot` overwrite each other's files.
    """
    names = {"experiment_name", "trial_name", "trainer.experiment_name", "trainer.project_name"}
    return tuple(argument for argument in named_arguments(args) if argument.normalized in names)


def resume_paths(args: Args) -> list[NamedArgument]:
    """Return the arguments that name the checkpoint to resume from.

    `ckpt_path` is one with `--load_checkpoint` (LightRFT, OpenRLHF), or as a file (Lightning).
    """
    loads = any(
        argument.normalized in _LOADS_CKPT and argument.value.lower() == "true"
        for argument in named_arguments(args)
    )
    paths = _arguments_named(args, {"ckpt_path"})
    return [
        *_arguments_named(args, _RESUMES),
        *(path for path in paths if loads or _is_checkpoint(path)),
    ]


def _is_checkpoint(argument: NamedArgument) -> bool:
    return argument.value.endswith((".ckpt", ".pt", ".pth"))


def data_files(args: Args) -> list[NamedArgument]:
    """Return the arguments that name one data file, or a folder of data, that must exist.

    Names that may be relative to another option's folder, lists and patterns are left out; ms-swift
    takes `path#500` for 500 samples of a file.
    """
    arguments = list(named_arguments(args))
    has_folder = any(_DATA_FOLDERS.search(a.normalized) for a in arguments)
    has_dataset_folder = any(map(_names_dataset_folder, arguments))
    result = []
    for argument in _arguments_named(args, _DATA_FILES):
        value = re.sub(r"#\d+$", "", argument.value)
        is_file = _DATA_FILE.search(value) is not None
        is_folder = argument.normalized in _DATASETS and value.startswith(("/", "./", "../", "~/"))
        if re.search(r"[\s,:*?\[\](){}|;@#]", value) or not (is_file or is_folder):
            continue
        is_relative = has_folder or (has_dataset_folder and not is_folder)
        if not is_relative or value.startswith(("/", "~/")):
            result.append(argument._replace(value=value))
    return result


def _names_dataset_folder(argument: NamedArgument) -> bool:
    """Whether data can only be a folder, which names of files may be relative to."""
    value = argument.value
    is_path = "/" in value or argument.normalized.endswith("_path")
    is_named = argument.normalized in _DATA_FILES and not _DATA_FILE.search(value)
    return is_named and is_path and not looks_like_hub_id(value)


def _arguments_named(args: Args, names: frozenset[str] | set[str]) -> list[NamedArgument]:
    return [
        argument
        for argument in named_arguments(args)
        if argument.normalized in names and argument.value.strip().lower() not in _FALSE
    ]
