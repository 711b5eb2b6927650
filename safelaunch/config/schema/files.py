"""The one declaration of job, profile and hosts files. Help and JSON Schema derive from it."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.config.schema import json_types
from safelaunch.config.schema.blocks import (
    NEEDS,
    RECOVERY,
    SUCCESS,
    ContainerType,
    HangType,
    InputsType,
    SlurmType,
)
from safelaunch.config.schema.ending.keys import END_KEYS, HOST_END_KEYS
from safelaunch.config.schema.engines.card_queue import QueueType
from safelaunch.config.schema.engines.kubernetes import KUBERNETES_TYPE
from safelaunch.config.schema.engines.ray import RAY_TYPE
from safelaunch.config.schema.env_types import EnvType, ProfileEnvType
from safelaunch.config.schema.host_types import HOST_NAME, SSH_NAME, USER, Addresses, Hub, Port
from safelaunch.config.schema.keys import Block, Key, Schema
from safelaunch.config.schema.members.fan_out import FAN_OUT_KEYS
from safelaunch.config.schema.members.services import NOT_OF_SERVICES, SERVICE, SERVICE_NAME
from safelaunch.config.schema.members.variables import VarsType
from safelaunch.config.schema.members.words import readable
from safelaunch.config.schema.profile_facts import DATE, FactsType
from safelaunch.config.schema.sync import SYNC, AssetsType
from safelaunch.config.schema.text_checks import check_kind
from safelaunch.config.schema.types import (
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
from safelaunch.config.schema.units import Bool, Duration, Glob, Pattern, Size
from safelaunch.errors import ConfigError
from safelaunch.model import Needs, Sync
from safelaunch.runtime.start.accelerators import ACCELERATORS

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node


class SmokeType:
    """Keys of a job, checked whether or not this start uses them."""

    wants = "a mapping of job keys"

    def read(self, node: Node) -> dict[str, Any]:
        check_kind(node, "map", self.wants)
        for key, _ in node.items:
            if key.text in ("extends", "smoke", "steps"):
                raise ConfigError(
                    f"`{key.text}` inside `smoke`",
                    where=key.origin,
                    hint="write it one level up" if key.text == "extends" else None,
                )
        return JOB.read(readable(node))[0]

    def schema(self) -> Shape:
        names = [key.name for key in JOB.keys if key.name not in ("extends", "smoke", "steps")]
        return json_types.record({name: {"$ref": f"#/properties/{name}"} for name in names})


class ServicesType:
    """Services by name: the keys of a job, and those of a service."""

    wants = "a mapping of names to services"

    def read(self, node: Node) -> dict[str, dict[str, Any]]:
        check_kind(node, "map", self.wants)
        return {SERVICE_NAME.read(name): self._service(keys) for name, keys in node.items}

    def _service(self, node: Node) -> dict[str, Any]:
        """Return the keys that a job has not; those of a job are checked."""
        check_kind(node, "map", "a mapping such as {script: server.py, ready: {http: /health}}")
        own = [item for item in node.items if SERVICE.find(item[0].text)]
        for key, _ in node.items:
            if key.text in NOT_OF_SERVICES:
                raise ConfigError(
                    f"`{key.text}` of a service", where=key.origin, hint="the job itself has it"
                )
        rest = replace(node, items=tuple(item for item in node.items if item not in own))
        JOB.check_keys(rest)
        JOB.read(readable(rest))
        return SERVICE.read(replace(node, items=tuple(own)))[0]

    def schema(self) -> Shape:
        names = [key.name for key in JOB.keys if key.name not in NOT_OF_SERVICES]
        shapes: Shape = {name: {"$ref": f"#/properties/{name}"} for name in names}
        for key in SERVICE.keys:
            shapes[key.name] = {**json_types.nullable(key.type.schema()), "description": key.help}
        return json_types.mapped(json_types.record(shapes))


class StepsType:
    """Steps of a file: each has the keys of a job, and `after`."""

    wants = "a mapping of steps, each with the keys of a job"

    def read(self, node: Node) -> tuple[str, ...]:
        check_kind(node, "map", self.wants)
        for key, value in node.items:
            STEP_NAME.read(key)
            if value.is_null:
                continue
            check_kind(value, "map", "a mapping of job keys")
            STEP.check_keys(value)
            STEP.read(readable(value))
        names = tuple(key.text for key, value in node.items if not value.is_null)
        if not names:
            raise ConfigError("`steps` has no step", where=node.origin)
        return names

    def schema(self) -> Shape:
        own = {name: {"$ref": f"#/properties/{name}"} for name in _step_keys()}
        after = json_types.either(json_types.text(), json_types.listed(json_types.text()))
        return json_types.mapped(json_types.record({**own, "after": after}))


def _step_keys() -> list[str]:
    return [key.name for key in JOB.keys if key.name not in ("extends", "name", "steps")]


STEP_NAME = Text(
    "a name of a step",
    r"[A-Za-z0-9][A-Za-z0-9_]{0,30}",
    "is no name of a step: letters, digits and `_`, at most 31",
)
NAME = Text(
    "a name",
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}",
    "is no job name: letters, digits, `_` and `-`, at most 41, beginning with a letter or digit",
)
_MODULE = Text(
    "a module", r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)*", "is no module name such as `package.train`"
)
_ENVIRONMENT = Text("a name", r"[^\s/:]+", "is no environment name; a path goes under `venv:`")
_PATHS = ListOf(PathText(), "paths", single=True)
_NAMES = ListOf(Text("a name"), "names")
_SMALLEST_LOG = 64 << 20  # bytes: a head and a tail that still show how a run began and ended
_SUCCESS = Block(SUCCESS, "a mapping such as {artifacts: model.safetensors}")
_RECOVERY = Block(RECOVERY, "a mapping such as {max_restarts: 3}")
_SYNC = Block(SYNC, "a mapping such as {exclude: [data/]}", Sync)
_MODULES = ListOf(_MODULE, "modules", single=True)
_START = Choice(("launcher", "direct"))
_GRACE = Duration(zero=True)
_SLURM = SlurmType()
_CONTAINER = ContainerType()
_NEEDS = Block(NEEDS, "a mapping such as {gpu_memory: 24GiB, disk: 200GiB}", Needs)
_INTERPRETER = (
    Key("python", PathText(), "absolute path of the interpreter, or relative to this file"),
    Key("venv", PathText(), "a virtual environment; its bin/python runs the job"),
    Key("conda", _ENVIRONMENT, "a conda environment by name; needs conda_root"),
    Key("conda_root", PathText(), "where conda is installed, such as /opt/conda"),
)

JOB = Schema(
    "job",
    (
        Key("extends", _PATHS, "job files that this one builds on"),
        Key("name", NAME, "names the run; default: the file's name"),
        Key("profile", Text("a profile"), "hardware profile, by name or as a path"),
        Key("launcher", Text("a launcher"), ", ".join(launchers.NAMES)),
        Key("prefix", WordsType(), "words in front of the launcher, such as [numactl, -N, 0]"),
        Key("version", Text("a version"), "the launcher's version, where its command line differs"),
        Key("script", PathText(), "the program, relative to workdir"),
        Key("module", _MODULE, "or a module, as in python -m"),
        Key("command", WordsType(), "or the words themselves"),
        Key("args", ArgsType(), "arguments of the program: a mapping or a list"),
        Key("processes", Count(), "processes per node"),
        Key("gpus", GpuSet(), "GPUs per node: auto, a count, or a list"),
        Key("queue", QueueType(), "wait until so many cards of the machine are free"),
        Key("nodes", Count(), "number of machines; several need hosts, node_rank or --on"),
        Key("node_rank", Count(0), "which node this machine is, to start each node by hand"),
        Key("hosts", ListOf(HOST_NAME, "hosts"), "the machines, in rank order"),
        Key("mixed_precision", Choice(("no", "fp16", "bf16", "fp8")), "passed to accelerate"),
        Key("launcher_args", ArgsType(), "whatever else the launcher itself understands"),
        Key("start", _START, "direct: start the ranks without the launcher, as it would"),
        Key("peer_grace", _GRACE, "start: direct: how long other ranks go on after a failure"),
        Key("preload", _MODULES, "start: direct: modules imported once a node, before its ranks"),
        *_INTERPRETER,
        Key("python_options", WordsType(), "options of the Python that runs the launcher"),
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
        Key("capture", Bool(), "record a rank's uncaught exceptions and fatal signals"),
        Key("logs", ListOf(Glob(), "globs", single=True), "the framework's own log files"),
        Key("log_cap", Size(_SMALLEST_LOG), "most that a log file keeps: its head and its tail"),
        Key("max_duration", Duration(), "stop the job after this time"),
        Key(
            "progress",
            ListOf(Pattern(groups=("step", "total", "loss", "eta")), "patterns", single=True),
            "regular expressions that find step, total, loss and eta in the log",
        ),
        Key("success", _SUCCESS, "what a run must leave behind, beyond exit code 0"),
        Key("hang", HangType(), "off, or when no progress is a hang and what then happens"),
        Key("recovery", _RECOVERY, "restart a failed run, by failure class"),
        *END_KEYS,
        Key("sync", _SYNC, "which files of the project are copied to a host"),
        Key("assets", AssetsType(), "models and data by name, copied beside the project"),
        Key("needs", _NEEDS, "what each machine must have: gpu_memory, ram, disk, shm"),
        Key("inputs", InputsType(), "paths that must exist; a glob must match exactly one"),
        Key("slurm", _SLURM, "what Slurm is asked for, over the block of the hosts file"),
        Key(
            "kubernetes",
            KUBERNETES_TYPE,
            "what Kubernetes is asked for, over that of the hosts file",
        ),
        Key("ray", RAY_TYPE, "what a Ray is asked for, over the block of the hosts file"),
        Key("ray_cluster", Bool(), "bring up a Ray on the job's nodes before the program"),
        Key("container", _CONTAINER, "the image that it runs in, over the block of the hosts file"),
        Key("services", ServicesType(), "programs that run beside the job, ready before it begins"),
        *FAN_OUT_KEYS,
        Key("vars", VarsType(), "variables by name: {vars.NAME} stands for the value of each"),
        Key("smoke", SmokeType(), "job keys that `run --smoke` sets on top of this job"),
        Key("steps", StepsType(), "jobs one after another, with the keys of this one as defaults"),
    ),
)

STEP = Schema(
    "step",
    (
        *(key for key in JOB.keys if key.name in _step_keys()),
        Key("after", ListOf(STEP_NAME, "steps", single=True), "default: the step before"),
    ),
)

PROFILE = Schema(
    "profile",
    (
        Key("extends", ListOf(Text("a profile"), "profiles", single=True), "profiles to build on"),
        Key("description", Text(), "one line"),
        Key("accelerator", Choice(tuple(ACCELERATORS)), "what the ranks compute on"),
        Key("gpu_names", Text("a regular expression"), "whole names as nvidia-smi prints them"),
        Key("facts", FactsType(), "what the platform is, for people and checks; {value, source}"),
        Key("env", ProfileEnvType(), "variables with why, cost, source, when"),
        Key("site", ProfileEnvType(valued=False), "variables that only the site knows"),
        Key("ladder", ListOf(ProfileEnvType(), "steps"), "the steps of --nccl-ladder, in order"),
        Key("sources", ListOf(Text(), "sources"), "what else was read about the platform"),
        Key("checked", DATE, "the day on which the sources of this file were last read"),
    ),
)

HOST = Schema(
    "host",
    (
        Key("ssh", SSH_NAME, "its name in ~/.ssh/config, if that is another"),
        Key("address", Addresses(), "or one address, or several of the same machine"),
        Key("user", USER, "account on the machine"),
        Key("port", Port(), "port of its SSH server"),
        Key("identity", PathText(), "key file on this machine; ~/ is your home folder"),
        Key("transport", Choice(("paramiko", "ssh")), "what connects; default: what is needed"),
        Key("profile", Text("a profile"), "hardware profile of this machine"),
        *_INTERPRETER,
        Key("workdir", PathText(), "project folder there, ~/...; or shared, shared:PATH"),
        Key("env", EnvType(), "variables on this machine"),
        Key("setup", SetupType(), "shell lines run first on this machine"),
        Key("interface", Text("an interface"), "network interface towards the other nodes"),
        Key("facts", MapOf(Text(), "facts"), "nccl, driver, torch, cuda, p2p: for gates"),
        Key("start", _START, "direct: for jobs that do not say how their ranks are started"),
        Key("slurm", _SLURM, "what Slurm is asked for, where this is a login node of a cluster"),
        Key("kubernetes", KUBERNETES_TYPE, "what Kubernetes is asked for, where this is a cluster"),
        Key("ray", RAY_TYPE, "what a Ray is asked for that shares its files with this machine"),
        Key("container", _CONTAINER, "the image that jobs run in on this machine"),
        *HOST_END_KEYS,
        Key("hub", Hub(), "online, offline, or the https:// address of a mirror"),
    ),
)
