"""The one declaration of job, profile and hosts files. Help and JSON Schema derive from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.env_types import EnvType, ProfileEnvType
from safelaunch.config.types import (
    ArgsType,
    Choice,
    Count,
    GpuSet,
    ListOf,
    MapOf,
    PathText,
    SetupType,
    Text,
    WordOrList,
    WordsType,
)
from safelaunch.config.words import is_secret_name
from safelaunch.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from safelaunch.config.load import Node
    from safelaunch.model import Origin


class Key(NamedTuple):
    """One key of a file: its name, type and a line of help."""

    name: str
    type: Any
    help: str


class Schema(NamedTuple):
    """The keys of one kind of file."""

    name: str
    keys: tuple[Key, ...]

    def find(self, name: str) -> Key | None:
        """Return the key of that name, or None."""
        return next((key for key in self.keys if key.name == name), None)

    def check_keys(self, node: Node) -> None:
        """Refuse unknown keys with the nearest known name, and secrets by name."""
        known = {key.name for key in self.keys}
        for key, _ in node.items:
            if key.text in known:
                continue
            if is_secret_name(key.text):
                raise ConfigError(
                    f"`{key.text}`: a secret does not belong into a file",
                    where=key.origin,
                    hint="use an SSH key or agent; tokens go under `env_from: [NAME]`",
                )
            raise ConfigError(
                f"unknown key `{key.text}`",
                where=key.origin,
                hint=did_you_mean(key.text, known) or f"known: {', '.join(sorted(known))}",
            )

    def read(self, node: Node) -> tuple[dict[str, Any], dict[str, Origin]]:
        """Return the values of a map node by key and their origins; nulls are absent."""
        self.check_keys(node)
        types = {key.name: key.type for key in self.keys}
        values, origins = {}, {}
        for key, value in node.items:
            if not value.is_null:
                values[key.text] = types[key.text].read(value)
                origins[key.text] = value.origin
        return values, origins


NAME = Text(
    "a name",
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}",
    "is no job name: letters, digits, `_` and `-`, at most 41, beginning with a letter or digit",
)
HOST_NAME = Text(
    "a host",
    r"[A-Za-z0-9_\[:][A-Za-z0-9._@:%\[\]-]*",
    "is no host name: letters, digits, `.`, `-`, `_`, `:` and `@`, no blanks",
)
_MODULE = Text(
    "a module", r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)*", "is no module name such as `package.train`"
)
_ENVIRONMENT = Text("a name", r"[^\s/:]+", "is no environment name; a path goes under `venv:`")
_PATHS = ListOf(PathText(), "paths", single=True)
_NAMES = ListOf(Text("a name"), "names")
_INTERPRETER = (
    Key("python", PathText(), "absolute path of the interpreter, or relative to this file"),
    Key("venv", PathText(), "a virtual environment; its bin/python runs the job"),
    Key("conda", _ENVIRONMENT, "a conda environment by name; needs conda_root"),
    Key("conda_root", PathText(), "where conda is installed, such as /opt/conda"),
)

JOB = Schema(
    "job",
    (
        Key("extends", _PATHS, "job files that this one is laid over"),
        Key("name", NAME, "names the run; default: the file's name"),
        Key("profile", Text("a profile"), "hardware profile, by name or as a path"),
        Key("launcher", Text("a launcher"), "accelerate, torchrun, python, swift, areal, command"),
        Key("version", Text("a version"), "the launcher's version, where its command line differs"),
        Key("script", PathText(), "the program, relative to workdir"),
        Key("module", _MODULE, "or a module, as in python -m"),
        Key("command", WordsType(), "or the words themselves"),
        Key("args", ArgsType(), "arguments of the program: a mapping or a list"),
        Key("processes", Count(), "processes per node"),
        Key("gpus", GpuSet(), "GPUs per node: auto, a count, or a list"),
        Key("nodes", Count(), "number of machines; more than one needs hosts"),
        Key("hosts", ListOf(HOST_NAME, "hosts"), "the machines, in rank order"),
        Key("mixed_precision", Choice(("no", "fp16", "bf16", "fp8")), "passed to accelerate"),
        Key("launcher_args", ArgsType(), "whatever else the launcher itself understands"),
        *_INTERPRETER,
        Key("workdir", PathText(), "working directory, relative to this file; default: its folder"),
        Key("pythonpath", _PATHS, "put before PYTHONPATH; default: the project root"),
        Key("env", EnvType(), "variables; null removes, {prepend: ...} puts before"),
        Key("env_from", _NAMES, "variables taken from your environment at the start, never shown"),
        Key(
            "inherit", WordOrList(("all", "none"), _NAMES), "what the job sees of your environment"
        ),
        Key("setup", SetupType(), "shell lines run before the exports, verbatim"),
        Key("log", PathText(), "the combined log in the project too: {name}, {time}, {id}"),
        Key("force", _NAMES, "variables for which this job overrides a launcher's requirement"),
    ),
)

PROFILE = Schema(
    "profile",
    (
        Key("extends", ListOf(Text("a profile"), "profiles", single=True), "profiles laid below"),
        Key("description", Text(), "one line"),
        Key("accelerator", Choice(("cuda", "cpu")), "what the ranks compute on"),
        Key("gpu_names", Text("a regular expression"), "whole names as nvidia-smi prints them"),
        Key("facts", MapOf(Text(), "facts"), "what the platform is, for people and checks"),
        Key("env", ProfileEnvType(), "variables with why, cost, source, when"),
        Key("site", ProfileEnvType(valued=False), "variables that only the site knows"),
        Key("ladder", ListOf(EnvType(), "steps"), "the steps of --nccl-ladder, in order"),
        Key("sources", ListOf(Text(), "sources"), "where the facts come from"),
    ),
)

HOST = Schema(
    "host",
    (
        Key("profile", Text("a profile"), "hardware profile of this machine"),
        *_INTERPRETER,
        Key("workdir", PathText(), "working directory on this machine"),
        Key("env", EnvType(), "variables on this machine"),
        Key("setup", SetupType(), "shell lines run first on this machine"),
        Key("interface", Text("an interface"), "network interface towards the other nodes"),
        Key("facts", MapOf(Text(), "facts"), "nccl, driver, torch, cuda: what gates are judged on"),
    ),
)
