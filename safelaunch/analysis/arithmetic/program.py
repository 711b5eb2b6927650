"""Describes a program for the rules: its options, settings files and processes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import launchers
from safelaunch.analysis.arithmetic import option_values
from safelaunch.analysis.arithmetic.option_values import OptionValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Job

# The options that name a settings file, by what the file is for. `config` is the program's own;
# `model` names a model, whose config.json has its number of heads.
_ROLES = {
    "config": ("config", "config_file", "args_file"),
    "deepspeed": ("deepspeed", "deepspeed_config", "launcher:deepspeed_config_file"),
    "accelerate": ("launcher:config_file",),
    "model": ("model", "model_name_or_path", "model_path", "base_model", "pretrain",
              "actor_rollout_ref.model.path", "actor.path"),
}  # fmt: skip
_HYDRA = ("config_name", "config_path", "config_dir", "cn", "cp", "cd")


class Subject(NamedTuple):
    """A program as far as it is known; None means not known.

    `program` are the words that name it (`swift rlhf`, `areal 0.3 local SCRIPT`, a script, a
    module). `configs` contains settings files by their name in the arguments. `classes` are the
    framework's configurations that its text uses, `parsed` the one that reads the command line.
    """

    program: tuple[str, ...]
    options: Mapping[str, OptionValue] = MappingProxyType({})
    launcher_options: Mapping[str, OptionValue] = MappingProxyType({})
    configs: Mapping[str, Any] = MappingProxyType({})
    files: tuple[str, ...] = ()  # settings files among the words, without an option
    nodes: int | None = 1
    processes: int | None = None  # per node
    gpus: int | None = None  # per node
    versions: Mapping[str, str] = MappingProxyType({})  # of the job's own packages
    origins: Mapping[str, str] = MappingProxyType({})  # job key -> file:line:column
    classes: frozenset[str] | None = None
    parsed: str | None = None

    def option(self, name: str) -> OptionValue | None:
        """Return an option by name; `launcher:NAME` is an option of the launcher."""
        if name.startswith("launcher:"):
            return self.launcher_options.get(option_values.normalize(name[len("launcher:") :]))
        return self.options.get(option_values.normalize(name))

    def named(self, role: str) -> Iterator[str]:
        """Yield the settings files that the arguments name for a role."""
        for name in _ROLES[role]:
            option = self.option(name)
            if option is not None and option.text:
                yield option.text
        if role == "config":
            yield from self.files
        if role == "deepspeed":
            for file in self.named("accelerate"):
                name = "deepspeed_config.deepspeed_config_file"
                config_file = nested_value(self.configs.get(file), name)
                if isinstance(config_file, str):
                    yield config_file

    @property
    def is_complete(self) -> bool:
        """Whether all settings of the program are known; defaults count only then."""
        if any(name in self.options for name in _HYDRA):
            return False
        return all(isinstance(self.configs.get(file), dict) for file in self.named("config"))


def named_configs(subject: Subject) -> tuple[str, ...]:
    """Return the files and models that the arguments name and the caller must read."""
    names = (name for role in _ROLES for name in subject.named(role))
    return tuple(dict.fromkeys(names))


def nested_value(config: Any, path: str) -> Any:
    """Return a value of nested mappings by its dotted path; dashes equal underscores."""
    for part in path.split("."):
        if not isinstance(config, dict):
            return None
        by_name = {option_values.normalize(str(key)): value for key, value in config.items()}
        config = by_name.get(option_values.normalize(part))
    return config


def subject_of(
    job: Job, configs: Mapping[str, Any] | None = None, versions: Mapping[str, str] | None = None
) -> Subject:
    """Return the facts about a job that the rules use.

    `configs` are settings files by name, already read (`named_configs` says which); `versions` are
    those of the packages of the job's interpreter.
    """
    launcher = launchers.load(job.launcher)
    program, words = launcher.program(job)
    implied = {
        name: OptionValue((value,), key, key)
        for name, (value, key) in launcher.topology_options(job).items()
    }
    positional = (*words, *(() if job.args.is_mapping else job.args.words))
    return Subject(
        program=program,
        options={
            **implied,
            **option_values.options_from_words(words),
            **option_values.read_options(job.args),
        },
        launcher_options=option_values.read_options(job.launcher_args),
        configs=configs or {},
        files=tuple(option_values.positional_files(positional)),
        nodes=job.topology.nodes,
        processes=launcher.ranks_per_node(job),
        gpus=len(job.gpus) or None,
        versions=versions or {},
        origins={key: str(origin) for key, origin in job.origins.items()},
    )
