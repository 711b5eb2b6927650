"""What really happened, in words: crashes, kills, hidden failures, ends that look like success.

Ranks are started by the stand-in for torchrun, whose own status is 0 where a rank dies of a signal.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from cascade import one_cascade
from place import need_root, wait_for

from safelaunch.runtime import procs, state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from place import Place

FOREVER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(60)\n"


def on_rank_1(body: str) -> str:
    """Return a program of which rank 1 alone does something.

    It works a little before: a rank that lives for milliseconds may end while nobody looks.
    """
    head = "import os, time\ntime.sleep(0.5)\nif os.environ['RANK'] == '1':\n"
    return head + textwrap.indent(body, "    ")


# -- how a rank ended ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "signalled"),
    [
        ("import ctypes\nctypes.string_at(0)\n", None, "SIGSEGV"),
        ("os.kill(os.getpid(), 9)\n", None, "SIGKILL"),
        ("os._exit(5)\n", 5, ""),
        ("import sys\nsys.exit(3)\n", 3, ""),
    ],
    ids=["segmentation fault", "kill", "os._exit", "sys.exit"],
)
def test_a_rank_that_ends_badly_is_named_with_how(
    place: Place, body: str, code: int | None, signalled: str
) -> None:
    failure = place.failed(place.ranks(on_rank_1(body)))["failure"]
    assert (failure["rank"], failure["signal"]) == (1, signalled)
    assert (signalled or f"{code}") in failure["what"]
    assert failure["exit_code"] == (code or 128 + getattr(signal, signalled))


def test_a_plain_kill_is_no_memory_kill(place: Place) -> None:
    shown = place.failed(place.ranks(on_rank_1("os.kill(os.getpid(), 9)\n")))
    failure = shown["failure"]
    assert (failure["class"], failure["proof"]) == ("killed", None)
    assert "killed" in failure["what"]
    assert "memory" not in failure["what"]


@pytest.fixture
def cgroup(place: Place) -> Iterator[Path]:
    """Yield a memory cgroup (version 1) of 64 MiB that a job can enter."""
    need_root()
    root = "/sys/fs/cgroup/memory"
    folder = place.root.__class__(root) / f"safelaunch-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as e:
        pytest.skip(f"no memory cgroup of one's own here: {e}")
    try:
        yield folder
        place.close()
    finally:
        folder.rmdir()


def test_a_memory_kill_is_named_with_its_proof(place: Place, cgroup: Path) -> None:
    body = "held = []\nwhile True: held.append(bytearray(os.urandom(1 << 20)))\n"
    enter = f"echo $$ > {cgroup}/cgroup.procs"
    failure = place.failed(place.ranks(on_rank_1(body), setup=[enter]))["failure"]
    assert (failure["rank"], failure["class"], failure["signal"]) == (1, "host-oom", "SIGKILL")
    assert "out of memory" in failure["what"]
    assert "oom" in failure["proof"].lower() or "out of memory" in failure["proof"].lower()


def test_an_exception_in_a_thread_is_a_warning_where_the_run_ends_well(place: Place) -> None:
    program = (
        "import threading\ndef work(): raise ValueError('lost batch')\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()\n"
    )
    place.cli("run", "--follow", place.job(program))
    shown = place.json("show")
    assert (shown["state"], shown["failure"]) == ("succeeded", None)
    assert "ValueError: lost batch" in str(shown.get("warning"))


@pytest.mark.parametrize("rank", [0, 2, 3])
def test_the_first_failure_is_told_from_what_it_caused(tmp_path: Path, rank: int) -> None:
    assert one_cascade(rank, str(tmp_path), real=False) is None


# -- launchers that hide it ------------------------------------------------------------------------

BAD = "def load():\n    raise ValueError('bad batch')\nload()\n"


@pytest.mark.train
@pytest.mark.skipif(not importlib.util.find_spec("rich"), reason="no rich here")
def test_accelerate_that_swallows_the_failure_does_not_hide_it(place: Place) -> None:
    """With --debug and rich it prints torchrun's error and ends with 0 (commands/launch.py)."""
    job = place.job(
        BAD,
        launcher="accelerate",
        processes=2,
        profile="cpu",
        launcher_args={"debug": True},
        env={"ACCELERATE_ENABLE_RICH": "1"},
    )
    shown = place.failed(job)
    assert shown["exit_code"] == 0
    assert shown["failure"]["what"] == "ValueError: bad batch"


@pytest.mark.parametrize("end", ["2>&1 | tee out.txt", "& wait"], ids=["tee", "wait"])
def test_a_shell_that_ends_with_0_does_not_hide_it(place: Place, end: str) -> None:
    """The user's own script around torchrun, here the stand-in for it, started as a command."""
    place.ranks(BAD, name="bad")
    path = [str(place.root / "fake")]
    line = f"{sys.executable} -m torch.distributed.run --nproc_per_node 2 bad.py {end}"
    shown = place.failed(place.shell(line, pythonpath=path))
    assert shown["exit_code"] == 0
    assert shown["failure"]["what"] == "ValueError: bad batch"


def test_a_shell_that_handles_a_failure_itself_is_no_failure(place: Place) -> None:
    place.write("bad.py", BAD)
    script = (
        f"for n in 1 2; do {sys.executable} bad.py && break; done; {sys.executable} -c 'print(1)'"
    )
    place.cli("run", "--follow", place.shell(script))
    assert place.json("show")["state"] == "succeeded"


# -- what the job itself calls success -------------------------------------------------------------

STEPS = "import sys\nfor n in range(1, 4): print(f'step {n}/3 loss: 0.5', flush=True)\n"
SAVE = "import os\nos.makedirs('out', exist_ok=True)\nopen('out/model.pt', 'w').close()\n"


def test_a_run_without_its_artifact_has_failed(place: Place) -> None:
    job = place.job("print('done')", success={"artifacts": ["out/*.pt"]})
    assert "out/*.pt" in place.failed(job)["failure"]["what"]


def test_an_artifact_of_an_earlier_run_does_not_count(place: Place) -> None:
    os.utime(place.write("out/model.pt", ""), (1e9, 1e9))
    job = place.job("print('done')", success={"artifacts": ["out/*.pt"]})
    assert "older than this run" in place.failed(job)["failure"]["what"]


def test_a_run_with_its_artifact_has_succeeded(place: Place) -> None:
    place.cli("run", "--follow", place.job(SAVE, success={"artifacts": ["out/*.pt"]}))


def test_a_run_that_ends_before_its_steps_has_failed(place: Place) -> None:
    shown = place.failed(place.job(STEPS, success={"min_steps": 4}))
    assert "4 steps, 3 were seen" in shown["failure"]["what"]


def test_a_run_that_has_made_its_steps_has_succeeded(place: Place) -> None:
    place.cli("run", "--follow", place.job(STEPS, success={"min_steps": 3}))


def test_a_run_that_takes_too_long_is_stopped(place: Place) -> None:
    said = place.cli("run", "--follow", place.job(FOREVER, max_duration="1s"), code=1).stderr
    assert "max_duration" in said
    shown = place.json("show")
    assert (shown["state"], procs.marked(shown["id"])) == ("stopped", {})


def test_a_smoke_run_ends_well_at_its_steps(place: Place) -> None:
    job = place.job(STEPS + FOREVER, smoke={"success": {"min_steps": 3}})
    place.cli("run", "--smoke", "--follow", job)
    shown = place.json("show")
    assert (shown["state"], procs.marked(shown["id"])) == ("succeeded", {})


# -- ownership -------------------------------------------------------------------------------------

# as setproctitle does it without SPT_NOENV: what lies behind argv is overwritten, and the mark
# with it. proc(5), stat: env_start and env_end are fields 50 and 51, behind the name from 3 on
NAMELESS = """
import ctypes, os, subprocess, time
with open("/proc/self/stat") as file:
    fields = file.read().rpartition(")")[2].split()
begin, end = int(fields[47]), int(fields[48])
ctypes.memset(begin, 0, end - begin)
assert b"SAFELAUNCH" not in open("/proc/self/environ", "rb").read()
print("up", flush=True)
while True: time.sleep(60)
"""


@pytest.fixture
def nameless(place: Place) -> Iterator[tuple[str, dict[int, int]]]:
    """Yield a run and its two ranks, which carry no mark; end them here: nobody else could."""
    run = place.start(place.ranks(NAMELESS))
    place.said(run, "[0] up")
    place.said(run, "[1] up")
    pids = [int(pid) for pid in place.json("show", run)["pids"]["ranks"].values()]
    found = {pid: procs.start_time(pid) or 0 for pid in pids}
    assert not set(found) & set(procs.marked(run))
    try:
        yield run, found
    finally:
        for pid, start in found.items():
            procs.send(pid, start, signal.SIGKILL)


def living(processes: dict[int, int]) -> list[int]:
    """Return the pids that are still the same processes."""
    return [pid for pid, start in processes.items() if procs.start_time(pid) == start]


def test_a_process_that_has_overwritten_its_mark_is_owned(
    place: Place, nameless: tuple[str, dict[int, int]]
) -> None:
    run, ranks = nameless
    assert len(living(ranks)) == 2
    place.cli("stop", run)
    assert living(ranks) == []


def test_it_is_owned_after_the_supervisors_death(
    place: Place, nameless: tuple[str, dict[int, int]]
) -> None:
    run, ranks = nameless
    recorded = place.node(run) / "processes.jsonl"
    wait_for(recorded.exists, "record")
    wait_for(lambda: all(f'"pid": {pid},' in recorded.read_text() for pid in ranks), "record")
    who = place.status(run)["supervisor"]
    assert procs.send(who["pid"], who["start"], signal.SIGKILL)
    wait_for(lambda: not procs.is_alive(who), "death of the supervisor")
    assert set(ranks) <= set(state.remaining(str(place.node(run)), run))
    assert place.json("stop", run)["alive"] == 0
    assert living(ranks) == []
