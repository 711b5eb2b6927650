"""The blocks of a job file with keys of their own: success, hang, recovery, needs, slurm ...

Each block is a schema of its own. What depends on the rest of the job is checked in supervision.py.
"""
# ruff: noqa: D102 - types.Type describes `read` and `schema`
# ruff: noqa: PLC0415 - the failure classes are imported only by files and schemas that name them

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.engines.block_type import BlockType
from safelaunch.config.schema.engines.kubernetes import KUBERNETES
from safelaunch.config.schema.engines.ray import RAY
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.members.fan_out import SHARDS
from safelaunch.config.schema.text_checks import (
    check_kind,
    check_text,
    read_command_words,
    shorten,
    wrong,
)
from safelaunch.config.schema.types import (
    ArgsType,
    Choice,
    Count,
    ListOf,
    SetupType,
    Text,
    WordsType,
)
from safelaunch.config.schema.units import Bool, Duration, Glob, Pattern, Size
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import Container, Hang, Input, Mount, SbatchOption, Slurm
from safelaunch.runtime.units import job_duration

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node


class FailureClasses:
    """Failure classes and what to do about each: `{port-in-use: restart, cuda-oom: stop}`."""

    wants = "a mapping of failure classes to restart or stop"
    action = Choice(("restart", "stop"))

    def read(self, node: Node) -> dict[str, str]:
        """Return {class: "restart" or "stop"}; a null removes an inherited entry."""
        from safelaunch.runtime.signatures import classes

        check_kind(node, "map", self.wants)
        for key, _ in node.items:
            if key.text not in classes.TABLE:
                raise ConfigError(
                    f"unknown failure class `{key.text}`",
                    where=key.origin,
                    hint=did_you_mean(key.text, classes.TABLE) or "docs/job-file.md lists them",
                )
        return {k.text: self.action.read(value) for k, value in node.items if not value.is_null}

    def schema(self) -> Shape:
        from safelaunch.runtime.signatures import classes

        action = json_types.nullable(self.action.schema())
        shapes = {name: {**action, "description": c.meaning} for name, c in classes.TABLE.items()}
        return json_types.record(shapes)


_SIZE = Size(1 << 20)
_PATH = Glob()
NEEDS = Schema(
    "needs",
    (
        Key("gpu_memory", _SIZE, "memory of each GPU"),
        Key("ram", _SIZE, "memory of the machine, or of its container"),
        Key("disk", _SIZE, "free space where the job writes"),
        Key("shm", _SIZE, "free space in /dev/shm"),
    ),
)
SUCCESS = Schema(
    "success",
    (
        Key("artifacts", ListOf(Glob(inside=True), "globs", single=True), "files of a good run"),
        Key("min_steps", Count(), "steps that a good run has made"),
    ),
)
HANG = Schema(
    "hang",
    (
        Key("action", Choice(("report", "restart", "stop")), "what to do about a suspected hang"),
        Key("first_progress", Duration(), "the limit until two steps have been seen"),
        Key("factor", Count(), "so many median steps without progress are a hang"),
        Key("floor", Duration(), "never suspect a hang before"),
    ),
)
RECOVERY = Schema(
    "recovery",
    (
        Key("max_restarts", Count(0), "so many restarts at most"),
        Key("backoff", Duration(zero=True), "pause before the first restart, doubled each time"),
        Key("backoff_max", Duration(zero=True), "the longest pause"),
        Key("budget", Duration(), "no restart later than this after the start"),
        Key("classes", FailureClasses(), "restart or stop, by failure class"),
        Key("checkpoint", Glob(), "a new match is progress"),
        Key("progress", Pattern(), "a line of the log that is progress"),
        Key("no_progress", Count(), "stop after so many attempts without progress"),
        Key("resume_args", ArgsType(), "merged over `args` from the second attempt on"),
        Key("fingerprint", ListOf(Text("a name"), "names"), "more arguments that must not change"),
        Key("ladder", Bool(), "climb the profile's ladder on illegal memory access"),
    ),
)


class SlurmTime(Duration):
    """A duration as everywhere; a time as sbatch takes it is refused with the duration."""

    # days-hours[:minutes[:seconds]] or [hours:]minutes:seconds (sbatch(1), --time)
    _FORM = re.compile(r"(?:([0-9]{1,3})-([0-9]{1,3})|([0-9]{1,5}))((?::[0-9]{1,2}){0,2})")

    def read(self, node: Node) -> float:
        try:
            return super().read(node)
        except ConfigError as error:
            match = self._FORM.fullmatch(node.text) if node.kind == "scalar" else None
            if match is not None and (match[1] or match[4]):
                first = [match[2]] if match[1] else [match[3]]
                parts = [int(part) for part in (*first, *match[4].split(":")[1:])]
                units = (3600, 60, 1) if match[1] or len(parts) > 2 else (60, 1)  # noqa: PLR2004
                seconds = sum(part * unit for part, unit in zip(parts, units, strict=False))
                seconds += int(match[1] or 0) * 86400
                error.hint = f"write it with its units: `{job_duration(seconds)}`"
            raise


class SbatchOptions:
    """Options of sbatch, word for word: `[--mail-type=END, --nice, "100"]`."""

    wants = "a list of words, such as [--mail-type=END]"

    def read(self, node: Node) -> tuple[SbatchOption, ...]:
        """Return the options, each with the words behind it. Raises ConfigError."""
        check_kind(node, "list", self.wants)
        options: list[SbatchOption] = []
        pairs = zip(read_command_words(node), node.items, strict=True)
        for word, item in pairs:
            if "\n" in word:
                raise ConfigError("a line break in an option of sbatch", where=item.origin)
            if word.startswith("-"):
                options.append(SbatchOption((word,), item.origin))
            elif options and len(options[-1].words) == 1:
                options[-1] = SbatchOption((*options[-1].words, word), options[-1].origin)
            else:
                raise ConfigError(
                    f"`{shorten(word)}` is no option of sbatch",
                    where=item.origin,
                    hint="options begin with `-`; the words of the job are its own",
                )
        return tuple(options)

    def schema(self) -> Shape:
        return WordsType().schema()


# printable ASCII without blanks: what sbatch takes as the value of an option, and no option
_SLURM_WORD = Text(
    "a word", r"[!-,.-~][!-~]*", "is no word for sbatch: no blanks, ASCII, no `-` first"
)
_GPU_TYPE = Text("a GPU type", r"[A-Za-z0-9_.-]+", "is no GPU type such as h100")
_NODES = ListOf(_SLURM_WORD, "nodes", single=True)
_MEMORY = Size(1 << 20)
_MAX_SIGNAL = 65535  # seconds, sbatch(1), --signal
SLURM = Schema(
    "slurm",
    (
        Key("partition", _SLURM_WORD, "partition, or several with commas"),
        Key("account", _SLURM_WORD, "the account that pays"),
        Key("qos", _SLURM_WORD, "quality of service"),
        Key("time", SlurmTime(), "the time limit; default: max_duration and five minutes"),
        Key("gpu_type", _GPU_TYPE, "type of the GPUs, such as h100"),
        Key("gres", Bool(), "request GPUs by --gres=gpu: and not by --gpus-per-node="),
        Key("gpus_per_node", Count(), "GPUs of a node, for jobs that take all or do not say"),
        Key("cpus_per_gpu", Count(), "cores for each GPU"),
        Key("cpus_per_task", Count(), "or cores for each node"),
        Key("mem", _MEMORY, "memory of each node"),
        Key("mem_per_gpu", _MEMORY, "or for each GPU"),
        Key("mem_per_cpu", _MEMORY, "or for each core"),
        Key("constraint", _SLURM_WORD, "features that the nodes must have"),
        Key("exclude", _NODES, "nodes not to use"),
        Key("nodelist", _NODES, "nodes to use"),
        Key("reservation", _SLURM_WORD, "a reservation by name"),
        Key("exclusive", Bool(), "share no node with other jobs"),
        Key("signal", Duration(zero=True), "tell the ranks so long before the time limit"),
        Key("requeue", Bool(), "whether Slurm may start it again: preempted, a node failed"),
        Key("setup", SetupType(), "shell lines of the batch script, before its srun"),
        Key("options", SbatchOptions(), "further options of sbatch, word for word"),
        Key("prefix", WordsType(), "words before sbatch, squeue and the others"),
    ),
)


class ShmSize:
    """The size of /dev/shm in a container: `host`, which reads as None, or bytes."""

    wants = "`host`, or a size such as 64GiB"

    def read(self, node: Node) -> int | None:
        return None if node.kind == "scalar" and node.text == "host" else _SIZE.read(node)

    def schema(self) -> Shape:
        return json_types.either(json_types.words("host"), _SIZE.schema())


_IMAGE_PYTHON = Text(
    "an interpreter", r"/\S+|[A-Za-z0-9][^\s/]*", "is neither an absolute path nor a plain name"
)


class Mounts:
    """Folders of the machine that a container sees: `[/data, ~/.cache, /src:/code:ro]`."""

    wants = "a list of folders, such as [/data, /models:/models:ro]"

    def read(self, node: Node) -> tuple[Mount, ...]:
        """Return the mounts as they are written. Raises ConfigError."""
        items = node.items if node.kind == "list" else (node,)
        if node.kind == "map" or node.is_null:
            raise wrong(node, self.wants)
        return tuple(self._mount(item) for item in items)

    def _mount(self, item: Node) -> Mount:
        check_kind(item, "scalar", self.wants)
        check_text(item)
        parts = item.text.split(":")
        mode = parts.pop() if parts[-1] in ("ro", "rw") else "rw"
        if not parts or not parts[0] or len(parts) > 2 or "\n" in item.text:  # noqa: PLR2004
            raise ConfigError(
                f"`{shorten(item.text)}` is no mount",
                where=item.origin,
                hint="FOLDER, or FOLDER:IN_THE_CONTAINER, and `:ro` behind it for reading only",
            )
        target = parts[1] if len(parts) > 1 else None
        if target is not None and not target.startswith("/"):
            raise ConfigError(
                f"`{shorten(target)}` is no absolute path in the container", where=item.origin
            )
        return Mount(parts[0], target, mode == "ro", item.origin)

    def schema(self) -> Shape:
        text = json_types.text(r"[^:\n]+(:/[^:\n]*)?(:r[ow])?", f"expected {self.wants}")
        return json_types.either(text, json_types.listed(text))


# options of `docker run` that the plan sets itself, or that would part a container from its run;
# with what says the same, where there is such a key
_OWN_OPTIONS = {
    **dict.fromkeys(("--user", "-u"), "write `user: root`, or leave it out for your own uid"),
    **dict.fromkeys(("--shm-size", "--ipc"), "write `shm: 64GiB`, or `shm: host`"),
    **dict.fromkeys(("--pull",), "write `pull: missing`"),
    **dict.fromkeys(
        (
            *("--name", "--pid", "--network", "--net", "--entrypoint", "--rm", "--restart"),
            *("--detach", "-d", "--interactive", "-i", "--tty", "-t", "-it", "-ti", "--init"),
            "--log-driver",
        ),
        "leave it out: the plan sets it, so that the run is owned to its end",
    ),
}


class EngineOptions(WordsType):
    """Further words of `docker run` or `podman run`: `[--memory=200g, --cap-add, SYS_NICE]`."""

    def read(self, node: Node) -> tuple[str, ...]:
        """Return the words. Raises ConfigError for those that the plan has."""
        words = super().read(node)
        for word, item in zip(words, node.items, strict=True):
            hint = _OWN_OPTIONS.get(word.partition("=")[0])
            if hint is not None:
                raise ConfigError(f"`{word}` of a container", where=item.origin, hint=hint)
        return words


_IMAGE = Text("an image", r"[^\s-]\S*", "is no image: no blanks, no `-` first")
_ENGINES = ("docker", "podman", "apptainer", "singularity", "pyxis", "charliecloud")
_NO_CONTAINER = "off"
CONTAINER = Schema(
    "container",
    (
        Key("engine", Choice(_ENGINES), "docker, else podman; in Slurm apptainer, pyxis, ..."),
        Key("image", _IMAGE, "the image, as the engine names it"),
        Key("mounts", Mounts(), "more folders of the machine: /data, or FROM:TO, and :ro"),
        Key("shm", ShmSize(), "size of /dev/shm; default: host, the machine's own"),
        Key("user", Choice(("me", "root")), "who it runs as: me (default), or root"),
        Key("python", _IMAGE_PYTHON, "the image's interpreter; default: python3"),
        Key("pull", Choice(("never", "missing", "always")), "fetch the image; default: never"),
        Key("options", EngineOptions(), "further options of the engine's run or exec"),
    ),
)
# of each group sbatch takes one
EXCLUSIVE_KEYS = (("mem", "mem_per_gpu", "mem_per_cpu"), ("cpus_per_gpu", "cpus_per_task"))
BLOCKS = {
    schema.name: schema
    for schema in (SUCCESS, HANG, RECOVERY, NEEDS, SLURM, KUBERNETES, RAY, CONTAINER, SHARDS)
}


def check_exclusive_keys(block: Slurm) -> None:
    """Refuse a block with two keys of which sbatch takes one. Raises ConfigError."""
    for group in EXCLUSIVE_KEYS:
        present = [key for key in group if getattr(block, key) is not None]
        if len(present) > 1:
            first, second = sorted(present, key=lambda key: list(block.origins).index(key))[:2]
            raise ConfigError(
                f"`{first}` and `{second}` together: sbatch takes one of them",
                where=block.origins[second],
                hint=f"`{first}` is set at {block.origins[first]}; `{first}: null` removes it",
            )


class ContainerType:
    """An image, `off`, or a mapping of which every part but the image has a default."""

    wants = "an image, `off`, or a mapping such as {image: pytorch:2.9, mounts: [/data]}"

    def read(self, node: Node) -> Container:
        if node.kind == "scalar":
            if node.text == _NO_CONTAINER:
                return Container(off=True, origin=node.origin, origins={"off": node.origin})
            image = _IMAGE.read(node)
            return Container(image=image, origin=node.origin, origins={"image": node.origin})
        check_kind(node, "map", self.wants)
        values, _ = CONTAINER.read(node)
        origins = {key.text: value.origin for key, value in node.items}
        return Container(**values, origin=node.origin, origins=origins)

    def schema(self) -> Shape:
        return json_types.either(_IMAGE.schema(), CONTAINER.schema())


class SlurmType(BlockType[Slurm]):
    """What Slurm is asked for, as keys of its own."""

    def __init__(self) -> None:
        super().__init__(SLURM, Slurm, "a mapping such as {partition: gpu, time: 24h}")

    def read(self, node: Node) -> Slurm:
        block = super().read(node)
        if block.signal > _MAX_SIGNAL:
            raise ConfigError(
                f"Slurm takes at most {_MAX_SIGNAL} s for `signal`", where=block.origins["signal"]
            )
        check_exclusive_keys(block)
        return block


class HangType:
    """`off`, which reads as None, or a mapping of which every part has a default."""

    wants = "`off` or a mapping such as {action: stop}"

    def read(self, node: Node) -> Hang | None:
        if node.kind == "scalar" and node.text == "off":
            return None
        if node.kind != "map":
            error = wrong(node, self.wants)
            if node.kind == "scalar" and node.text in ("report", "restart", "stop"):
                error.hint = f"hang: {{action: {node.text}}}"
            elif node.kind == "scalar" and node.text == "false":
                error.hint = "hang: off"
            raise error
        return Hang(**HANG.read(node)[0])

    def schema(self) -> Shape:
        return json_types.either(json_types.words("off"), HANG.schema())


class InputsType:
    """Paths, and globs that must match exactly one path, relative to workdir."""

    wants = "a list of paths or globs"

    def read(self, node: Node) -> tuple[Input, ...]:
        if node.kind == "map" or node.is_null:
            raise wrong(node, self.wants)
        items = node.items if node.kind == "list" else (node,)
        return tuple(Input(_PATH.read(item), item.origin) for item in items)

    def schema(self) -> Shape:
        return json_types.either(_PATH.schema(), json_types.listed(_PATH.schema()))
