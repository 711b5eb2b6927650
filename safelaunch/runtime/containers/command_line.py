"""The command that runs a container, from a node's plan and its machine.

The container has the pid namespace of its machine: pids, start times and boot id are the same
inside and outside, so that a run is watched and stopped as one without a container. Docker and
podman end all processes of such a container with its first one (containerd: ShouldKillAllOnExit;
podman, runc: kill --all).
"""

from __future__ import annotations

import os
import re

from safelaunch.runtime import PLACE
from safelaunch.runtime.records import ContainerMachine, ContainerMount, ContainerSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = "container-home"  # in safelaunch's folder: the home folder in containers, kept between runs
LIMITS = ("--ulimit", "memlock=-1", "--ulimit", "stack=67108864")  # NVIDIA's images ask for these
# where an engine listens and keeps its files; no secret among them
VARIABLES = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"),
    *("CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "XDG_RUNTIME_DIR"),
)
STOP_LIMIT = 30  # seconds for the supervisor to end the job, where somebody runs `docker stop`
_GPUS = ("--gpus", "--runtime", "--device=nvidia.com/gpu", "nvidia.com/gpu")
_ROCM = ("/dev/kfd", "/dev/dri")  # ROCm documentation, "Running ROCm Docker containers"
_INFINIBAND = "/dev/infiniband"


def supervisor_words(python: str, node_dir: str) -> list[str]:
    """Return what a container runs: the program that becomes the node's supervisor."""
    program = f"{node_dir}/{PLACE}/containers/entry_point.py"
    return [python, "-I", "-S", "-B", program, node_dir]


def run_words(
    spec: ContainerSpec, machine: ContainerMachine, name: str, command: Sequence[str], workdir: str
) -> list[str]:
    """Return the command that runs a container, whose image is there already."""
    words = [machine.engine, "run", "--name", name, "--pull", "never", "--entrypoint", ""]
    words += ["--network", "host", "--pid", "host"]
    words += ["--ipc", "host"] if spec.shm is None else ["--shm-size", str(spec.shm)]
    words += _user(spec, machine)
    # SELinux would keep a container from what it mounts; without SELinux this changes nothing
    words += ["--security-opt", "label=disable"]
    words += LIMITS if machine.raises_limits else ()
    words += _devices(spec, machine)
    for mount in spec.mounts:
        words += ["--mount", mount_word(mount)]
    words += ["--workdir", workdir, "--env", f"HOME={spec.home}"]
    # of a user without an entry in /etc/passwd getpass.getuser() needs these
    words += [word for key in ("USER", "LOGNAME") for word in ("--env", f"{key}={machine.name}")]
    # what it prints is in the run's logs
    words += ["--log-driver", "none", "--stop-timeout", str(STOP_LIMIT)]
    return [*words, *spec.options, spec.image, *command]


def _user(spec: ContainerSpec, machine: ContainerMachine) -> Iterator[str]:
    """Yield the options for the user in the container, who is the one outside, or root."""
    is_podman = machine.engine == "podman"
    if spec.user != "me" or (machine.is_rootless and not is_podman):
        yield from ("--user", "0:0")
        return
    if machine.is_rootless:
        yield from ("--userns", "keep-id")
    yield from ("--user", f"{machine.uid}:{machine.gid}")
    if machine.is_rootless:
        return  # their numbers are others in its user namespace
    for group in machine.groups:
        yield from ("--group-add", str(group))


def _devices(spec: ContainerSpec, machine: ContainerMachine) -> Iterator[str]:
    """Yield the options for accelerators and network cards.

    All GPUs: the variables of the plan select some, by the numbers that they have on the machine.
    """
    has_own = any(word.startswith(_GPUS) for word in spec.options)
    needs_gpus = spec.accelerator == "cuda" or (not spec.accelerator and machine.gpus)
    if needs_gpus and not has_own:
        is_podman = machine.engine == "podman"  # by CDI: it takes no --gpus, or ignores it
        yield from ("--device", "nvidia.com/gpu=all") if is_podman else ("--gpus", "all")
    if spec.accelerator == "rocm":
        for device in _ROCM:
            yield from ("--device", device)
    if machine.infiniband:  # without it NCCL falls back to TCP, silently
        yield from ("--device", _INFINIBAND)


def mount_word(mount: ContainerMount) -> str:
    """Return the value of `--mount`: fields of CSV, as docker and podman read it."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    fields += ["readonly"] if mount.read_only else []
    return ",".join(map(_field, fields))


def _field(text: str) -> str:
    return '"{}"'.format(text.replace('"', '""')) if re.search(r'[",\r\n]', text) else text


def this_machine(engine: str) -> ContainerMachine:
    """Return what is known of this machine without the engine."""
    from safelaunch.runtime import processes  # noqa: PLC0415 - a dry-run needs none

    uid, gid = os.getuid(), os.getgid()
    return ContainerMachine(
        engine=engine,
        uid=uid,
        gid=gid,
        groups=sorted(set(os.getgroups()) - {gid}),
        name=processes.user_name(uid),
        is_rootless=engine == "podman" and uid != 0,
        raises_limits=True,
        gpus=os.path.exists("/proc/driver/nvidia/version"),
        infiniband=os.path.isdir(_INFINIBAND),
    )
