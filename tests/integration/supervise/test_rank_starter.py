"""How the starter of ranks ends, and what it does to them: start_ranks.py by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime import FOLDER, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Start = Callable[..., subprocess.Popen[bytes]]

STARTER = os.path.join(FOLDER, "ranks", "start_ranks.py")
HEAD = """
import os, signal, sys, time
rank = os.environ["RANK"]
def up():
    with open("rank." + rank + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("rank." + rank + ".new", "rank." + rank)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.005)
"""
WAITS = "up()\nwait_for('go')\n"
DEAF = "for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n" + WAITS
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(
        program: str, grace: float = 60.0, script: Sequence[str] = (STARTER,), **env: str
    ) -> subprocess.Popen[bytes]:
        options = ["--ranks=2", f"--grace={grace:g}"]
        words = [sys.executable, "-I", "-S", "-B", *script, *options, "--"]
        process = subprocess.Popen(
            [*words, sys.executable, "-S", "-c", HEAD + program],
            cwd=tmp_path,
            env={**os.environ, **env},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        for pid in [*processes.descendants(process.pid), process.pid]:
            if process.poll() is None:
                os.kill(pid, signal.SIGKILL)
        process.wait()


def ranks(folder: Path) -> list[int]:
    """Return the pids of both ranks, once they are up."""
    files = [folder / f"rank.{rank}" for rank in (0, 1)]
    wait_for(lambda: all(file.exists() for file in files), "start of the ranks")
    return [int(file.read_text()) for file in files]


def are_gone(pids: list[int]) -> bool:
    """Whether processes have ended: as zombies they may wait for whoever adopted them."""
    states = [processes.stat_of(pid) for pid in pids]
    return all(state is None or state[0] in "ZX" for state in states)


@pytest.mark.parametrize("signum", STOPS)
def test_a_signal_ends_the_ranks_and_then_their_starter_by_the_same(
    start: Start, tmp_path: Path, signum: signal.Signals
) -> None:
    process = start(WAITS)
    pids = ranks(tmp_path)
    process.send_signal(signum)
    assert process.wait() == -signum
    assert are_gone(pids)


def test_a_signal_that_ended_a_rank_is_a_code_and_no_end_of_the_starter(
    start: Start, tmp_path: Path
) -> None:
    process = start(WAITS, grace=0)
    os.kill(ranks(tmp_path)[1], signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM


def test_a_rank_that_had_failed_gives_the_code_also_where_a_signal_follows(
    start: Start, tmp_path: Path
) -> None:
    process = start("up()\nsys.exit(7) if rank == '1' else wait_for('go')\n")
    pids = ranks(tmp_path)
    wait_for(lambda: are_gone(pids[1:]), "end of rank 1")
    process.terminate()
    assert process.wait() == 7
    assert are_gone(pids)


@pytest.mark.parametrize("signum", STOPS)
def test_the_same_signal_again_kills_ranks_that_are_deaf_to_it(
    start: Start, tmp_path: Path, signum: signal.Signals
) -> None:
    process = start(DEAF)
    pids = ranks(tmp_path)
    process.send_signal(signum)
    wait_for(lambda: not pending(process.pid, signum), "first signal")
    assert not are_gone(pids)
    process.send_signal(signum)
    assert process.wait(timeout=25) == -signum  # TERM alone would get 30 s
    assert are_gone(pids)


def test_another_signal_goes_on_to_the_ranks_too(start: Start, tmp_path: Path) -> None:
    process = start("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS)
    pids = ranks(tmp_path)
    process.terminate()
    wait_for(lambda: not pending(process.pid, signal.SIGTERM), "first signal")
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=25) == -signal.SIGTERM
    assert are_gone(pids)


# with a patience that a test can wait for
HASTY = (
    f"import sys\nsys.path.insert(0, {os.path.dirname(STARTER)!r})\nimport start_ranks\n"
    "start_ranks.PATIENCE = 0.2\nsys.exit(start_ranks.main(sys.argv[1:]))\n"
)


def test_ranks_that_are_deaf_to_a_signal_are_killed(start: Start, tmp_path: Path) -> None:
    process = start(DEAF, script=("-c", HASTY))
    pids = ranks(tmp_path)
    process.terminate()
    assert process.wait() == -signal.SIGTERM
    assert are_gone(pids)


def test_a_supervisor_that_stops_the_ranks_has_a_grace_of_its_own(
    start: Start, tmp_path: Path
) -> None:
    saves = "def save(*_):\n    time.sleep(1)\n    mark()\n    sys.exit()\n"
    mark = "def mark():\n    open('saved.' + rank, 'w').close()\n"
    program = mark + saves + "signal.signal(signal.SIGTERM, save)\n" + WAITS
    process = start(program, script=("-c", HASTY), SAFELAUNCH_SUPERVISOR=str(os.getpid()))
    ranks(tmp_path)
    process.terminate()
    assert process.wait() == -signal.SIGTERM
    assert [(tmp_path / f"saved.{rank}").exists() for rank in (0, 1)] == [True, True]


def test_ranks_that_fail_in_the_grace_are_not_ended(start: Start, tmp_path: Path) -> None:
    process = start(
        "up()\nif rank == '0': wait_for('go')\n"
        "open('end.' + rank, 'w').close()\nsys.exit(3 + int(rank))\n"
    )
    pids = ranks(tmp_path)
    wait_for(lambda: are_gone(pids[1:]) and waits_again(process.pid), "end of rank 1")
    (tmp_path / "go").touch()
    assert process.wait() == 4
    assert (tmp_path / "end.0").exists()


def waits_again(starter: int) -> bool:
    """Whether the starter has looked at the ranks since one of them ended."""
    state = processes.stat_of(starter)
    return state is not None and state[0] == "S" and not pending(starter, signal.SIGCHLD)


def pending(pid: int, signum: int) -> bool:
    """Whether a signal waits for a process to take it."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        lines = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    mask = int(lines["SigPnd"], 16) | int(lines["ShdPnd"], 16)
    return bool(mask >> (signum - 1) & 1)
