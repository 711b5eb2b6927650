"""The evidence about real hung processes, gathered as the supervisor does it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.flight_dumps import recorders
from support.workspace import wait_for

from safelaunch.runtime import FOLDER, processes
from safelaunch.runtime.hang import evidence, stacks
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SITE = Path(FOLDER) / "site"
SPY = Path(sys.executable).with_name("py-spy")
REGISTER = """
import faulthandler, sys
faulthandler.register(44, open(sys.argv[2], "w"), all_threads=True, chain=False)
"""
# a collective in a file that lies where torch's own lies: who waits there is judged by its name
TORCH = "def all_reduce(reader):\n    reader.recv(1)\n"
TRAIN = """
import socket, sys, time
sys.path.insert(0, sys.argv[3])
from torch.distributed import all_reduce
a, b = socket.socketpair()

def load():
    time.sleep(600)

def step(rank):
    if rank == 1:
        load()
    all_reduce(a)

print("up", flush=True)
step(int(sys.argv[1]))
"""


class Ranks:
    """Processes that hang, a node directory, and a supervisor's way of reaping."""

    def __init__(self, root: Path, evidence: ModuleType) -> None:
        self.root = root
        self.module = evidence
        self.node = root / "node-0"
        (self.node / "records").mkdir(parents=True)
        (root / "bin").mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.ranks: dict[int, tuple[int, int]] = {}
        self.longest = 0.0
        self.helpers = 0
        library = root / "lib" / "torch" / "distributed"
        library.mkdir(parents=True)
        (library.parent / "__init__.py").touch()
        (library / "__init__.py").write_text(TORCH)

    def start(self, text: str, rank: int, **env: str) -> int:
        """Start a program as a rank and wait until it says that it is up."""
        script = self.root / "project" / "train.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        answer = self.node / "records" / f"rank-{rank}.1.0.stacks"
        argv = [sys.executable, str(script), str(rank), str(answer), str(self.root / "lib")]
        environ = {"PATH": str(self.root / "bin"), **env}
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environ)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        # summary just before it begins to wait
        wait_for(lambda: processes.stat_of(process.pid)[0] == "S", "sleep")  # type: ignore[index]
        self.ranks[rank] = (process.pid, processes.start_time(process.pid) or 0)
        return process.pid

    def gather(self, **run: Any) -> dict[str, Any]:
        """Gather to the end, reaping as a supervisor does."""
        run = {"roots": [str(self.root / "project")], "python": None, **run}
        collector = self.module.Evidence(str(self.node), RunRecord.from_json(run), 1)
        collector.start(1, self.ranks)

        def poll() -> Any:
            before = time.perf_counter()
            result = collector.tick(time.monotonic())
            self.longest = max(self.longest, time.perf_counter() - before)
            for pid in list(collector.children):
                self.helpers += 1
                done, status = os.waitpid(pid, os.WNOHANG)
                assert not done or collector.reaped(done, status)
            return result

        report = wait_for(poll, "evidence").to_json()
        assert isinstance(report, dict)
        return report

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setattr(evidence, "PERIOD", 0.2)
    ranks = Ranks(tmp_path, evidence)
    try:
        yield ranks
    finally:
        ranks.close()


def need_spy() -> str:
    """Return the folder of py-spy, or skip."""
    program = str(SPY) if SPY.exists() else shutil.which("py-spy")
    if program is None:
        pytest.skip("no py-spy here: pip install py-spy")
    return os.path.dirname(program)


def test_faulthandler_names_the_rank_that_has_not_reached_the_collective(hung: Ranks) -> None:
    for rank in range(3):
        hung.start(REGISTER + TRAIN, rank)
    result = hung.gather()
    waiting, missing = result["summary"].split("\n")[0].split("; ")
    assert waiting.startswith("ranks 0, 2 wait in all_reduce (train.py:")
    assert missing.startswith("rank 1 is in load (train.py:")
    assert result["summary"].endswith("\nrank 1 has not reached the collective")


def test_the_result_says_what_each_rank_does(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 0)
    hung.start(REGISTER + TRAIN, 1)
    result = hung.gather()
    rank_report = result["ranks"]["1"]
    assert (result["rank"], rank_report["how"], rank_report["state"]) == (1, "faulthandler", "S")
    assert rank_report["frame"]["function"] == "load"
    assert rank_report["cpu"] < 0.5


def test_the_result_names_the_frame_to_look_at(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 0)
    hung.start(REGISTER + TRAIN, 1)
    result = hung.gather()
    line = result["frame"]["line"]
    assert result["frame"]["function"] == "load"
    expected = f"look at what rank 1 does at train.py:{line}: the others wait for it"
    assert result["advice"] == expected


def record(hung: Ranks, rank: int, **fields: Any) -> None:
    """Write the record of a rank as its hooks do."""
    text = json.dumps({"rank": rank, "time_ns": time.time_ns() - 4 * 10**9, **fields})
    (hung.node / "records" / f"rank-{rank}.1.0.json").write_text(f"{text}\n\0\0")


def test_a_thread_that_died_before_is_named_with_its_place(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 0)
    hung.start(REGISTER + TRAIN, 1)
    file = str(hung.root / "project" / "data.py")
    frames = [
        {"file": file, "line": 6, "function": "prefetch", "code": "raise OSError"},
        {"file": "/usr/lib/python3.11/queue.py", "line": 1, "function": "put", "code": ""},
    ]
    died = {"thread": "Thread-1 (prefetch)", "type": "OSError", "message": "corrupt shard"}
    record(hung, 1, kind="exception", frames=frames, **died)
    result = hung.gather()
    first = result["summary"].split("\n")[0]
    assert first == "rank 1: OSError: corrupt shard in thread prefetch, data.py:6, 4 s before"
    assert (result["rank"], result["frame"]["line"]) == (1, 6)
    assert "its thread is gone" in result["advice"]


def test_a_dead_thread_of_a_rank_that_waits_as_it_should_is_told_and_not_blamed(
    hung: Ranks,
) -> None:
    hung.start(REGISTER + TRAIN, 0)
    hung.start(REGISTER + TRAIN, 1)
    record(hung, 0, kind="exception", thread="wandb", type="OSError", message="x", frames=[])
    result = hung.gather()
    assert "OSError: x in thread wandb" in result["summary"]
    assert (result["rank"], result["frame"]["function"]) == (1, "load")


def test_a_rank_that_had_ended_by_itself_is_why_the_others_wait(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 0)
    record(hung, 1, kind="exit")
    result = hung.gather()
    assert result["summary"].startswith("rank 1 had already exited, 4 s before\nrank 0 waits")
    assert result["rank"] == 1
    assert "fewer batches" in result["advice"]


def test_ranks_that_are_done_are_no_reason_where_nobody_waits_for_them(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 1)  # as rank 1 it is in load()
    for rank in (0, 2, 3):
        record(hung, rank, kind="exit")
    result = hung.gather()
    assert result["summary"].startswith("ranks 0, 2, 3 had already exited, 4 s before\n")
    assert result["rank"] is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"kind": "exception", "thread": 3, "frames": [1]}'])
def test_a_damaged_record_hides_no_stacks(hung: Ranks, data: bytes) -> None:
    hung.start(REGISTER + TRAIN, 1)
    (hung.node / "records" / "rank-1.1.0.json").write_bytes(data)
    assert "load (train.py:" in hung.gather()["summary"]


def test_the_stacks_lie_in_the_run_directory(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 0)
    result = hung.gather()
    folder = hung.node / "hang-1"
    assert result["folder"] == str(folder)
    assert "all_reduce" in (folder / "rank-0.txt").read_text()
    assert "SigCgt" in (folder / "rank-0.kernel.txt").read_text()


def test_only_the_new_part_of_the_answers_is_taken(hung: Ranks) -> None:
    pid = hung.start(REGISTER + TRAIN, 0)
    answer = hung.node / "records" / "rank-0.1.0.stacks"
    os.kill(pid, 44)
    wait_for(lambda: b"train.py" in answer.read_bytes(), "an earlier answer")
    hung.gather()
    assert (hung.node / "hang-1" / "rank-0.txt").read_text().count("Current thread") == 1


def test_a_process_without_the_handler_gets_no_signal(hung: Ranks) -> None:
    hung.start(TRAIN, 0)
    (hung.node / "records" / "rank-0.1.0.stacks").touch()
    result = hung.gather()
    assert hung.processes[0].poll() is None
    assert (
        result["ranks"]["0"]["how"] == "none: no py-spy; no faulthandler registered in the process"
    )


def test_a_reused_pid_is_not_asked(hung: Ranks) -> None:
    pid = hung.start(REGISTER + TRAIN, 0)
    hung.ranks[0] = (pid, hung.ranks[0][1] - 1)
    result = hung.gather()
    assert result["ranks"]["0"]["how"] == "none: the process has ended"
    assert not (hung.node / "records" / "rank-0.1.0.stacks").stat().st_size


def test_a_stopped_rank_is_told_from_a_hung_one(hung: Ranks) -> None:
    hung.start(TRAIN, 0)
    pid = hung.start(TRAIN, 1)
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: processes.stat_of(pid)[0] == "T", "stop")  # type: ignore[index]
    result = hung.gather()
    assert f"rank 1 was stopped by a signal: resume with `kill -CONT {pid}`" in result["summary"]


def test_py_spy_is_used_where_it_lies_on_the_job_s_path(hung: Ranks) -> None:
    path = need_spy()
    for rank in range(2):
        hung.start(TRAIN, rank, PATH=path)
    result = hung.gather()
    how = result["ranks"]["0"]["how"]
    if how.startswith("none: py-spy:"):
        pytest.skip(f"this machine forbids it: {how}")
    assert how == "py-spy"
    assert result["summary"].endswith("\nrank 1 has not reached the collective")


def test_a_py_spy_that_fails_gives_way_to_faulthandler(hung: Ranks) -> None:
    spy = hung.root / "bin" / "py-spy"
    spy.write_text("#!/bin/sh\necho Permission Denied\nexit 1\n")
    spy.chmod(0o755)
    hung.start(REGISTER + TRAIN, 0)
    assert hung.gather()["ranks"]["0"]["how"] == "faulthandler"
    assert hung.helpers > 0


def test_a_py_spy_that_hangs_is_ended(hung: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung.module, "SPY_LIMIT", 0.2)
    spy = hung.root / "bin" / "py-spy"
    spy.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    spy.chmod(0o755)
    hung.start(REGISTER + TRAIN, 0)
    assert hung.gather()["ranks"]["0"]["how"] == "faulthandler"


def test_a_cancelled_gathering_leaves_no_child_and_sends_no_signal(hung: Ranks) -> None:
    spy = hung.root / "bin" / "py-spy"
    spy.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    spy.chmod(0o755)
    hung.start(REGISTER + TRAIN, 0)
    collector = hung.module.Evidence(str(hung.node), RunRecord(), 1)
    collector.start(1, hung.ranks)
    collector.tick(1.0)
    (child,) = collector.children
    collector.cancel()
    assert collector.reaped(*os.waitpid(child, 0))
    assert collector.tick(2.0) is None
    assert not (hung.node / "records" / "rank-0.1.0.stacks").stat().st_size


def test_an_armed_flight_recorder_is_asked_and_its_dump_kept(hung: Ranks) -> None:
    stem, prefix = hung.root / "pipe-", hung.root / "dump-"
    recorder = (
        f"import os\nos.mkfifo('{stem}0.pipe')\nprint('up', flush=True)\n"
        f"with open('{stem}0.pipe') as pipe:\n    pipe.readline()\n"
        f"with open('{prefix}0', 'w') as dump:\n    dump.write('recorded')\n"
        "import time\ntime.sleep(600)\n"
    )
    armed = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(stem), "TORCH_FR_DUMP_TEMP_FILE": str(prefix)}
    hung.start(recorder, 0, **armed)
    result = hung.gather()
    (copy,) = result["flight"]
    assert Path(copy).read_text() == "recorded"


def test_the_recorders_that_ranks_have_armed_themselves_name_the_slow_rank(hung: Ranks) -> None:
    folder = hung.node / "nccl" / "attempt-1"
    folder.mkdir(parents=True)
    waiting, slow = recorders(2)
    waiting.waits().write(hung.root, "dump-")
    slow.write(hung.root, "dump-")
    for rank in (0, 1):
        stem = folder / f"flight-{rank}"
        hung.start(
            f"import os, time\nos.mkfifo('{stem}.pipe')\nprint('up', flush=True)\n"
            f"with open('{stem}.pipe') as pipe:\n    pipe.readline()\n"
            f"os.rename('{hung.root}/dump-{rank}', '{stem}')\ntime.sleep(600)\n",
            rank,
        )
    result = hung.gather()
    assert result["collectives"]["kind"] == "slow-rank"
    assert "slow-rank: rank 1 has not come: rank 0 waits in all_reduce 1" in result["summary"]


def test_what_stands_where_the_pipe_should_be_is_not_written_to(hung: Ranks) -> None:
    (hung.root / "pipe-0.pipe").write_text("precious")
    hung.start(TRAIN, 0, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=str(hung.root / "pipe-"))
    hung.gather()
    assert (hung.root / "pipe-0.pipe").read_text() == "precious"


def test_no_tick_holds_the_supervisor_up(hung: Ranks) -> None:
    for rank in range(4):
        hung.start(REGISTER + TRAIN, rank)
    hung.gather()
    assert hung.longest < 0.25  # a loaded machine; 5 ms are meant


def test_a_full_disk_does_not_hide_the_summary(hung: Ranks) -> None:
    hung.start(REGISTER + TRAIN, 1)
    (hung.node / "hang-1").write_text("no folder can be made here")
    assert "load (train.py:" in hung.gather()["summary"]


@pytest.mark.skipif(not (SITE / "safelaunch_rank.py").exists(), reason="no capture here")
def test_the_ranks_and_the_supervisor_mean_the_same_signal(hung: Ranks) -> None:
    text = (SITE / "safelaunch_rank.py").read_text()
    assert f"\nSTACKS_SIGNAL = {hung.module.STACKS_SIGNAL}\n" in text


# -- words


def rank_report(
    file: str, line: int, function: str, call: str = "", **fields: Any
) -> dict[str, Any]:
    frame = {"file": f"/p/{file}", "line": line, "function": function}
    return {"frame": frame, "call": call, "waits": bool(call), "state": "S", "pid": 7, **fields}


def test_all_ranks_in_one_collective_point_to_the_transport() -> None:
    ranks = {rank: rank_report("train.py", 41, "step", "barrier") for rank in range(8)}
    summary, odd = stacks.summarise(ranks)
    assert summary.startswith(
        "ranks 0-7 wait in barrier (train.py:41)\nno rank of this machine is missing"
    )
    assert odd is None


def test_ranks_in_different_collectives_have_gone_different_ways() -> None:
    ranks = {rank: rank_report("train.py", 41, "step", "all_reduce") for rank in range(3)}
    ranks[3] = rank_report("eval.py", 9, "evaluate", "barrier")
    summary, odd = stacks.summarise(ranks)
    assert (summary.split("\n")[1], odd) == ("the ranks wait in different collectives", 3)


def test_without_collectives_the_one_elsewhere_is_named() -> None:
    ranks = {rank: rank_report("train.py", 41, "step", cpu=0.99) for rank in range(3)}
    ranks[1] = rank_report("data.py", 17, "load", wchan="hrtimer_nanosleep")
    summary, odd = stacks.summarise(ranks)
    assert "rank 1 is in load (data.py:17), asleep\nrank 1 is not where" in summary
    assert odd == 1


def test_of_several_ranks_it_is_spoken_in_the_plural() -> None:
    ranks = {rank: rank_report("train.py", 41, "step", "barrier") for rank in range(4)}
    ranks[2] = ranks[3] = rank_report("data.py", 17, "load")
    summary, _ = stacks.summarise(ranks)
    assert summary.startswith("ranks 0, 1 wait in barrier (train.py:41); ranks 2, 3 are in load")
    assert summary.endswith("\nranks 2, 3 have not reached the collective")


def test_a_rank_without_a_stack_is_told_with_what_the_kernel_says() -> None:
    none = {"frame": None, "call": "", "waits": False, "state": "D", "wchan": "nfs_wait"}
    summary, _ = stacks.summarise({0: rank_report("t.py", 1, "f", "barrier"), 1: none})
    assert "rank 1 has no Python stack, stuck in the kernel (nfs_wait)" in summary


def test_the_user_s_own_frame_is_found_also_with_an_environment_in_the_project() -> None:
    text = (
        'Current thread 0x00007f (most recent call first):\n  File "/p/.venv/lib/python3.11/'
        'site-packages/torch/utils/data.py", line 5 in fetch\n  File "/p/a b.py", line 3 in go\n'
    )
    result = stacks.examine(text, ["/p"])
    assert result["frame"] == {"file": "/p/a b.py", "line": 3, "function": "go"}
    assert result["call"] == "fetch"
