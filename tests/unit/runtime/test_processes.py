from __future__ import annotations

import subprocess
import sys

import pytest

# A process that has used up its descriptors after (or before) its first look at /proc.
EXHAUSTED = """
import os, resource, subprocess, sys
from safelaunch.runtime import processes

child = subprocess.Popen(
    ["sleep", "600"], env={{"PATH": os.environ["PATH"], processes.MARK: "mine"}}
)
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    {first}
    full = []
    try:
        while True:
            full.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    {second}
    for fd in full:
        os.close(fd)
    assert sorted(pids) == [child.pid], pids
    assert len(os.listdir("/proc/self/fd")) < 8
finally:
    child.kill()
    child.wait()
"""
EXPRESSIONS = ["processes.descendants(os.getpid())", 'processes.marked("mine")']


def run(script: str) -> None:
    """Run a Python program to its end, which must be a good one."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_processes_are_found_when_no_descriptor_is_left(expression: str) -> None:
    run(EXHAUSTED.format(first=expression, second=f"pids = {expression}"))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_process_does_not_count_as_ended_while_proc_cannot_be_read(expression: str) -> None:
    spare = "os.close(processes._spare.fd); full.append(os.dup(1)); processes._spare.fd = -1"
    run(EXHAUSTED.format(first=expression, second=f"{spare}; pids = {expression}"))


def test_an_ended_descendant_is_not_listed_while_proc_cannot_be_read() -> None:
    end = "child.kill(); child.wait(); processes._spare.fd = -1"
    second = f"{end}; pids = {EXPRESSIONS[0]} or [child.pid]"
    run(EXHAUSTED.format(first=EXPRESSIONS[0], second=second))


def test_a_supervisor_has_more_descriptors_and_its_job_as_many_as_before() -> None:
    run(
        "import os, resource\n"
        "from safelaunch.runtime import processes\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))\n"
        "limits = processes.more_descriptors()\n"
        "assert limits == (32, hard)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, processes.DESCRIPTORS)\n"
        "assert processes.more_descriptors() is None\n"
        "processes.restore_descriptors(limits)\n"
        "processes.restore_descriptors(None)\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (32, hard)\n"
    )
