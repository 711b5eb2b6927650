"""The container of a node: its block with all mounts, and the command as a dry-run prints it."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safelaunch import engines
from safelaunch.engines.slurm import container as in_slurm
from safelaunch.engines.slurm.container import PYTHON
from safelaunch.errors import ConfigError
from safelaunch.model import (
    Container,
    Interpreter,
    Kubernetes,
    Mount,
    Origin,
    Slot,
    bind_word,
    parent_path,
    text,
)
from safelaunch.runtime.containers.command_line import (
    HOME,
    VARIABLES,
    run_words,
    supervisor_words,
)
from safelaunch.runtime.records import ContainerMachine, ContainerMount, ContainerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Facts, Host, Job, NodePlan, Profile, Word

CHOICE = "docker, else podman"  # where no engine is named
_GLOB = re.compile(r"[*?\[{]")
RUNS = text(Slot.STORE, "/runs")  # a supervisor makes its folder again where somebody removes it
HOME_FOLDER = text(Slot.STORE, f"/{HOME}")


def block_of(job: Job, host: Host) -> Container | None:
    """Return the block of a job over that of its host; None without a container.

    Raises ConfigError.
    """
    base = None if host.container is None or host.container.off else host.container
    own = job.container
    if (own is not None and own.off) or isinstance(job.request, Kubernetes):
        return None  # whose own block names the image
    block = own if base is None else base if own is None else own.over(base)
    if block is None:
        return None
    if block.image is None:
        raise ConfigError(
            "a container without an image",
            where=block.origin,
            hint="`image: NAME`, or --container IMAGE",
        )
    _check_engine(block, job)
    return block


def _check_engine(block: Container, job: Job) -> None:
    """Refuse a container that cannot be where the job runs. Raises ConfigError."""
    is_of_step = block.engine in in_slurm.NAMES
    if is_of_step and job.engine == in_slurm.ENGINE:
        in_slurm.check(block)
    elif is_of_step:
        raise ConfigError(
            f"`engine: {block.engine}`: safelaunch uses it inside of a Slurm job alone",
            where=block.origins["engine"],
            hint="--on slurm, or a host with a `slurm` block; else `engine: docker` or `podman`",
        )
    elif job.engine is not None:
        title = engines.load(job.engine).TITLE
        others = f"`engine: {', '.join(in_slurm.NAMES)}` stay in it; "
        raise ConfigError(
            f"a container of docker or podman inside a {title} job: it is not in the job's group, "
            "so it goes on after its end and beyond its memory limit",
            where=block.origin,
            hint=f"{others * (job.engine == in_slurm.ENGINE)}`--container off` runs without it",
        )


def on_login_node(node: NodePlan) -> NodePlan:
    """Return a node as the machine that submits it can look at: without the image."""
    is_inside = node.container is not None and node.container.engine in in_slurm.NAMES
    return replace(node, container=None, interpreter=Interpreter()) if is_inside else node


def of_node(block: Container, job: Job, project: Word, profile: Profile | None) -> Container:
    """Return the block with all that a node's job needs of its machine. Raises ConfigError."""
    own = [Mount(path) for path in _own_folders(job, project)]
    read_only = [replace(Mount(path), read_only=True) for path in _read_folders(job)]
    needed = [*own, *read_only, *block.mounts, Mount(HOME_FOLDER), Mount(RUNS)]
    mounts: list[Mount] = []
    for mount in needed:
        if str(mount.place) == "/":
            raise ConfigError(
                "`/` as a folder of the container: the image has its own",
                where=mount.origin if mount in block.mounts else block.origin,
                hint="an empty pyproject.toml makes its folder the project",
            )
        if not any(_covers(other, mount) for other in mounts):
            mounts.append(mount)
    accelerator = "" if profile is None else profile.accelerator
    return replace(block, mounts=tuple(mounts), accelerator=accelerator)


def _own_folders(job: Job, project: Word) -> Iterator[Word]:
    """Yield the folders that the job runs in, imports from and writes to."""
    yield project
    yield job.workdir
    yield from job.pythonpath
    recovery = job.supervision.recovery
    written = (job.log, recovery.checkpoint if recovery is not None else None)
    for path in written:
        if path is not None and path.startswith("/"):
            yield _folder(path)


def _read_folders(job: Job) -> Iterator[Word]:
    """Yield what the job names as its inputs."""
    for item in job.inputs:
        if item.path.startswith("/"):
            yield _folder(item.path) if _GLOB.search(item.path) else item.path
    for asset in job.assets:
        yield asset.place
    if job.script is not None and job.script.startswith("/"):
        yield parent_path(job.script)


def _folder(pattern: str) -> str:
    """Return the folder of a path or glob whose names are fixed."""
    parts = pattern.split("/")
    fixed = next((n for n, part in enumerate(parts) if _GLOB.search(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or "/"


def _covers(mount: Mount, other: Mount) -> bool:
    """Whether what one mount shows is in another one already, and as writable."""
    if mount.target is not None or other.target is not None:
        return False
    outer, inner = str(mount.source), str(other.source)
    is_inside = inner == outer or inner.startswith(outer.rstrip("/") + "/")
    return is_inside and (other.read_only or not mount.read_only)


def bind_mounts(container: Container, facts: Facts) -> Container:
    """Return the container with the slots of its paths filled from the facts."""
    mounts = tuple(
        replace(
            mount,
            source=bind_word(mount.source, facts),
            target=None if mount.target is None else bind_word(mount.target, facts),
        )
        for mount in container.mounts
    )
    return replace(container, mounts=mounts)


def with_folder(container: Container, path: Word) -> Container:
    """Return the container with one more folder of the machine, for writing.

    What it already sees of that folder is then no mount of its own, from which nothing can be moved
    to another.
    """
    mount = Mount(path)
    if path == "/" or any(_covers(other, mount) for other in container.mounts):
        return container
    others = [other for other in container.mounts if not _covers(mount, other)]
    return replace(container, mounts=(mount, *others))


def spec_of(node: NodePlan, home: Word) -> ContainerSpec:
    """Return what the command is made of; `home` is the home folder in the container."""
    if node.container is None:
        raise ValueError("the node runs in no container")
    environ = {
        name: str(node.env[name].value)
        for name in VARIABLES
        if name in node.env and node.env[name].value
    }
    return block_spec(node.container, home, node.interpreter.path, environ)


def block_spec(
    container: Container,
    home: Word,
    python: Word | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> ContainerSpec:
    """Return what the command of a block is made of; `python` is the job's own interpreter."""
    return ContainerSpec(
        engine=container.engine or "",
        image=str(container.image),
        mounts=[
            ContainerMount(
                source=str(mount.source), target=str(mount.place), read_only=mount.read_only
            )
            for mount in container.mounts
        ],
        home=str(home),
        shm=container.shm,
        user=container.user,
        python=str(python or container.python or PYTHON),
        pull=container.pull,
        options=list(container.options),
        environ=dict(environ),
        accelerator=container.accelerator,
    )


def container_name(run_id: str, node: int) -> str:
    """Return what a container is called: the run's id, so that `docker ps` shows it."""
    return f"{run_id}.{node}" if node else run_id


def printed_words(node: NodePlan) -> list[str]:
    """Return the engine's command as a dry-run knows it: what the machine decides is `<uid>`.

    Options that depend on the machine are those of one that has all: `notes` names them.
    """
    own = node.container
    if own is not None and own.engine in in_slurm.NAMES:
        words = [*in_slurm.srun_options(own, {}), *in_slurm.command(own, {})]
        return [*words, in_slurm.interpreter(node, {})]
    spec = spec_of(node, HOME_FOLDER)
    engine = spec.engine or "docker"
    machine = ContainerMachine(engine=engine, name="<user>", gpus=spec.accelerator == "cuda")
    run_dir = str(Slot.RUN_DIR)
    words = run_words(
        spec,
        machine,
        container_name(str(Slot.RUN_ID), node.node_rank),
        supervisor_words(spec.python, run_dir),
        run_dir,
    )
    if spec.user == "me":
        words[words.index("--user") + 1] = "<uid>:<gid>"
    return words


def container_json(node: NodePlan) -> dict[str, Any]:
    """Return what `run --dry-run --json` says of the container of a node."""
    container = node.container
    if container is None:
        return {}
    return {
        "engine": container.engine,
        "image": container.image,
        "argv": printed_words(node),
        "origins": [
            {"key": key, "value": value, "origin": str(origin)}
            for key, value, origin in origins(container)
        ],
    }


def origins(container: Container) -> Iterator[tuple[str, str, Origin | str]]:
    """Yield key, value and origin of each key of a container."""
    values = {
        "engine": container.engine or CHOICE,
        "image": container.image or "",
        "shm": "host" if container.shm is None else str(container.shm),
        "user": container.user,
        "python": container.python or PYTHON,
        "pull": container.pull,
        "options": " ".join(container.options) or "none",
    }
    for key, value in values.items():
        yield key, value, container.origins.get(key, "built-in")
    for mount in container.mounts:
        shown = str(mount.source) if mount.target is None else f"{mount.source}:{mount.place}"
        mode = ":ro" if mount.read_only else ""
        yield "mounts", shown + mode, mount.origin
