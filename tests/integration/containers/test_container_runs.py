"""Runs in real containers of docker and podman: their true ends, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import REPOSITORY
from support.containers import block
from support.workspace import wait_for

from safelaunch.runtime import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.containers import Engine
    from support.workspace import Place

pytestmark = pytest.mark.containers
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
SECRET = "s3cret-of-the-test"  # noqa: S105 - made up
WHO = "import os\nprint('me', os.getuid(), os.environ['HOME'], os.environ['TOKEN'])\n"
FILL = "print('up', flush=True)\nkept = []\nwhile True: kept.append(b'x' * (8 << 20))\n"
# the kernel ends the process with the highest score: the parent of the rank, the supervisor
FILL_FOR_SUPERVISOR = """
import os, time
print("up", flush=True)
with open(f"/proc/{os.getppid()}/oom_score_adj", "w") as file:
    file.write("1000")
kept = []
while True:
    kept.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.005)
"""
MEMORY = {"options": ["--memory=128m"]}


@pytest.fixture
def box(place: Place, engine: Engine) -> Iterator[Engine]:
    """Yield an engine of which the place is a user, and prove that no container is left."""
    place.env |= {**engine.environ, "TOKEN": SECRET}
    yield engine
    wait_for(lambda: engine.names() == [], "removal of all containers", 20)


def job(place: Place, engine: Engine, program: str, **keys: Any) -> str:
    """Write a job that runs a program in a container."""
    container = block(engine.name, **keys.pop("container", {}))
    return place.job(program, profile="cpu", python=None, container=container, **keys)


def supervisor(place: Place, run: str) -> int:
    pid = place.status(run)["supervisor"]["pid"]
    assert isinstance(pid, int)
    return pid


def test_a_job_runs_as_the_user_and_gets_its_secret(place: Place, box: Engine) -> None:
    run = place.start(job(place, box, WHO, env_from=["TOKEN"]))
    place.ended(run)
    home = place.home / "container-home"
    assert f"me {os.getuid()} {home} {SECRET}" in place.wait_for_text(run, "me")


def test_facts_look_inside_the_image(place: Place, box: Engine) -> None:
    own = block(box.name)
    image = str(own.pop("image"))
    hosts = {"hosts": {"localhost": {"container": {**own, "image": "localhost/none:1"}}}}
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "hosts.yaml").write_text(json.dumps(hosts))
    (facts,) = place.json("facts", "--container", image)["hosts"]
    assert (facts["engine"], facts["bash"]) == (box.name, True)
    assert facts["python"]["version"] == sys.version.split()[0]
    place.cli("facts", "--container", "localhost/none:1", code=3)


def test_a_secret_is_in_no_command_environment_or_file_of_the_engine(
    place: Place, box: Engine
) -> None:
    run = place.start(job(place, box, FOREVER, env_from=["TOKEN"]))
    place.wait_for_text(run, "up")
    shown = [box.run("inspect", run)]
    for pid, words in command_lines().items():
        if is_client(box, run, words):
            shown += [Path(f"/proc/{pid}/environ").read_text(), repr(words)]
    files = [path for path in place.node(run).rglob("*") if path.is_file()]
    shown += [path.read_text(errors="replace") for path in files]
    assert len(shown) > len(files) + 1  # the client of the engine was looked at
    assert [text for text in shown if SECRET in text] == []
    place.cli("stop", run)


def is_client(box: Engine, run: str, words: list[bytes]) -> bool:
    return words[:2] == [box.name.encode(), b"run"] and run.encode() in words


def command_lines() -> dict[int, list[bytes]]:
    """Return the words of each process."""
    lines = {}
    for pid in processes.pids():
        with contextlib.suppress(OSError):  # it has just ended
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return lines


def test_a_failure_keeps_its_code_and_class(place: Place, box: Engine) -> None:
    shown = place.failed(job(place, box, "import sys\nsys.exit(3)\n"))
    assert (shown["exit_code"], shown["failure"]["class"]) == (3, "user-code-exception")


def test_stop_ends_job_and_container(place: Place, box: Engine) -> None:
    run = place.start(job(place, box, FOREVER))
    place.wait_for_text(run, "up")
    assert box.names() == [run]
    place.cli("stop", run)
    status = place.status(run)
    assert (status["state"], status["proof"], box.names()) == ("stopped", "wait", [])


def test_a_stop_by_the_engine_ends_the_job_in_order(place: Place, box: Engine) -> None:
    run = place.start(job(place, box, FOREVER))
    place.wait_for_text(run, "up")
    box.run("stop", run)
    status = place.ended(run)
    assert (status["state"], status["proof"], status["stopped_by"]) == (
        "stopped",
        "wait",
        "SIGTERM",
    )


@pytest.mark.parametrize("word", ["kill", "kill -9"])
def test_a_kill_is_lost_with_the_reason_and_leaves_nothing(
    place: Place, box: Engine, word: str
) -> None:
    run = place.start(job(place, box, FOREVER))
    place.wait_for_text(run, "up")
    if word == "kill":
        box.run("kill", run)
    else:
        os.kill(supervisor(place, run), signal.SIGKILL)
    wait_for(lambda: place.status(run)["state"] == "lost", "the end that nobody recorded")
    status = place.status(run)
    assert "was killed with its container" in status["reason"]
    assert status["alive"] == 0


def test_a_rank_that_exceeds_the_containers_memory_is_host_oom(place: Place, box: Engine) -> None:
    shown = place.failed(job(place, box, FILL, container=MEMORY))
    assert shown["failure"]["class"] == "host-oom"


def test_a_supervisor_that_memory_ends_is_host_oom(place: Place, box: Engine) -> None:
    shown = place.failed(job(place, box, FILL_FOR_SUPERVISOR, container=MEMORY))
    assert (shown["failure"]["class"], shown["exit_code"]) == ("host-oom", 137)


def test_a_container_goes_on_without_what_waits_for_it(place: Place, box: Engine) -> None:
    run = place.start(job(place, box, FOREVER))
    place.wait_for_text(run, "up")
    program = b"run_container.py"
    waiting = processes.supervisors(str(place.node(run)), program)
    clients = [pid for pid, words in command_lines().items() if is_client(box, run, words)]
    for pid in [*waiting, *clients]:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes.supervisors(str(place.node(run)), program), "end of both")
    assert waiting
    assert place.status(run)["state"] == "running"
    place.cli("stop", run)
    assert (place.status(run)["state"], box.names()) == ("stopped", [])


def test_a_restart_stays_in_the_container(place: Place, box: Engine) -> None:
    program = (
        "import os, pathlib\nprint('in', os.getppid(), flush=True)\n"
        "path = pathlib.Path('count')\ncount = int(path.read_text()) if path.exists() else 0\n"
        "path.write_text(str(count + 1))\n"
        "if count == 0: os.kill(os.getpid(), 9)\n"
    )
    recovery = {"max_restarts": 1, "backoff": "0s", "classes": {"killed": "restart"}}
    run = place.start(job(place, box, program, recovery=recovery))
    status = place.ended(run)
    assert (status["state"], len(status["attempts"])) == ("succeeded", 2)


def test_two_ranks_of_the_example_train(place: Place, box: Engine) -> None:
    example = REPOSITORY / "examples" / "digits"
    subprocess.run(["cp", "-r", *example.iterdir(), place.project], check=True)
    (place.project / "pyproject.toml").touch()
    container = block(box.name)
    words = [
        f"--set=container.{key}={value}" for key, value in container.items() if key != "mounts"
    ]
    mounts = ", ".join(f'"{mount}"' for mount in container["mounts"])  # type: ignore[attr-defined]
    words += [f"--set=container.mounts=[{mounts}]", "--set=processes=2", "--profile=cpu"]
    place.cli("run", "--no-check", "--follow", "digits.yaml", *words)
    assert place.json("show")["state"] == "succeeded"


def test_an_engine_that_refuses_leaves_nothing(place: Place, box: Engine) -> None:
    refusals = {
        "no such image|not known": {"image": "none:1"},
        "has no `python9`": {"python": "python9"},
        "unknown flag": {"options": ["--none"]},
    }

    for container in refusals.values():
        place.cli("run", job(place, box, FOREVER, container=container), code=3)
    assert not (place.home / "runs").exists() or list((place.home / "runs").iterdir()) == []
