"""What docker and podman say of a container that cannot be started, and what to do about it."""

from __future__ import annotations

import pytest

from safelaunch.runtime.commands import CommandResult
from safelaunch.runtime.containers import errors

# as docker 20.10 and 28.2, and podman 4.3, print them
CASES = [
    (
        (
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
            "Is the docker daemon running?.\nSee 'docker run --help'.\n"
        ),
        "systemctl start docker",
    ),
    (
        (
            "permission denied while trying to connect to the Docker daemon socket at "
            'unix:///var/run/docker.sock: Get "http://x": dial unix: connect: permission denied\n'
        ),
        "usermod -aG docker me",
    ),
    ("Error response from daemon: no such image: a:1: No such image: a:1\n", "docker pull a:1"),
    ("Error: inspecting object: a:1: image not known\n", "docker pull a:1"),
    (
        (
            'docker: Error response from daemon: could not select device driver "" with '
            "capabilities: [[gpu]]\n\nRun 'docker run --help' for more information\n"
        ),
        "NVIDIA Container Toolkit",
    ),
    (
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all\n",
        "nvidia-ctk cdi generate",
    ),
    (
        (
            'docker: Error response from daemon: invalid mount config for type "bind": bind source '
            "path does not exist: /none\n"
        ),
        "must exist on this machine",
    ),
    ("Error: statfs /none: no such file or directory\n", "must exist on this machine"),
    (
        (
            "docker: Error response from daemon: failed to create shim task: OCI runtime create "
            'failed: runc create failed: unable to start container process: exec: "bash": '
            "executable file not found in $PATH: unknown\n"
        ),
        "needs bash",
    ),
    ("exec /usr/bin/bash: exec format error\n", "another kind of processor"),
    ("bash: line 1: exec: python3: not found\n", "names the interpreter"),
]


@pytest.mark.parametrize(("text", "remedy"), CASES, ids=[remedy for _, remedy in CASES])
def test_the_engines_words_lead_to_a_remedy(text: str, remedy: str) -> None:
    words = errors.words_of(CommandResult(125, "", text))
    assert "\n" not in words
    assert not words.startswith(("docker:", "Error"))
    assert remedy in errors.remedy(text, "docker", "a:1", "me")


def test_an_unknown_option_is_named_without_the_usage() -> None:
    text = "unknown flag: --none\n\nUsage:  docker run [OPTIONS] IMAGE\n\nRun 'docker run --help'\n"
    assert errors.words_of(CommandResult(125, "", text)) == "unknown flag: --none"


@pytest.mark.parametrize(
    ("code", "text", "is_rlimit"),
    [
        (125, "error setting rlimits for ready process: operation not permitted", True),
        (126, "error setting rlimit type 8: operation not permitted", True),
        (1, "the job's own rlimit", False),
        (125, "no such image", False),
    ],
)
def test_a_refused_limit_is_recognised(code: int, text: str, *, is_rlimit: bool) -> None:
    assert errors.is_rlimit(CommandResult(code, "", text)) == is_rlimit
