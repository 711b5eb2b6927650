"""Recognises files of other programs that are passed as a job file, and says what runs them."""

# ruff: noqa: PLC0415 - json and shlex are imported only for a file that is refused

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.yaml_io.reader import read_text
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

_KEY = re.compile(r"^([ ]*)(?:- +)*[\"']?([A-Za-z_][\w.-]*)[\"']?[ ]*:(?=\s|$)", re.MULTILINE)
_RUN = "safelaunch run -- "


class ForeignFormat(NamedTuple):
    """A format of another program's file, and the command that runs such a file.

    A file has the format if it has all keys of one of `keys` at the top, and one of `nested`
    anywhere.
    """

    name: str
    keys: tuple[frozenset[str], ...]
    command: str
    source: str
    nested: frozenset[str] = frozenset()

    def fits(self, top: Collection[str], nested: Collection[str]) -> bool:
        """Whether a file with these keys has this format."""
        has_nested = not self.nested or not self.nested.isdisjoint(nested)
        return has_nested and any(keys.issubset(top) for keys in self.keys)


def _any(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(keys.split()) for keys in alternatives)


# the first one that fits; the special ones of a trainer come before the general ones
FORMATS = (
    ForeignFormat(
        "a Docker Compose file",
        _any("services"),
        "docker compose -f {file} up",
        "https://github.com/compose-spec/compose-spec/blob/main/05-services.md",
        nested=frozenset({"image", "build"}),
    ),
    ForeignFormat(
        "a Kubernetes manifest",
        _any("apiVersion kind"),
        "kubectl apply -f {file}",
        "https://kubernetes.io/docs/concepts/overview/working-with-objects/#required-fields",
    ),
    ForeignFormat(
        "a SkyPilot task",
        _any("resources run", "resources setup", "num_nodes run", "file_mounts run"),
        "sky launch {file}",
        "https://docs.skypilot.co/en/latest/reference/yaml-spec.html",
    ),
    ForeignFormat(
        "a config of accelerate",
        _any("compute_environment", "distributed_type num_processes"),
        _RUN + "accelerate launch --config_file {file} train.py",
        "accelerate 1.15.0 commands/config/config_args.py: ClusterConfig",
    ),
    ForeignFormat(
        "a config of Hydra",
        _any("defaults", "hydra"),
        _RUN + "python train.py --config-dir {folder} --config-name {stem}",
        "hydra-core 1.3.8 _internal/config_repository.py: _extract_defaults_list;"
        " _internal/utils.py: --config-dir",
    ),
    ForeignFormat(
        "a DeepSpeed config",
        _any("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size optimizer"),
        _RUN + "accelerate launch --use_deepspeed --deepspeed_config_file {file} train.py",
        "deepspeed 0.19.8 runtime/config.py; accelerate 1.15.0 commands/launch.py",
    ),
    ForeignFormat(
        "a torchtune config",
        _any("model", "checkpointer", "tokenizer"),
        _RUN + "tune run RECIPE --config {file}",
        "torchtune 0.6.1 config/_instantiate.py: _component_; _cli/run.py",
        nested=frozenset({"_component_"}),
    ),
    ForeignFormat(
        "a config of Lightning's CLI",
        _any("trainer model", "trainer data", "trainer seed_everything"),
        _RUN + "python train.py fit --config {file}",
        "lightning 2.6.6 pytorch/cli.py: LightningArgumentParser; jsonargparse 4.53.0",
        nested=frozenset({"init_args", "seed_everything"}),
    ),
    ForeignFormat(
        "a LLaMA-Factory config",
        _any("export_dir template", "export_dir model_name_or_path"),
        _RUN + "llamafactory-cli export {file}",
        "llamafactory 0.9.5 hparams/model_args.py: export_dir; launcher.py",
    ),
    ForeignFormat(
        "a LLaMA-Factory config",
        _any("finetuning_type", "stage template", "stage model_name_or_path"),
        _RUN + "llamafactory-cli train {file}",
        "llamafactory 0.9.5 hparams/finetuning_args.py:460,464; launcher.py",
    ),
    *(
        ForeignFormat(
            "an ms-swift config",
            _any(*(f"model {key}" for key in keys.split())),
            _RUN + command,
            "ms-swift 4.6.0 cli/main.py: parse_yaml_args",
        )
        for command, keys in (
            ("swift rlhf {file}", "rlhf_type"),
            ("megatron sft {file}", "tensor_model_parallel_size expert_model_parallel_size"),
            ("swift sft {file}", "tuner_type train_type"),
        )
    ),
    ForeignFormat(
        "an axolotl config",
        _any("base_model datasets", "base_model sequence_len", "base_model pretraining_dataset"),
        _RUN + "axolotl train {file}",
        "axolotl 0.19.0 utils/schemas/model.py:17, config.py:341",
    ),
    *(
        ForeignFormat(
            "a TRL config",
            _any(*(f"model_name_or_path {key}" for key in keys.split())),
            _RUN + f"trl {command} --config {{file}}",
            f"trl 1.16.0 trainer/{command}_config.py, scripts/utils.py: TrlParser",
        )
        for command, keys in (
            ("grpo", "num_generations reward_funcs max_completion_length"),
            ("kto", "desirable_weight undesirable_weight"),
            ("reward", "center_rewards_coefficient"),
            ("dpo", "beta precompute_ref_log_probs f_divergence_type ld_alpha sync_ref_model"),
            (
                "sft",
                "dataset_name packing dataset_text_field completion_only_loss use_peft lora_r",
            ),
        )
    ),
    ForeignFormat(
        "a config of a Hugging Face Trainer",
        _any("per_device_train_batch_size"),
        _RUN + "torchrun --nproc_per_node 1 train.py {file}",
        "transformers 5.23.0 training_args.py; hf_argparser.py:408: parse_yaml_file",
    ),
)


def recognise(top: Collection[str], nested: Collection[str]) -> ForeignFormat | None:
    """Return the format of a file with these keys at the top, and these anywhere."""
    return next((item for item in FORMATS if item.fits(top, nested)), None)


def explain(path: str, shown: str, job_keys: Collection[str]) -> ConfigError | None:
    """Return the error for a file that is no job file; None where it may be one with a mistake."""
    try:
        top, nested = _keys(read_text(path, shown), is_json=path.endswith(".json"))
    except ConfigError:
        return None
    if top & {"launcher", "script", "module", "command", "extends"}:
        return None
    foreign = recognise(top, nested)
    if foreign is not None:
        message = f"this looks like {foreign.name}, and is no job file"
        return ConfigError(message, where=shown, hint=_hint(foreign, shown))
    if len(top) > 1 and 2 * len(top.intersection(job_keys)) < len(top):
        return ConfigError(
            "this is no job file: it has neither `launcher` nor `script`",
            where=shown,
            hint=f"start the program that reads it: {_RUN}python train.py --config {shown}",
        )
    return None


def _hint(foreign: ForeignFormat, shown: str) -> str:
    import shlex
    from os.path import basename, dirname, splitext

    places = {"file": shown, "folder": dirname(shown) or ".", "stem": splitext(basename(shown))[0]}
    command = foreign.command.format_map({k: shlex.quote(v) for k, v in places.items()})
    if foreign.command.startswith(_RUN):
        recipe = "; `tune ls` lists the recipes" if "RECIPE" in command else ""
        return f"run it with `{command}`{recipe}"
    return f"`{command}` starts it; safelaunch starts programs"


def _keys(text: str, *, is_json: bool) -> tuple[set[str], set[str]]:
    """Return the keys at the top of a file, and all keys; also of YAML that is not strict."""
    if is_json:
        import json

        try:
            data = json.loads(text)
        except ValueError:
            data = None
        if isinstance(data, dict):
            return set(data), set(data)
    pairs = [(match[1], match[2]) for match in _KEY.finditer(text)]
    return {key for indent, key in pairs if not indent}, {key for _, key in pairs}
