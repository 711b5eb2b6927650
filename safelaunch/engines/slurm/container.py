"""The containers in which a job of Slurm starts its supervisors: words of srun, and before Python.

All are children of the step, in its control group, and have the network and the process ids of
their machine. Those of docker and podman are not, so that they outlive the job (plan/container.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import BUILT_IN, bind_word
from safelaunch.runtime.containers.command_line import HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Container, Facts, Mount, NodePlan, Word

ENGINE = "slurm"
APPTAINER = ("apptainer", "singularity")  # two programs of one origin, with the same options
PYXIS = "pyxis"  # a plug-in of srun, over enroot
CHARLIECLOUD = "charliecloud"
PYTHON = "python3"  # of an image, where nothing names another one
NAMES = (*APPTAINER, PYXIS, CHARLIECLOUD)
# apptainer exec --help: an image is a file, a folder, or one of these
_APPTAINER_SOURCES = ("docker://", "oras://", "library://", "shub://")
_GPUS = {"cuda": "--nv", "rocm": "--rocm"}  # apptainer.org/docs/user/latest/gpu.html
# a path for these would be cut in two
_SEPARATORS = {**dict.fromkeys(APPTAINER, ":,"), PYXIS: ":,", CHARLIECLOUD: ":"}
_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check(block: Container) -> None:
    """Refuse a block that its tool cannot run so. Raises ConfigError."""
    engine, image = str(block.engine), str(block.image)
    where = block.origins.get("image", block.origin)
    if engine == PYXIS:
        is_fetched = not image.startswith("/")
        if image.endswith(".sif"):
            message = f"pyxis takes a squashfs file of enroot: {image}"
            raise ConfigError(message, where=where, hint="`engine: apptainer` takes a .sif file")
    else:
        is_fetched = "://" in image
        _check_path(engine, image, str(where))
    if is_fetched and block.pull == "never":
        raise ConfigError(
            f"{engine} would fetch {image} on each node as the job starts",
            where=where,
            hint=f"{_how_to_fetch(engine, image)}; or `pull: missing`",
        )
    if "shm" in block.origins and block.shm is not None:
        raise ConfigError(
            f"`shm` with {engine}: /dev/shm is that of the machine",
            where=block.origins["shm"],
            hint="leave it out",
        )
    for mount in block.mounts:
        _check_mount(engine, mount)


def _check_path(engine: str, image: str, where: str) -> None:
    """Refuse an image that is neither a path nor what the tool fetches. Raises ConfigError."""
    is_known = engine in APPTAINER and image.startswith(_APPTAINER_SOURCES)
    if image.startswith("/") or is_known:
        return
    if engine in APPTAINER:
        message = f"{engine} takes a path of a .sif file or a folder, or docker://IMAGE: {image}"
        hint = f"docker://{image}" if "://" not in image else "/PATH/NAME.sif"
        hint = "write the absolute path" if image.endswith((".sif", ".sqsh", ".img")) else hint
    else:
        message = f"{engine} takes the absolute path of an unpacked image or a .sqfs file: {image}"
        hint = _how_to_fetch(engine, image)
    raise ConfigError(message, where=where, hint=hint)


def _how_to_fetch(engine: str, image: str) -> str:
    source = image.partition("://")[2] or image
    if engine == PYXIS:
        return f"enroot import -o /SHARED/NAME.sqsh docker://{source}, and name that file"
    if engine == CHARLIECLOUD:
        return f"ch-image pull {source} && ch-convert {source} /SHARED/NAME, and name that folder"
    source = image if "://" in image else f"docker://{image}"
    return f"{engine} pull /SHARED/NAME.sif {source}, and name that file"


def _check_mount(engine: str, mount: Mount) -> None:
    for path in (str(mount.source), str(mount.place)):
        if any(sign in path for sign in _SEPARATORS[engine]):
            raise ConfigError(
                f"{engine} cannot mount {path}: `{_SEPARATORS[engine]}` separate its paths",
                where=mount.origin,
                hint="a link without such a sign in its name",
            )
    if engine == CHARLIECLOUD and mount.read_only and mount.origin != BUILT_IN:
        raise ConfigError(
            f"{engine} mounts nothing for reading only", where=mount.origin, hint="leave out `:ro`"
        )


def interpreter(node: NodePlan, facts: Facts) -> str:
    """Return the interpreter of the image, which joins the run."""
    image = node.container.python if node.container is not None else None
    return _path(node.interpreter.path or image or PYTHON, facts)


def srun_options(container: Container, facts: Facts) -> list[str]:
    """Return the options of srun; without pyxis there are none.

    github.com/NVIDIA/pyxis, README: the home folder and the entrypoint are site settings by
    default.
    """
    if container.engine != PYXIS:
        return []
    flags = {mount: ":ro" if mount.read_only else "" for mount in container.mounts}
    mounts = [f"{_path(m.source, facts)}:{_path(m.place, facts)}{flags[m]}" for m in flags]
    remap = "--container-remap-root" if container.user == "root" else "--no-container-remap-root"
    return [
        f"--container-image={container.image}",
        f"--container-mounts={','.join(mounts)}",
        "--no-container-mount-home",
        "--no-container-entrypoint",
        remap,
        *container.options,
    ]


def command(container: Container, facts: Facts) -> list[str]:
    """Return the words before the interpreter of the image; with pyxis there are none."""
    if container.engine in APPTAINER:
        return list(_apptainer(container, facts))
    return list(_charliecloud(container, facts)) if container.engine == CHARLIECLOUD else []


def _apptainer(container: Container, facts: Facts) -> Iterator[str]:
    """Yield the words of `apptainer exec` (apptainer.org/docs/user/latest/cli/apptainer_exec.html).

    The environment of the step reaches the job; PATH and LD_LIBRARY_PATH are the image's.
    """
    yield from (str(container.engine), "exec")
    if container.accelerator in _GPUS:
        yield _GPUS[container.accelerator]
    if container.user == "root":
        yield "--fakeroot"
    for mount in container.mounts:
        source, place = _path(mount.source, facts), _path(mount.place, facts)
        if source.endswith(f"/{HOME}") and source == place:
            yield f"--home={source}"  # in place of the user's own, with what `pip install --user`
        else:
            yield f"--bind={source}:{place}{':ro' if mount.read_only else ''}"
    yield from (*container.options, str(container.image))


def _charliecloud(container: Container, facts: Facts) -> Iterator[str]:
    """Yield the words of `ch-run` (hpc.github.io/charliecloud/ch-run.html).

    It passes the environment on, also the machine's PATH; `--set-env` among the options takes the
    image's.
    """
    yield "ch-run"
    if container.user == "root":
        yield from ("--uid=0", "--gid=0")
    for mount in container.mounts:
        yield f"--bind={_path(mount.source, facts)}:{_path(mount.place, facts)}"
    yield from (f"--set-env=PATH={_SEARCH}", *container.options, str(container.image), "--")


def _path(word: Word, facts: Facts) -> str:
    return str(bind_word(word, facts))
