"""What docker and podman say when a container cannot be started, and what to do about it."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.commands import CommandResult

ENGINE_ERROR = 125  # exit code of docker run(1) and podman-run(1): the engine's own error
NOT_EXECUTABLE = 126  # the command in the container cannot be run
NOT_FOUND = 127  # it cannot be found
_TOOLKIT = "install the NVIDIA Container Toolkit"
# the first that matches: pattern of the engine's words, and what to do
_REMEDIES = (
    (
        r"permission denied.*(docker\.sock|daemon socket|connect)",
        "as root: usermod -aG docker {user}, then log in again; or `engine: podman`",
    ),
    (
        r"cannot connect to the docker daemon|is the docker daemon running|error during connect",
        "start it: systemctl start docker (DOCKER_HOST and `docker context` say where it listens)",
    ),
    (
        r"no such image|image not known|unable to find image",
        "{engine} pull {image}; or `pull: missing`",
    ),
    (
        r"could not select device driver|nvidia-container",
        _TOOLKIT + ", then: nvidia-ctk runtime configure --runtime=docker; or profile `cpu`",
    ),
    (
        r"unresolvable CDI devices",
        _TOOLKIT
        + ", then: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; or profile `cpu`",
    ),
    (
        r"bind source path does not exist|statfs .*no such file",
        "`mounts` and folders of the job must exist on this machine",
    ),
    (
        r"exec format error",
        "the image is for another kind of processor: {engine} image inspect {image}",
    ),
    (
        r"exec: \"bash\".*not found|\"?bash\"?.*no such file",
        "the image needs bash, which runs launch.sh",
    ),
    (
        r"exec: \S+: (cannot execute: )?(not found|no such file)",
        "`container: {{python: PATH}}` names the interpreter of the image",
    ),
    (r"subuid|newuidmap|cannot set up namespace", "rootless podman needs an entry in /etc/subuid"),
)
_NOISE = re.compile(r"^(docker|podman|error|error response from daemon|runc): *", re.IGNORECASE)
_RLIMIT = re.compile(r"rlimit|CAP_SYS_RESOURCE", re.IGNORECASE)


def words_of(result: CommandResult) -> str:
    """Return what an engine said of its failure, in one line without its usual beginning."""
    lines = [line.strip() for line in (result.err or result.out).splitlines() if line.strip()]
    lines = [line for line in lines if not line.lower().startswith(("see '", "run 'docker"))]
    lines = [line for line in lines if not line.lower().startswith("usage:")] or lines
    text = next((line for line in lines if _NOISE.match(line)), lines[0] if lines else "")
    while _NOISE.match(text):
        text = _NOISE.sub("", text)
    return text or f"exit code {result.code}"


def remedy(words: str, engine: str, image: str, user: str) -> str:
    """Return what to do about an engine's error; "" where that is not known."""
    for pattern, text in _REMEDIES:
        if re.search(pattern, words, re.IGNORECASE):
            return text.format(engine=engine, image=image, user=user)
    return ""


def is_rlimit(result: CommandResult) -> bool:
    """Whether an engine refused a container since it may not raise its limits."""
    return result.code in (ENGINE_ERROR, NOT_EXECUTABLE) and bool(_RLIMIT.search(result.err))


def is_away(result: CommandResult) -> bool:
    """Whether no engine answered: it is not installed, not running, or not for this user."""
    words = "cannot connect|is the docker daemon|permission denied|error during connect"
    return result.code < 0 or bool(re.search(words, result.err, re.IGNORECASE))
