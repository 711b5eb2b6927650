"""Which processes that outlive the launcher work for the job."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.monitor import leftovers
from safelaunch.runtime.monitor.leftovers import IDLE_AFTER, Leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = [sys.executable, "-I", "-S"]
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
PARENT = "import subprocess; print('up', flush=True); subprocess.run(['sleep', '600'])"
TRACKER = f"from multiprocessing.resource_tracker import os\n{SLEEP}"


def command(name: str, *words: str) -> list[str]:
    return [f"/venv/bin/{name}", *words]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes_: list[subprocess.Popen[bytes]] = []
    yield processes_
    for process in processes_:
        for pid in processes.descendants(process.pid):
            processes.send(pid, processes.start_time(pid) or 0, 9)
        process.kill()
        process.communicate()


def start(started: list[subprocess.Popen[bytes]], *words: str) -> int:
    """Start a program and return its pid, of a Python once it is up."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    started.append(process)
    if words[0] == sys.executable:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
    return process.pid


def starts(*pids: int) -> dict[int, int]:
    return {pid: processes.start_time(pid) or 0 for pid in pids}


def test_a_python_program_works_until_it_has_been_idle_for_minutes(
    started: list[subprocess.Popen[bytes]],
) -> None:
    pid = start(started, *PYTHON, "-c", SLEEP)
    left = Leftovers()
    living = starts(pid)
    times = (0.0, IDLE_AFTER - 1, IDLE_AFTER + 1)
    assert [left.working(living, (), now) for now in times] == [[pid], [pid], []]


def test_other_programs_and_services_do_not_work(started: list[subprocess.Popen[bytes]]) -> None:
    sleep = start(started, "sleep", "600")
    tracker = start(started, *PYTHON, "-c", TRACKER)
    assert Leftovers().working(starts(sleep, tracker), (), 0.0) == []


def test_a_program_works_while_a_process_below_it_does(
    started: list[subprocess.Popen[bytes]],
) -> None:
    parent = start(started, *PYTHON, "-c", PARENT)
    (child,) = wait_for(lambda: list(processes.descendants(parent)), "process below")
    left = Leftovers()
    wait_for(lambda: leftovers.command(child) == "sleep", "start of the process below")
    assert left.working(starts(parent), (), 0.0) == [parent]
    assert left.working(starts(parent), (), 2 * IDLE_AFTER) == []
    assert left.working(starts(parent, child), (), 2 * IDLE_AFTER) == [parent]


@pytest.mark.parametrize(
    "words",
    [
        command("python3.11", "-c", "from multiprocessing.resource_tracker import main;main(5)"),
        command("python", "/venv/bin/tensorboard", "--logdir", "runs"),
        command("python", "-m", "tensorboard.main", "--logdir", "runs"),
        command("python", "-u", "/venv/bin/jupyter-lab"),
        command("python", "/lib/torch/_inductor/compile_worker/__main__.py", "--workers=32"),
        command("python3", "-u", "/lib/ray/dashboard/dashboard.py", "--host=localhost"),
        ["ray::IDLE"],
        ["wandb-service(2-71-s-40000)"],
    ],
    ids=lambda words: words[-1][:30],
)
def test_a_service_is_recognised_by_what_is_run(words: list[str]) -> None:
    assert leftovers.is_service(words)


@pytest.mark.parametrize(
    "words",
    [
        command("python", "train.py", "--report_to", "tensorboard"),
        command("python", "-X", "faulthandler", "tensorboard_export.py"),
        command("python", "-m", "wandb", "sync", "run"),
        command("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(7)"),
        ["VLLM::EngineCore"],
        [],
    ],
    ids=lambda words: " ".join(words)[-30:],
)
def test_a_training_is_no_service(words: list[str]) -> None:
    assert not leftovers.is_service(words)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (command("python3.11", "-u", "train.py", "--token", "s3cr3t"), "python3.11 train.py"),
        (command("python", "-W", "ignore", "-m", "trl.sft", "--key=s3cr3t"), "python -m trl.sft"),
        (command("python", "-c", "token = 's3cr3t'"), "python -c"),
        (["bash", "-e", "-o", "pipefail", "run.sh", "s3cr3t"], "bash run.sh"),
        (["bash", "-c", "s3cr3t"], "bash -c"),
        (["sleep", "s3cr3t"], "sleep"),
        (["trainer: s3cr3t step 5"], "trainer:"),
        (["/opt/a\x1b[31mb"], "a\\x1b[31mb"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_command_is_shown_without_its_arguments(words: list[str], shown: str) -> None:
    assert leftovers.describe_command(words) == shown


def test_of_many_processes_the_first_ones_are_shown() -> None:
    records = leftovers.records(dict.fromkeys((9, 7, 8, 12, 11), "sleep"), 10.0)
    assert leftovers.describe(records) == "sleep (pid 7), sleep (pid 8), sleep (pid 9) and 2 more"
