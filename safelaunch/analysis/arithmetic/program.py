"""What the rules look at: a program with its options, its settings files, and its processes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.analysis.arithmetic import option_values as given
from safelaunch.analysis.arithmetic.option_values import Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Job

# The options that name a settings file, by what the file is for. `config` is the program's own;
# `model` names a model, whose config.json has its number of heads.
_ROLES = {
    "config": ("config", "config_file", "args_file"),
    "deepspeed": ("deepspeed", "deepspeed_config", "launcher:deepspeed_config_file"),
    "accelerate": ("launcher:config_file",),
    "model": (
        *("model", "model_name_or_path", "model_path", "base_model", "pretrain"),
        *("actor_rollout_ref.model.path", "actor.path"),
    ),
}
_HYDRA = ("config_name", "config_path", "config_dir", "cn", "cp", "cd")
_RANKS = ("accelerate", "torchrun")
_PYTHON = ("python", "python3")


class Subject(NamedTuple):
    """A program as far as it is known; None is not known.

    `program` are its words (`swift rlhf`, `areal 0.3 local SCRIPT`, a script, a module). `configs`
    holds the content of settings files by the name that the arguments give them. `classes` are the
    framework's configurations that its text uses, `parsed` the one that reads the command line.
    """

    launcher: str
    program: tuple[str, ...]
    options: Mapping[str, Option] = MappingProxyType({})
    launcher_options: Mapping[str, Option] = MappingProxyType({})
    configs: Mapping[str, Any] = MappingProxyType({})
    files: tuple[str, ...] = ()  # settings files among the words, without an option
    nodes: int | None = 1
    processes: int | None = None  # per node
    gpus: int | None = None  # per node
    versions: Mapping[str, str] = MappingProxyType({})  # of the job's own packages
    origins: Mapping[str, str] = MappingProxyType({})  # job key -> file:line:column
    classes: frozenset[str] | None = None
    parsed: str | None = None

    def option(self, name: str) -> Option | None:
        """Return an option; `launcher:NAME` is one of the launcher's."""
        if name.startswith("launcher:"):
            return self.launcher_options.get(given.plain(name[len("launcher:") :]))
        return self.options.get(given.plain(name))

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
                found = looked_up(self.configs.get(file), "deepspeed_config.deepspeed_config_file")
                if isinstance(found, str):
                    yield found

    @property
    def is_complete(self) -> bool:
        """Whether all settings of the program's own are known: only then do defaults count."""
        if any(name in self.options for name in _HYDRA):
            return False
        return all(isinstance(self.configs.get(file), dict) for file in self.named("config"))


def named_configs(subject: Subject) -> tuple[str, ...]:
    """Return the files (and models) that the arguments name, for the caller to read."""
    names = (name for role in _ROLES for name in subject.named(role))
    return tuple(dict.fromkeys(names))


def looked_up(config: Any, path: str) -> Any:
    """Return a value of nested mappings by its dotted path, dashes and underscores alike."""
    for part in path.split("."):
        if not isinstance(config, dict):
            return None
        wanted = given.plain(part)
        config = next((v for k, v in config.items() if given.plain(str(k)) == wanted), None)
    return config


def subject_of(
    job: Job, configs: Mapping[str, Any] | None = None, versions: Mapping[str, str] | None = None
) -> Subject:
    """Return what the rules may know of a job.

    `configs` are settings files by name, already read (`named_configs` says which); `versions` are
    those of the packages that the job's interpreter has.
    """
    program, words = _program(job)
    nodes, processes = _processes(job)
    asked = {**given.of_words(words), **given.read(job.args)}
    if job.launcher == "areal":
        asked = {**_cluster(job), **asked}
    positional = (*words, *(() if job.args.is_mapping else job.args.words))
    return Subject(
        launcher=job.launcher,
        program=program,
        options=asked,
        launcher_options=given.read(job.launcher_args),
        configs=configs or {},
        files=tuple(given.positional_files(positional)),
        nodes=nodes,
        processes=processes,
        gpus=len(job.gpus) or None,
        versions=versions or {},
        origins={key: str(origin) for key, origin in job.origins.items()},
    )


def _cluster(job: Job) -> dict[str, Option]:
    """Return nodes and GPUs of the job as the options that the launcher makes of them."""
    key = next((key for key in ("gpus", "processes") if key in job.origins), None)
    cards = len(job.gpus) or job.topology.processes
    if key is None or cards is None:
        return {}
    prefix = "" if job.version == "0.2" else "cluster."
    return {
        f"{prefix}n_nodes": Option((str(job.topology.nodes),), "nodes", "nodes"),
        f"{prefix}n_gpus_per_node": Option((str(cards),), key, key),
    }


def _program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words that name the program, and the words of `command` behind them."""
    if job.launcher == "areal":
        scheduler = given.read(job.launcher_args).get("scheduler")
        said = (scheduler.text if scheduler is not None else None) or "local"
        target = job.command or ((job.script or ""),)
        return ("areal", job.version or "", said, *target), ()
    named = job.script or job.module
    if named is not None:
        return (named.removeprefix("./"),), ()
    words = job.command
    if job.launcher == "swift":
        words = ("swift", *words)
    if words and words[0].rpartition("/")[2].startswith(_PYTHON):
        words = words[2:] if words[1:2] == ("-m",) else words[1:]
    end = next((n for n, w in enumerate(words) if w.startswith("-") or "=" in w), len(words))
    end = min(end, 3)  # `trl grpo`, `swift rlhf`, `vllm serve MODEL`: more are arguments
    return words[:end], words[end:]


def _processes(job: Job) -> tuple[int | None, int | None]:
    """Return nodes, and processes per node where the launcher starts just so many ranks."""
    nodes, processes = job.topology.nodes, job.topology.processes
    if job.launcher in _RANKS:
        return nodes, processes
    if job.launcher != "swift":
        return nodes, None  # python and command may start ranks of their own
    said = next((var.value for var in job.env if var.name == "NPROC_PER_NODE"), None)
    if said is not None:
        return nodes, int(said) if isinstance(said, str) and said.isdecimal() else None
    stated = "processes" in job.origins or nodes > 1
    return nodes, processes if stated else 1
