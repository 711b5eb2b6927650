"""Proof of a memory kill: counters of made-up groups, and a real kill in a small cgroup."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.workspace import DEADLINE

from safelaunch.runtime.monitor import oom_kills

if TYPE_CHECKING:
    from collections.abc import Iterator

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
LIMIT = 48 << 20  # bytes; the program wants ten times as much


def own_group(number: str) -> str:
    """Return this process's group: of v1's memory controller, or (`0`) of v2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        head, controllers, group = line.split(":", 2)
        if (number == "0" and head == "0") or (number != "0" and "memory" in controllers):
            return group.strip("/")
    pytest.skip("this kernel has no such memory groups")


@pytest.mark.parametrize(
    ("number", "folder", "name", "text"),
    [
        ("0", "", "memory.events.local", "low 0\nhigh 0\nmax 9\noom 2\noom_kill {}\n"),
        ("0", "", "memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill {}\n"),
        ("0", "unified", "memory.events", "oom_kill {}\n"),
        ("1", "memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"),
    ],
)
def test_a_counter_that_rose_is_reported_with_how_much_and_where(
    tmp_path: Path, number: str, folder: str, name: str, text: str
) -> None:
    group = tmp_path / folder / own_group(number)
    group.mkdir(parents=True, exist_ok=True)
    counter = group / name
    counter.write_text(text.format(3))
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid()])
    counter.write_text(text.format(5))
    assert [kill.text for kill in snapshot.kills().kills] == [
        f"oom_kill rose from 3 to 5 in {counter}"
    ]
    assert snapshot.kills().kills == []  # reported once: the next attempt has its own


@pytest.mark.parametrize(
    ("text", "words"),
    [(str(64 << 20), ", a memory limit of 64 MiB"), ("max", ""), (str(1 << 62), "")],
)
def test_the_limit_of_a_group_stands_beside_its_counter(
    tmp_path: Path, text: str, words: str
) -> None:
    group = tmp_path / own_group("0")
    group.mkdir(parents=True, exist_ok=True)
    counter = group / "memory.events.local"
    counter.write_text("oom_kill 0\n")
    (group / "memory.max").write_text(f"{text}\n")
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid()])
    counter.write_text("oom_kill 1\n")
    [kill] = snapshot.kills().kills
    assert kill.text == f"oom_kill rose from 0 to 1 in {counter}{words}"
    assert oom_kills.is_of_group(kill.text) is bool(words)


def test_a_kill_in_a_group_beside_its_own_proves_nothing(tmp_path: Path) -> None:
    """In cgroup v2 the events of a group are those of all groups below it."""
    own = tmp_path / own_group("0") / "memory.events.local"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("oom_kill 0\n")
    above = [folder / "memory.events" for folder in (own.parent, *own.parent.parents[:1], tmp_path)]
    for counter in above:
        counter.write_text("oom_kill 0\n")
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid()])
    for counter in above:
        counter.write_text("oom_kill 1\n")
    assert snapshot.kills().kills == []


def test_a_group_without_a_counter_counts_as_the_one_above(tmp_path: Path) -> None:
    (tmp_path / own_group("0")).mkdir(parents=True, exist_ok=True)
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid()])
    (tmp_path / "memory.events").write_text("oom_kill 1\n")
    assert oom_kills.proof(snapshot.kills(), [os.getpid()])


@pytest.mark.parametrize("content", ["", "rubbish\n", "oom_kill x\n", "oom_kill\n"])
def test_a_counter_that_cannot_be_read_proves_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "memory.events").write_text(content)
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid(), 2**22 + 1])
    (tmp_path / "memory.events").write_text("oom_kill 1\n")
    assert snapshot.kills().kills == []


def test_the_kernel_log_proves_the_end_of_the_process_that_it_names() -> None:
    kill = oom_kills.OomKill(text="kernel log: Killed process 77 (python)", pid=77)
    assert oom_kills.proof(oom_kills.Kills([kill]), [77]) == kill.text
    assert oom_kills.proof(oom_kills.Kills([kill]), [78, 79]) is None


def test_a_kernel_log_that_can_be_read_would_have_told_of_any_kill(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.touch()
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(log))
    try:
        assert snapshot.kills().source(7) == "the kernel log"
    finally:
        snapshot.close()


def test_a_counter_would_have_told_of_the_kill_of_a_member(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid()])
    kills = snapshot.kills()
    assert "counter" in kills.source(os.getpid())
    assert kills.source(2**22 + 1) == ""


def test_where_nothing_can_be_read_nobody_would_have_told(tmp_path: Path) -> None:
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(tmp_path / "none"))
    snapshot.add_processes([os.getpid()])
    (tmp_path / "memory.events").write_text("rubbish\n")
    assert snapshot.kills().source(os.getpid()) == ""


def test_only_what_the_kernel_log_says_from_now_on_is_read(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"  # a plain file gives all records at once, and one is enough here
    log.write_text("3,1,1,-;Out of memory: Killed process 5 (old)\n")
    snapshot = oom_kills.Snapshot(str(tmp_path), kmsg=str(log))
    with log.open("a") as file:
        file.write("3,2,2,-;Memory cgroup out of memory: Killed process 77 (python) total-vm:9kB\n")
    try:
        (kill,) = snapshot.kills().kills
    finally:
        snapshot.close()
    assert kill.pid == 77
    assert kill.text.startswith("kernel log: Memory cgroup out of memory: Killed process 77")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Yield a memory cgroup of 48 MiB."""
    version1 = (V1 / "memory.limit_in_bytes").exists() or (V1 / "memory.usage_in_bytes").exists()
    folder = (V1 if version1 else V2) / f"safelaunch-unit-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as e:
        pytest.skip(f"no memory cgroup can be made here: {e}")
    try:
        name = "memory.limit_in_bytes" if version1 else "memory.max"
        try:
            (folder / name).write_text(str(LIMIT))
            with contextlib.suppress(OSError):
                (folder / "memory.swap.max").write_text("0")
        except OSError as e:
            pytest.skip(f"no memory limit can be set here: {e}")
        yield folder
    finally:
        deadline = time.monotonic() + 5
        while folder.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # busy until the last process has been reaped
                folder.rmdir()


def test_a_real_memory_kill_in_a_small_group_is_proved(small_group: Path) -> None:
    # it waits until it has been put into the group and seen there
    program = "import sys; sys.stdin.readline(); x = [bytearray(1 << 20) for _ in range(480)]"
    snapshot = oom_kills.Snapshot()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        try:
            (small_group / "cgroup.procs").write_text(str(process.pid))
            snapshot.add_processes([process.pid])
            process.communicate(b"\n", timeout=DEADLINE)
        finally:
            process.kill()
    counted = [kill for kill in snapshot.kills().kills if kill.pid is None]
    snapshot.close()
    assert process.returncode == -9
    evidence = oom_kills.proof(oom_kills.Kills(counted), [process.pid])
    assert evidence is not None
    assert small_group.name in evidence


def test_a_plain_kill_in_a_small_group_proves_nothing(small_group: Path) -> None:
    snapshot = oom_kills.Snapshot()
    program = "import sys; sys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        (small_group / "cgroup.procs").write_text(str(process.pid))
        snapshot.add_processes([process.pid])
        process.kill()
    own = [kill for kill in snapshot.kills().kills if small_group.name in kill.text]
    snapshot.close()
    assert oom_kills.proof(oom_kills.Kills(own), [process.pid]) is None
