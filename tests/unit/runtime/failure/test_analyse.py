"""What `failure.find` makes of records, exits, blocks and logs, written as a run leaves them."""

from __future__ import annotations

import itertools
import json
import os
import signal as signals
import time
from typing import TYPE_CHECKING, Any

import pytest
from support import DATA
from support.ended_node import ENDED_WELL, MS, NO_KILLS, START, Node, error
from support.flight_dumps import recorders

from safelaunch.cli.runs.failure_block import block
from safelaunch.runtime import rank_exits
from safelaunch.runtime.failure import analyse
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import Failure, RunRecord
from safelaunch.runtime.signatures import table

if TYPE_CHECKING:
    from pathlib import Path

CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"


def on_screen(failure: dict[str, Any], width: int, run: str = "") -> list[str]:
    return block(Failure.from_json(failure), width, run)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


# -- who was first ---------------------------------------------------------------------------------

CONSEQUENCES = [
    ("RuntimeError", CLOSED),
    ("torch.distributed.DistBackendError", "NCCL communicator was aborted on rank 2."),
    ("torch.distributed.DistNetworkError", "failed to recv, got 0 bytes"),
    ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_true_failure_is_named_when_others_follow_20_ms_later(
    node: Node, order: tuple[int, ...]
) -> None:
    first, *rest = order
    node.raised(first, "ValueError", f"bad batch {first}", ms=0)
    for place, rank in enumerate(rest):
        node.raised(rank, *CONSEQUENCES[place], ms=20 + place)
    failure, _ = node.find()
    assert (failure["rank"], failure["what"]) == (first, f"ValueError: bad batch {first}")


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_consequence_that_is_noted_earlier_is_not_blamed(
    node: Node, order: tuple[int, ...]
) -> None:
    first, *rest = order
    node.raised(first, "ValueError", "slow to unwind", ms=30)
    for place, rank in enumerate(rest):
        node.raised(rank, *CONSEQUENCES[place], ms=place)
    assert node.find()[0]["rank"] == first


def test_a_rank_that_was_ended_while_it_recorded_its_exception_is_named_where_it_was_first(
    node: Node,
) -> None:
    node.cut_off(1, "ValueError", ms=0)
    for place, rank in enumerate((0, 2, 3)):
        node.raised(rank, *CONSEQUENCES[place], ms=20 + place)
    failure, _ = node.find()
    assert (failure["rank"], failure["what"], failure["role"]) == (1, "ValueError", "unknown")


@pytest.mark.parametrize("ms", [-5, 5])
def test_a_rank_that_was_ended_while_it_recorded_its_exception_explains_no_other(
    node: Node, ms: float
) -> None:
    node.cut_off(1, "RuntimeError", ms=ms)
    node.ended(2, 0, signal="SIGSEGV")
    node.cut_off(3, "RuntimeError", ms=ms)
    failure, _ = node.find()
    assert (failure["rank"], failure["signal"]) == (2, "SIGSEGV")
    assert [other["role"] for other in failure["others"]] == ["cascade", "cascade"]


def test_of_two_plain_exceptions_the_earlier_one_is_blamed(node: Node) -> None:
    node.raised(0, "RuntimeError", "boom", ms=20)
    node.raised(1, "RuntimeError", "boom", ms=0)
    assert node.find()[0]["rank"] == 1


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV", "SIGBUS"])
def test_a_rank_that_vanished_comes_before_those_that_lost_it(node: Node, signal: str) -> None:
    node.raised(0, "RuntimeError", CLOSED, ms=1)
    node.ended(1, 4, code=139, signal=signal)
    assert node.find()[0]["rank"] == 1


def test_what_the_agent_ends_is_a_cascade(node: Node) -> None:
    node.raised(2, "KeyError", "'x'")
    node.ended(0, 40, code=143, signal="SIGTERM")
    node.ended(1, 41, code=137, signal="SIGKILL")
    roles = [(other["rank"], other["role"]) for other in node.find()[0]["others"]]
    assert roles == [(0, "cascade"), (1, "cascade")]


def test_of_ends_that_were_seen_at_once_the_one_that_an_agent_sends_is_no_cause(
    node: Node,
) -> None:
    node.ended(0, 10, signal="SIGTERM")
    node.ended(1, 10, signal="SIGKILL")
    failure, _ = node.find()
    assert (failure["rank"], failure["signal"]) == (1, "SIGKILL")


def test_a_peer_that_nccls_watchdog_aborts_is_a_cascade(node: Node) -> None:
    node.ended(0, 10, code=7)
    node.ended(1, 5000, signal="SIGABRT")
    failure, _ = node.find()
    assert (failure["rank"], [other["role"] for other in failure["others"]]) == (0, ["cascade"])


def test_a_rank_whose_time_is_not_known_is_not_blamed_as_the_first(node: Node) -> None:
    node.ended(0, 10, code=7)
    node.ended(1, 0, code=7)
    node.exits[1][-1].died_ns = 0
    failure, _ = node.find()
    assert (failure["rank"], [other["role"] for other in failure["others"]]) == (0, ["unknown"])


def test_a_rank_ended_by_sigterm_before_anything_else_failed_is_the_cause(node: Node) -> None:
    node.ended(1, 0, code=143, signal="SIGTERM")
    node.raised(0, "RuntimeError", CLOSED, ms=3)
    failure, _ = node.find()
    assert (failure["rank"], failure["what"]) == (1, "ended by SIGTERM from outside the run")


def test_only_the_last_restart_counts(node: Node) -> None:
    node.record(0, error(0, "ValueError", "of the first try"), restart=0)
    node.record(1, error(1, "KeyError", "'of the second'", ms=9000), restart=1)
    node.ended(0, 9001, code=143, signal="SIGTERM", restart=1)
    node.ended(1, 9005, code=1, restart=1)
    assert node.find()[0]["what"] == "KeyError: 'of the second'"


def test_the_clock_set_back_between_restarts_changes_nothing(node: Node) -> None:
    """The marker of the second try looks older than that of the first."""
    for restart, started_at in ((0, 3600), (1, 0)):
        node.record(0, {"kind": "exit", "time_ns": START, "pid": 1000}, restart=restart)
        node.marked(0, restart, started_at)
    node.record(0, error(0, "ValueError", "of the first try", ms=3_600_000), restart=0)
    node.ended(0, 5, code=0, restart=1)
    assert node.find(ENDED_WELL) == ({}, [])


def test_the_newest_restart_is_seen_though_the_clock_was_set_back(node: Node) -> None:
    me = os.getpid()
    for restart, started_at in ((0, 3600), (1, 0)):
        node.marked(0, restart, started_at, me)
    exits = rank_exits.Exits(str(node.path), 1)
    exits.update()
    exits.close()
    assert exits.by_rank[0][-1].number == 1


@pytest.mark.parametrize("code", [0, 1])
def test_what_lives_beside_the_last_step_is_judged_with_it(node: Node, code: int) -> None:
    """Rank 0 of a torchrun has the second number: a server has the first; the others have it too.

    The first step of all, which ended before, failed and was made good.
    """
    steps = ((0, 0, 0, 1), (1, 0, 0, 1), (0, 1000, 2000, 0), (0, 2000, 3000, 0), (1, 1000, 3001, 1))
    for rank, number, ms, bad in steps:
        node.marked(rank, number, ms / 1000)
        what = error(rank, "ValueError", f"in {rank}.{number}", ms + 900)
        after = {"kind": "exit", "time_ns": START + (ms + 900) * MS, "pid": 1000}
        node.record(rank, *([what] if bad else []), after, restart=number)
    failure, _ = node.find(dict(ENDED_WELL, exit_code=code, time_ns=START + 9000 * MS))
    assert (failure["what"], failure["others"]) == ("ValueError: in 1.1000", [])


def test_a_block_of_a_torchrun_that_a_rank_has_started_is_not_of_the_job(node: Node) -> None:
    recorded = DATA / "logs" / "torchrun-record.txt"
    with open(recorded, encoding="utf-8") as file:
        node.log("launcher", file.read())
    node.record(0, {"kind": "exit", "time_ns": START, "pid": 1000})
    for run in ({"single": "main"}, {"single": "shell"}):
        node.run.update(run)
        assert node.find(ENDED_WELL) == ({}, [])


def test_a_rank_that_is_not_planned_is_not_of_the_job(node: Node) -> None:
    node.run["single"] = "main"
    node.record(0, {"kind": "exit", "time_ns": START, "pid": 1000})
    node.raised(1, "RuntimeError", "no eval data")
    assert node.find(ENDED_WELL) == ({}, [])


@pytest.mark.parametrize(("uncaught", "fails"), [(False, False), (True, True), (None, True)])
def test_an_exception_shown_by_hand_is_none_where_nobody_saw_the_code(
    node: Node, uncaught: bool | None, fails: bool
) -> None:
    record = error(0, "ValueError", "retry me")
    if uncaught is not None:
        record["uncaught"] = uncaught
    node.record(0, record, {"kind": "exit", "time_ns": START + 900 * MS, "pid": 1000})
    failure, warnings = node.find(ENDED_WELL)
    assert (bool(failure), len(warnings)) == (fails, 1)


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_that_the_job_survives_is_a_warning(node: Node, signal: str) -> None:
    node.ended(0, 1900, code=128 + 15, signal=signal)
    failure, (warning,) = node.find(ENDED_WELL)
    assert not failure
    assert warning.endswith("; the job itself ended with 0")
    node.run["rank_logs"] = True
    assert node.find(ENDED_WELL)[0]["signal"] == signal


def test_a_memory_kill_that_the_shell_loses_is_a_failure(node: Node) -> None:
    left(node, 1, ms=100)
    node.ended(0, 1900, code=137, signal="SIGKILL")
    kill = oom_kills.OomKill(text="kernel log: Killed process 1000 (python)", pid=1000)
    assert node.find(ENDED_WELL) == ({}, [])
    assert node.find(ENDED_WELL, kills=oom_kills.Kills([kill]))[0]["class"] == "host-oom"


def test_the_others_are_told_with_the_time_between(node: Node) -> None:
    node.raised(0, "ValueError", "x")
    node.ended(1, 25, code=143, signal="SIGTERM")
    (other,) = node.find()[0]["others"]
    assert (other["after"], other["what"], other["exit_code"]) == (0.025, "ended by SIGTERM", 143)


# -- how a rank ended ------------------------------------------------------------------------------


def test_sys_exit_is_told_from_an_exit_at_once(node: Node) -> None:
    node.record(0, {"kind": "exit", "time_ns": START, "monotonic_ns": 1, "pid": 1000})
    node.ended(0, 0, code=3)
    assert node.find()[0]["what"] == "exited with code 3 (sys.exit)"
    node.record(0)
    assert node.find()[0]["what"] == "exited with code 3 at once (os._exit or native exit)"


def test_the_one_rank_that_ended_unseen_is_named(node: Node) -> None:
    node.record(0, {"kind": "exit", "time_ns": START, "pid": 1000})
    node.record(1)
    failure, _ = node.find()
    assert (failure["rank"], failure["role"]) == (1, "unknown")


def test_a_segmentation_fault_has_its_python_frame(node: Node) -> None:
    node.record(0)
    node.ended(0, 0, code=139, signal="SIGSEGV")
    (node.path / "records" / "rank-0.1.0.fatal").write_text(
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f01 (most recent call first):\n"
        '  File "/home/me/proj/loader.py", line 3 in wait\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/home/me/proj/train.py", line 9 in native\n'
        '  File "/home/me/proj/train.py", line 20 in <module>\n'
    )
    failure, _ = node.find()
    assert failure["what"] == "segmentation fault (SIGSEGV)"
    assert (failure["frame"]["line"], failure["frame"]["function"]) == (9, "native")


def test_the_users_own_frame_is_told_before_a_librarys(node: Node) -> None:
    node.raised(0, "ValueError", "x")
    assert node.find()[0]["frame"]["file"] == "/home/me/proj/train.py"


def test_sigkill_without_proof_is_not_called_out_of_memory(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    node.log("rank-0", "step 1\nKilled\n")
    failure, _ = node.find()
    assert (failure["class"], failure["what"], failure["proof"]) == (
        "killed",
        "killed (SIGKILL)",
        None,
    )


def test_a_counter_of_the_ranks_group_proves_a_memory_kill(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    kill = oom_kills.OomKill(text="oom_kill rose from 0 to 1 in /x", pids=[1000])
    failure, _ = node.find(kills=oom_kills.Kills([kill]))
    assert (failure["class"], failure["proof"]) == ("host-oom", kill.text)


def test_a_memory_kill_of_another_process_proves_nothing(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    kill = oom_kills.OomKill(text="kernel log: Killed process 77 (java)", pid=77)
    assert node.find(kills=oom_kills.Kills([kill]))[0]["class"] == "killed"


KILLED_WORKER = "DataLoader worker (pid 4242) is killed by signal: Killed. "
GONE_WORKERS = "DataLoader worker (pid(s) 4242, 4243) exited unexpectedly"


@pytest.mark.parametrize(
    ("message", "killed", "name"),
    [
        (KILLED_WORKER, 4242, "host-oom"),
        (KILLED_WORKER, 77, "dataloader-worker-killed"),  # of another program
        (KILLED_WORKER, 4243, "dataloader-worker-killed"),  # of this one, and not the worker
        (GONE_WORKERS, 4243, "host-oom"),
        (GONE_WORKERS, 424, "dataloader-worker-killed"),
    ],
)
def test_only_the_memory_kill_of_a_worker_of_its_own_explains_a_rank(
    node: Node, message: str, killed: int, name: str
) -> None:
    node.raised(0, "RuntimeError", message)
    kill = oom_kills.OomKill(text=f"kernel log: Killed process {killed} (python)", pid=killed)
    failure, _ = node.find(kills=oom_kills.Kills([kill], log=True, run=[1000, 4242, 4243]))
    assert (failure["class"], failure["proof"]) == (name, kill.text if name == "host-oom" else None)


def test_a_counter_of_the_ranks_group_explains_a_worker_that_was_not_seen(node: Node) -> None:
    node.raised(0, "RuntimeError", KILLED_WORKER)
    kill = oom_kills.OomKill(text="oom_kill rose from 0 to 1 in /x", pids=[1000])
    assert node.find(kills=oom_kills.Kills([kill]))[0]["class"] == "host-oom"


@pytest.mark.parametrize(
    ("launcher", "killed", "name"),
    [
        ({"exit_code": None, "signal": "SIGKILL"}, 900, "host-oom"),
        ({"exit_code": None, "signal": "SIGKILL"}, 77, "killed"),
        ({"exit_code": 137, "signal": ""}, 901, "host-oom"),  # a shell says so of its child
        ({"exit_code": 137, "signal": ""}, 77, "killed"),
    ],
)
def test_only_the_memory_kill_of_the_launcher_or_its_child_explains_its_end(
    node: Node, launcher: dict[str, Any], killed: int, name: str
) -> None:
    kill = oom_kills.OomKill(text=f"kernel log: Killed process {killed} (python)", pid=killed)
    ended = {**launcher, "time_ns": START + 2000 * MS, "pid": 900}
    failure, _ = node.find(ended, kills=oom_kills.Kills([kill], log=True, run=[900, 901]))
    assert failure["class"] == name


def test_a_wrong_argument_is_named_from_the_output(node: Node) -> None:
    node.log("rank-0", "usage: t.py [-h]\nt.py: error: unrecognized arguments: --foo\n")
    node.record(0, {"kind": "exit", "time_ns": START, "pid": 1000})
    node.ended(0, 0, code=2)
    failure, _ = node.find()
    assert failure["class"] == "argument-error"
    assert "unrecognized arguments: --foo" in failure["what"]


def test_without_hooks_the_exception_comes_from_the_log(node: Node) -> None:
    bar = "".join(f"\r{n:3}%" for n in range(100))
    traceback = (
        'Traceback (most recent call last):\n  File "/home/me/proj/a.py", line 3, in f\n'
        "    g()\nKeyError: 'x'\n"
    )
    node.log("rank-0", f"{bar}\n[rank0]: {traceback}".replace("\n  ", "\n[rank0]:   "))
    node.ended(0, 0, code=1)
    failure, _ = node.find()
    assert failure["exception"]["type"] == "KeyError"
    assert failure["frame"]["line"] == 3
    assert failure["last_lines"][0] == " 99%"


def test_a_cuda_fault_seen_by_the_nccl_watchdog_is_named_by_its_class(node: Node) -> None:
    node.log(
        "rank-0",
        "[rank0]:[E ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=9)\n",
    )
    node.ended(0, 0, code=134, signal="SIGABRT")
    assert node.find()[0]["class"] == "nccl-timeout"


# -- exceptions that carry others -----------------------------------------------------------------

LOADER = "/opt/venv/lib/python3.11/site-packages/torch/utils/data"
WORKER = f"""Caught {{}} in {{}}.
Original Traceback (most recent call last):
  File "{LOADER}/_utils/fetch.py", line 54, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "/home/me/proj/data.py", line 10, in __getitem__
    raise IndexError("sample 20: image is truncated")
{{}}
"""


def reraised(message: str) -> dict[str, Any]:
    """Return the record of an exception that torch raises again in the rank."""
    kind = message.split()[1]
    record = error(1, kind, message)
    record["traceback"] = (
        'Traceback (most recent call last):\n  File "/home/me/proj/train.py", line 17, in step\n'
        f"    for batch in loader:\n{kind}: {message}\n\n"
    )
    return record


@pytest.mark.parametrize(
    ("kind", "where", "last", "what"),
    [
        (
            "IndexError",
            "DataLoader worker process 1",
            "IndexError: sample 20: image is truncated",
            "IndexError: sample 20: image is truncated (DataLoader worker 1)",
        ),
        (
            "UnidentifiedImageError",
            "DataLoader worker process 0",
            "PIL.UnidentifiedImageError: cannot identify 'a.jpg'",
            "PIL.UnidentifiedImageError: cannot identify 'a.jpg' (DataLoader worker 0)",
        ),
        (
            "RuntimeError",
            "pin memory thread for device 0",
            "RuntimeError: CUDA error: launch failed\nCompile it",
            "RuntimeError: CUDA error: launch failed Compile it (pin memory thread for device 0)",
        ),
        ("KeyError", "replica 1 on device 1", "KeyError", "KeyError (replica 1 on device 1)"),
    ],
)
def test_what_torch_raises_again_is_told_as_it_was_in_the_worker(
    node: Node, kind: str, where: str, last: str, what: str
) -> None:
    node.record(1, reraised(WORKER.format(kind, where, last)))
    node.ended(1, 5, code=1)
    failure, _ = node.find()
    assert failure["what"] == what
    assert (failure["frame"]["file"], failure["frame"]["line"]) == ("/home/me/proj/data.py", 10)
    assert failure["exception"]["traceback"].startswith("Traceback")


def test_a_workers_exception_is_read_from_the_log_too(node: Node) -> None:
    message = WORKER.format("IndexError", "DataLoader worker process 1", "IndexError: sample 20")
    node.log("rank-1", "step 3\n" + reraised(message)["traceback"] + "later\n")
    node.ended(1, 5, code=1)
    failure, _ = node.find()
    assert failure["what"] == "IndexError: sample 20 (DataLoader worker 1)"


def test_a_pool_workers_own_frame_is_told(node: Node) -> None:
    record = error(0, "ValueError", "bad row")
    record["traceback"] = (
        'multiprocessing.pool.RemoteTraceback: \n"""\nTraceback (most recent call last):\n'
        '  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker\n    result\n'
        '  File "/home/me/proj/rows.py", line 3, in tokenize\n    raise ValueError("bad row")\n'
        'ValueError: bad row\n"""\n\nThe above exception was the direct cause of the following '
        f"exception:\n\n{record['traceback']}"
    )
    node.record(0, record)
    failure, _ = node.find()
    assert (failure["what"], failure["frame"]["line"]) == (
        "ValueError: bad row (worker process)",
        3,
    )
    assert failure["causes"] == []


def chained(marker: str, first: str, file: str = "/home/me/proj/data.py") -> dict[str, Any]:
    record = error(0, "RuntimeError", "cannot read the data index")
    record["traceback"] = (
        f'Traceback (most recent call last):\n  File "{file}", line 3, in load\n'
        f"    return json.load(open(path))\n{first}\n\n{marker}\n\n{record['traceback']}"
    )
    return record


FROM = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"
ABSENT = "FileNotFoundError: [Errno 2] No such file or directory: '/data/idx.json'"
LIBRARY = "/opt/venv/lib/python3.11/site-packages/transformers/auto.py"


@pytest.mark.parametrize(
    ("marker", "first", "file", "is_listed"),
    [
        (FROM, ABSENT, "/home/me/proj/data.py", True),
        (FROM, "KeyError: 'x'", LIBRARY, True),
        (DURING, ABSENT, LIBRARY, True),
        (DURING, "KeyError: 'x'", "/home/me/proj/data.py", True),
        (DURING, "KeyError: 'x'", LIBRARY, False),
    ],
)
def test_the_cause_of_an_exception_is_told_where_it_helps(
    node: Node, marker: str, first: str, file: str, is_listed: bool
) -> None:
    node.record(0, chained(marker, first, file))
    failure, _ = node.find()
    assert failure["what"] == "RuntimeError: cannot read the data index"
    assert [record["what"] for record in failure["causes"]] == [first] * is_listed
    shown = " ".join(" ".join(on_screen(failure, 78)).split())
    assert (f"cause {first}, {os.path.basename(file)}:3" in shown) is is_listed


def test_a_cause_that_was_named_comes_before_what_was_being_handled(node: Node) -> None:
    record = chained(DURING, "OSError: handled")
    record["traceback"] = f"{chained(FROM, ABSENT)['traceback']}\n{DURING}\n\n{record['traceback']}"
    node.record(0, record)
    assert node.find()[0]["causes"][0]["what"] == ABSENT


# -- a rank that left, and one that was ended ------------------------------------------------------


def left(node: Node, rank: int, ms: float) -> None:
    node.record(rank, {"kind": "exit", "time_ns": START + int(ms * MS), "pid": 1000 + rank})
    node.ended(rank, ms + 400, code=0)  # an interpreter takes some time to shut down


@pytest.mark.parametrize(
    "follows",
    [
        ("RuntimeError", CLOSED),
        ("torch.distributed.DistBackendError", "NCCL communicator was aborted on rank 0."),
        ("torch.distributed.DistBackendError", "Watchdog caught collective operation timeout"),
    ],
)
def test_a_rank_that_ended_with_0_before_the_others_is_the_reason(
    node: Node, follows: tuple[str, str]
) -> None:
    left(node, 1, ms=0)
    node.raised(0, *follows, ms=300)
    failure, _ = node.find()
    assert (failure["rank"], failure["exit_code"], failure["class"]) == (
        1,
        0,
        "user-code-exception",
    )
    assert "a restart repeats it" in failure["advice"]
    assert "drop_last" in failure["advice"]
    assert [(other["rank"], other["after"]) for other in failure["others"]] == [(0, 0.3)]
    shown = on_screen(failure, 78)[0]
    assert shown.endswith("had ended with code 0 before the others were done")


def test_of_several_that_left_the_first_is_named(node: Node) -> None:
    for rank, ms in ((1, 20), (2, 0)):
        left(node, rank, ms)
    node.raised(0, "RuntimeError", CLOSED, ms=300)
    failure, _ = node.find()
    assert failure["rank"] == 2
    assert failure["others"][0]["what"] == "had ended with code 0 too"


def test_another_step_of_the_same_rank_is_no_peer_that_left(node: Node) -> None:
    for number, ms in ((0, 0), (1000, 1)):
        node.marked(0, number, ms / 1000)
    after = {"kind": "exit", "time_ns": START + 100 * MS, "pid": 1000}
    node.record(0, after)
    node.record(0, error(0, "RuntimeError", CLOSED, ms=300), restart=1000)
    assert node.find()[0]["what"].startswith("RuntimeError")


def test_ranks_that_left_when_the_launcher_was_asked_to_are_no_reason(node: Node) -> None:
    left(node, 1, ms=0)
    node.raised(0, "RuntimeError", CLOSED, ms=300)
    failure, _ = node.find({"exit_code": 143, "signal": "SIGTERM", "time_ns": START + 900 * MS})
    assert failure["rank"] != 1


def test_a_rank_that_ended_with_0_does_not_hide_a_cause(node: Node) -> None:
    left(node, 2, ms=0)
    node.raised(1, "ValueError", "x", ms=100)
    node.raised(0, "RuntimeError", CLOSED, ms=120)
    assert node.find()[0]["rank"] == 1


def test_a_rank_that_ended_past_the_interpreter_is_seen_dead_after_its_peers_lost_it(
    node: Node,
) -> None:
    node.raised(0, "RuntimeError", CLOSED, ms=0)
    node.record(1, {"kind": "start", "pid": 1001})
    node.ended(1, 60, code=0)
    assert node.find()[0]["rank"] == 1


def test_a_rank_that_ended_past_the_interpreter_after_a_cause_is_no_reason(node: Node) -> None:
    node.raised(0, "KeyError", "'x'", ms=0)
    node.record(1, {"kind": "start", "pid": 1001})
    node.ended(1, 60, code=0)
    assert node.find()[0]["rank"] == 0


def test_a_rank_that_ended_with_0_after_the_failure_is_no_reason(node: Node) -> None:
    node.raised(0, "RuntimeError", CLOSED, ms=0)
    left(node, 1, ms=50)
    assert node.find()[0]["rank"] == 0


AGENT = "W1121 14:38 5699 x/elastic/multiprocessing/api.py:1028] "


def agents_words(node: Node, stopped: list[int], signalled: list[int]) -> None:
    """Write what torchrun's agent says: whom it has ended, and who had ended by SIGTERM."""
    lines = [f"{AGENT}Sending process {1000 + rank} closing signal SIGTERM" for rank in stopped]
    lines += ["ChildFailedError: ", "=" * 30, "t.py FAILED", "-" * 30, "Failures:"]
    for rank in signalled:
        lines += [f"[{rank}]:", "  time      : 2026-11-21_14:38:18", "  host      : localhost"]
        lines += [f"  rank      : {rank} (local_rank: {rank})"]
        lines += [f"  exitcode  : -15 (pid: {1000 + rank})  (SIGTERM)", "  error_file: <N/A>"]
    node.log("launcher", "\n".join([*lines, "Root Cause (first observed failure):", "=" * 30]))


@pytest.mark.parametrize("noted", [0, 40], ids=["noted-first", "noted-late"])
def test_a_sigterm_that_the_agent_did_not_send_comes_first(node: Node, noted: float) -> None:
    node.raised(1, "RuntimeError", CLOSED, ms=10)
    node.ended(2, noted, code=143, signal="SIGTERM")
    node.ended(0, 90, code=143, signal="SIGTERM")
    agents_words(node, stopped=[0], signalled=[0, 2])
    failure, _ = node.find()
    assert (failure["rank"], failure["what"]) == (2, "ended by SIGTERM from outside the run")
    assert [(other["rank"], other["role"]) for other in failure["others"]] == [
        (1, "cascade"),
        (0, "cascade"),
    ]


def test_a_sigterm_after_the_launchers_end_is_our_own(node: Node) -> None:
    node.raised(1, "RuntimeError", CLOSED, ms=10)
    node.ended(2, 2500, code=143, signal="SIGTERM")
    agents_words(node, stopped=[], signalled=[2])
    assert node.find()[0]["rank"] == 1


def test_torchruns_localhost_is_this_machine(node: Node) -> None:
    node.record(1)
    node.ended(1, 0, code=137, signal="SIGKILL")
    agents_words(node, stopped=[0], signalled=[0, 1])
    assert node.find()[0]["host"] == os.uname().nodename


def direct(node: Node, grace: float = 5.0) -> None:
    """Let the ranks have been started without a launcher."""
    node.run |= {"start": "direct", "peer_grace": grace}


def starter(code: int = 0, signal: str = "") -> dict[str, Any]:
    """Return how the starter of ranks ended: a code is that of a rank."""
    return {"exit_code": code, "signal": signal, "time_ns": START + 9000 * MS}


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL", "SIGINT", "SIGHUP"])
def test_the_code_of_a_starter_is_that_of_the_rank_which_a_signal_ended(
    node: Node, signal: str
) -> None:
    direct(node)
    node.ended(1, 0, signal=signal)
    node.ended(0, 5010, signal="SIGTERM")
    failure, _ = node.find(starter(128 + signals.Signals[signal]))
    assert (failure["rank"], failure["signal"]) == (1, signal)
    assert [(other["rank"], other["role"]) for other in failure["others"]] == [(0, "cascade")]


@pytest.mark.parametrize("noted", [0, 40], ids=["noted-first", "noted-late"])
def test_a_signal_in_the_grace_is_not_of_the_starter(node: Node, noted: float) -> None:
    direct(node)
    node.raised(1, "RuntimeError", CLOSED, ms=10)
    node.ended(2, noted, signal="SIGTERM")
    node.ended(0, 5020, signal="SIGTERM")
    failure, _ = node.find(starter(1))
    assert (failure["rank"], failure["what"]) == (2, "ended by SIGTERM from outside the run")


def test_without_a_grace_a_signal_may_be_of_the_starter(node: Node) -> None:
    direct(node, grace=0.0)
    node.raised(1, "KeyError", "'labels'", ms=10)
    node.ended(0, 20, signal="SIGTERM")
    failure, _ = node.find(starter(1))
    assert (failure["rank"], failure["what"]) == (1, "KeyError: 'labels'")


def test_a_starter_that_a_signal_ends_is_to_blame_for_the_ranks(node: Node) -> None:
    direct(node)
    node.ended(0, 0, signal="SIGTERM")
    node.ended(1, 0, signal="SIGTERM")
    failure, _ = node.find(starter(143, "SIGTERM"))
    what = "the starter of the ranks was ended by SIGTERM"
    assert (failure["rank"], failure["what"]) == (None, what)


def test_without_an_agent_a_block_of_torchrun_names_no_rank(node: Node) -> None:
    direct(node)
    agents_words(node, stopped=[], signalled=[3])
    node.ended(1, 0, code=7)
    failure, _ = node.find(starter(7))
    assert (failure["rank"], failure["others"]) == (1, [])


def test_a_starter_that_starts_nothing_is_named_as_one(node: Node) -> None:
    direct(node)
    node.log("launcher", "setup.sh: no such file\n")
    failure, _ = node.find(starter(1))
    what = "the starter of the ranks exited with code 1: setup.sh: no such file"
    assert (failure["rank"], failure["what"]) == (None, what)


# -- what the job had around it --------------------------------------------------------------------


def plan(node: Node, argv: list[Any], **env: str) -> None:
    """Write plan.json: the argv as the job asks for it, and as it was started."""
    values = {name: {"value": value} for name, value in env.items()}
    bound = [word if isinstance(word, str) else "23456" for word in argv]
    unbound = {"nodes": {"tuple": [{"argv": {"tuple": argv}}]}}
    text = {"nodes": [{"argv": bound, "env": values}], "unbound": unbound}
    (node.path / "plan.json").write_text(json.dumps(text))


TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local"
    " network address. port: 23456, useIpv6: false, code: -98, name: EADDRINUSE, message:"
    " address already in use\n"
)
OLDER = (
    "[W1121 16:44:23.03 socket.cpp:464] The server socket has failed to bind to [::]:23456"
    " (errno: 98 - Address already in use).\n"
)


@pytest.mark.parametrize("text", [TAKEN, OLDER])
def test_a_port_that_the_job_fixes_is_named(node: Node, text: str) -> None:
    node.log("launcher", text)
    plan(node, ["-m", "torch.distributed.run", "--master_port", "23456", "t.py"])
    advice = node.find()[0]["advice"]
    assert advice.startswith("the job fixes the port 23456: drop it, or see who has it: ")
    assert "`ss -ltnp 'sport = :23456'`" in advice


def test_a_port_that_was_chosen_is_another_one_next_time(node: Node) -> None:
    node.log("launcher", TAKEN)
    plan(node, ["-m", "torch.distributed.run", "--master_port", {"slot": "port"}, "t.py"])
    assert "start again: a fresh port is chosen" in node.find()[0]["advice"]


def test_a_port_that_the_program_takes_itself_is_its_own_matter(node: Node) -> None:
    record = error(0, "OSError", "[Errno 98] Address already in use")
    del record["frames"][1]
    node.record(0, record)
    assert "the line above takes a port" in node.find()[0]["advice"]


def test_a_rank_without_cuda_gets_no_advice_on_cuda(node: Node) -> None:
    node.ended(0, 0, code=139, signal="SIGSEGV")
    plan(node, ["t.py"], CUDA_VISIBLE_DEVICES="")
    assert "CUDA" not in node.find()[0]["advice"]


def test_a_kill_that_memory_would_have_left_a_trace_of_is_somebodys(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    failure, _ = node.find(kills=oom_kills.Kills(log=True))
    assert failure["advice"].startswith("the kernel log shows no memory kill: most likely a person")
    assert "memory is the likely reason" in node.find(kills=oom_kills.Kills())[0]["advice"]


def test_a_full_disk_is_named_by_the_file_in_the_error(node: Node, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    node.raised(0, "OSError", f"[Errno 28] No space left on device: '{out}/epoch-1/a.pt'")
    failure, _ = node.find()
    assert (failure["class"], failure["disk"]) == ("disk-full", str(out))
    assert f"`df -h {out}`" in failure["advice"]


def test_a_print_that_found_no_room_names_the_run_directory(node: Node) -> None:
    record = error(0, "OSError", "[Errno 28] No space left on device")
    record["frames"] = [dict(record["frames"][0], code='print("step", n, flush=True)')]
    node.record(0, record)
    failure, _ = node.find()
    assert failure["proof"] == f"the disk of the run directory ({node.path}) is full"
    assert "SAFELAUNCH_HOME" in failure["advice"]


# -- failed, or not --------------------------------------------------------------------------------


def test_a_run_without_any_sign_of_failure_has_none(node: Node) -> None:
    node.log("rank-0", "ValueError: caught and printed\nstep 2 loss 0.1\n")
    node.ended(0, 0, code=0)
    assert node.find(ENDED_WELL) == ({}, [])


def test_an_exception_in_a_thread_of_a_run_that_ended_well_is_a_warning(node: Node) -> None:
    node.record(1, error(1, "ValueError", "in a thread", thread="Thread-1 (f)"))
    node.ended(1, 0, code=0)
    failure, (warning,) = node.find(ENDED_WELL)
    assert not failure
    assert warning.startswith("rank 1: exception in thread Thread-1 (f): ValueError: in a thread")


def test_an_exception_shown_by_hand_fails_nothing(node: Node) -> None:
    node.record(0, error(0, "ValueError", "shown"))
    node.ended(0, 900, code=0)
    failure, warnings = node.find(ENDED_WELL)
    assert not failure
    assert len(warnings) == 1


def test_a_launcher_that_swallows_a_ranks_failure_fails(node: Node) -> None:
    node.raised(1, "ValueError", "x")
    failure, warnings = node.find(ENDED_WELL)
    assert failure["rank"] == 1
    assert warnings == ["the launcher ended with 0, although a rank failed"]


def test_a_rank_that_outlived_a_good_launcher_and_was_ended_fails_nothing(node: Node) -> None:
    node.ended(1, 12_000, code=143, signal="SIGTERM")
    assert node.find({**ENDED_WELL, "leftovers": {1001}}) == ({}, [])


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_a_rank_that_outlived_a_good_launcher_and_was_ended_by_others_is_a_failure(
    node: Node, signal: str
) -> None:
    node.run["single"] = "shell"
    node.ended(0, 12_000, code=137, signal=signal)
    assert node.find(ENDED_WELL)[0]["signal"] == signal


def test_a_kill_that_is_noted_just_after_the_launchers_good_end_is_a_failure(node: Node) -> None:
    node.ended(1, 2001, code=137, signal="SIGKILL")
    assert node.find(ENDED_WELL)[0]["rank"] == 1


def test_a_block_in_the_launchers_log_is_a_failure(node: Node) -> None:
    entry = "[0]:\n  time : 2026-11-21_14:38:12\n  host : h\n  rank : 1 (local_rank: 1)\n"
    node.log(
        "launcher",
        "x.ChildFailedError: \n====\nt.py FAILED\n----\nFailures:\n  <NO_OTHER_FAILURES>\n"
        f"Root Cause (first observed failure):\n{entry}  exitcode : 3 (pid: 7)\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://x\n======\n",
    )
    failure, _ = node.find(ENDED_WELL)
    assert (failure["rank"], failure["exit_code"], failure["host"]) == (1, 3, "h")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("torchrun-exit.txt", "exited with code 3"),
        ("torchrun-segfault.txt", "segmentation fault (SIGSEGV)"),
        ("torchrun-killed.txt", "killed (SIGKILL)"),
        ("torchrun-record.txt", "ValueError: bad batch 17"),
        ("accelerate-rich.txt", "exited with code 3"),
        ("gloo-peer-exit.txt", "exited with code 4"),
    ],
)
def test_where_nothing_but_torchruns_block_is_known_it_tells_the_rank(
    node: Node, name: str, what: str
) -> None:
    recorded = DATA / "logs" / name
    with open(recorded, encoding="utf-8") as file:
        node.log("launcher", file.read())
    failure, _ = node.find()
    assert (failure["rank"], failure["what"]) == (1, what)
    assert [(other["rank"], other["role"]) for other in failure["others"]] == [(0, "cascade")]


# -- the launcher ----------------------------------------------------------------------------------


def test_a_launcher_that_was_ended_is_blamed_before_the_ranks_it_took_along(node: Node) -> None:
    node.ended(0, 5, code=143, signal="SIGTERM")
    node.ended(1, 6, code=143, signal="SIGTERM")
    failure, _ = node.find({"exit_code": 143, "signal": "SIGTERM", "time_ns": START + 900 * MS})
    assert (failure["rank"], failure["what"]) == (None, "the launcher was ended by SIGTERM")
    assert [other["what"] for other in failure["others"]] == ["ended by SIGTERM"] * 2


def test_torchruns_own_words_tell_that_it_was_ended(node: Node) -> None:
    node.log(
        "launcher",
        "torch.distributed.elastic.multiprocessing.api.SignalException: "
        "Process 123 got signal: 15\n",
    )
    node.ended(0, 5, code=143, signal="SIGTERM")
    failure, _ = node.find()
    assert (failure["rank"], failure["signal"]) == (None, "SIGTERM")


def test_a_rank_that_failed_before_the_launcher_was_ended_is_blamed(node: Node) -> None:
    node.raised(1, "ValueError", "x", ms=0)
    failure, _ = node.find({"exit_code": 143, "signal": "SIGTERM", "time_ns": START + 900 * MS})
    assert failure["rank"] == 1


def test_a_single_process_is_the_program_and_not_a_launcher(node: Node) -> None:
    node.run["single"] = "main"
    failure, _ = node.find({"exit_code": 139, "signal": "SIGSEGV", "time_ns": START})
    assert (failure["rank"], failure["what"]) == (0, "segmentation fault (SIGSEGV)")


@pytest.mark.parametrize(
    ("code", "text", "name"),
    [
        (127, "launch.sh: line 9: accelerate: command not found", "command-not-found"),
        (127, "env: 'bash\\r': No such file or directory", "crlf-bad-interpreter"),
        (127, "launch.sh: line 9: /x/python: No such file or directory", "command-not-found"),
        (1, "/usr/bin/python3: No module named torch.distributed.run", "module-not-found"),
    ],
)
def test_a_failure_before_python_is_named_by_the_launchers_words(
    node: Node, code: int, text: str, name: str
) -> None:
    node.log("launcher", f"{text}\n")
    failure, _ = node.find({"exit_code": code, "signal": "", "time_ns": START})
    assert (failure["rank"], failure["class"], failure["what"]) == (None, name, text)


def test_the_frameworks_own_log_names_the_cause_of_a_lost_actor(node: Node, tmp_path: Path) -> None:
    own = tmp_path / "worker.log"
    own.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    node.raised(0, "ray.exceptions.ActorDiedError", "The actor died unexpectedly")
    failure, _ = node.find(logs=[str(own)])
    assert (failure["class"], failure["log"]) == ("cuda-oom", str(own))


# -- the signature ---------------------------------------------------------------------------------


def test_the_signature_that_recognised_a_failure_tells_why_and_what_to_do(node: Node) -> None:
    node.raised(0, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")
    failure, _ = node.find()
    signature = table.load().by_id[failure["signature"]]
    assert signature.name == "cuda-oom"
    assert (failure["remedy"], failure["advice"]) == (signature.remedy, signature.remedy[0])
    assert signature.cause in failure["why"]


def test_an_exception_that_no_signature_knows_has_the_advice_of_its_class(node: Node) -> None:
    node.raised(0, "ValueError", "bad batch 17")
    failure, _ = node.find()
    assert "signature" not in failure
    assert failure["advice"]


def test_what_is_known_here_counts_more_than_the_steps_of_the_signature(node: Node) -> None:
    text = "The server socket has failed to listen on any local network address. port: 29511"
    node.raised(0, "RuntimeError", f"{text}, useIpv6: false, code: -98, name: EADDRINUSE")
    failure, _ = node.find()
    assert failure["remedy"] == [failure["advice"]]
    assert "signature" in failure


# -- bad evidence ----------------------------------------------------------------------------------

RUBBISH = [b"", b"\x00" * 50, b"{", b"[1]\n3\nnull\n", b'{"kind": "exception"}\n', b"\xff\xfe{}\n",
           b'{"kind": "exception", "time_ns": "x", "frames": 3, "type": 5, "traceback": []}\n',
           b"[" * 100_000]  # fmt: skip


@pytest.mark.parametrize("data", RUBBISH)
def test_a_damaged_record_raises_nothing(node: Node, data: bytes) -> None:
    (node.path / "records" / "rank-0.1.0.json").write_bytes(data)
    (node.path / "records" / "rank-0.1.0.fatal").write_bytes(data)
    (node.path / "records" / "rank-x.1.json").write_bytes(data)
    node.log("launcher", "\x00\x1b[")
    node.ended(0, 0, code=1)
    failure, warnings = node.find()
    assert failure["rank"] == 0
    assert not warnings


def test_without_any_file_the_launchers_code_is_told(tmp_path: Path) -> None:
    failure, _ = analyse.find(
        str(tmp_path / "gone"), RunRecord(), 1, {}, {"exit_code": 5, "signal": ""}, [], NO_KILLS
    )
    assert failure is not None
    assert failure.what == "the launcher exited with code 5"


def test_a_log_with_a_hole_of_gigabytes_is_read_at_its_end(node: Node) -> None:
    path = node.logs / "rank-0.log"
    with path.open("wb") as file:
        file.truncate(4 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"ValueError: at the end\n")
    node.ended(0, 0, code=1)
    started = time.process_time()
    failure, _ = node.find()
    assert failure["last_lines"] == ["ValueError: at the end"]
    assert time.process_time() - started < 2


# -- the block on the screen -----------------------------------------------------------------------


def test_the_screen_says_who_where_then_and_next_in_80_columns(node: Node) -> None:
    node.raised(1, "ValueError", "bad batch 17")
    for rank in (0, 2, 3):
        node.raised(rank, "RuntimeError", CLOSED, ms=20 + rank)
    lines = on_screen(node.find()[0], 78, "digits-1")
    assert [line[:8].strip() for line in lines if line[:1] != " "] == [
        "failure", "class", "why", "at", "then", "log", "next",
    ]  # fmt: skip
    assert lines[0] == "failure   rank 1 on gpu01 failed first: ValueError: bad batch 17"
    assert any("ranks 0, 2-3, 20 to 23 ms later: " in line for line in lines)
    assert max(map(len, lines)) <= 78


def test_a_block_of_long_words_stays_short(node: Node) -> None:
    node.raised(1, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate " + "x" * 2000)
    lines = on_screen(node.find()[0], 78)
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 78


TRL = "packing needs position ids, which this drops.\n- collator: Mine\n\nSet `packing=False`."


def test_an_exception_that_no_signature_knows_is_shown_with_its_whole_message(node: Node) -> None:
    node.raised(0, "ValueError", TRL)
    lines = on_screen(node.find()[0], 78)
    start = lines.index("message   ValueError: packing needs position ids, which this drops.")
    assert [line.strip() for line in lines[start + 1 : start + 3]] == [
        "- collator: Mine", "Set `packing=False`.",
    ]  # fmt: skip


def test_a_giant_message_keeps_its_end_and_is_bounded(node: Node) -> None:
    node.raised(0, "ValueError", "x" * 9000 + " set packing=False")
    failure, _ = node.find()
    assert failure["exception"]["message"].endswith("set packing=False")
    assert len(failure["exception"]["message"]) <= 4000
    assert len(on_screen(failure, 78)) <= 80


def test_the_library_that_raised_it_is_named_with_the_call(node: Node) -> None:
    (node.path / "record.json").write_text('{"packages": {"torch": "2.13.0"}}')
    node.raised(0, "ValueError", "bad argument")
    failure, _ = node.find()
    assert failure["library"] == {
        "library": "torch", "version": "2.13.0", "path": "torch/nn/x.py", "line": 1,
        "is_raise": True,
    }  # fmt: skip
    assert failure["why"].startswith("raised in torch 2.13.0 (torch/nn/x.py:1): a setting or an")
    assert failure["advice"].endswith("it was called from /home/me/proj/train.py:17")


def test_who_works_in_a_clone_of_the_library_is_not_sent_to_the_same_line(node: Node) -> None:
    record = error(0, "ValueError", "bad argument")
    clone = "/home/me/proj/verl/verl/trainer/main.py"
    record["frames"] = [{"file": clone, "line": 7, "function": "f", "code": "raise ValueError("}]
    node.record(0, record)
    node.ended(0, 5, code=1)
    failure, _ = node.find()
    assert failure["library"]["path"] == "verl/trainer/main.py"
    assert "called from" not in failure["advice"]


def test_an_exception_of_the_users_own_line_names_no_library(node: Node) -> None:
    record = error(0, "ValueError", "bad batch 17")
    record["frames"] = record["frames"][:1]
    node.record(0, record)
    node.ended(0, 5, code=1)
    failure, _ = node.find()
    assert "library" not in failure
    assert failure["advice"].startswith("fix the line above")


def test_the_message_of_an_exception_in_a_log_is_whole_and_ends_at_what_others_print(
    node: Node,
) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/home/me/proj/t.py", line 3, in f\n    g()\n'
    )
    node.log(
        "launcher", f"{trace}ValueError: {TRL}\nsrun: error: task 0: Exited with exit code 1\n"
    )
    failure, _ = node.find()
    assert failure["exception"]["message"] == TRL


SIGNALS = ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTERM", "SIGHUP", "SIGUSR1"]


@pytest.mark.parametrize("name", SIGNALS)
def test_the_class_of_a_signal_is_told_whole_and_of_that_signal(node: Node, name: str) -> None:
    node.ended(0, 0, code=1, signal=name)
    lines = on_screen(node.find()[0], 78)
    (expected,) = [line for line in lines if line.startswith("class")]
    assert max(map(len, lines)) <= 78
    assert expected.endswith(")")
    assert ("segmentation fault" in expected) is (name == "SIGSEGV")
    assert ("outside" in expected) is (name in ("SIGTERM", "SIGUSR1"))


def test_the_stack_of_a_fatal_signal_is_shown_with_the_users_frames_marked(node: Node) -> None:
    node.ended(0, 0, code=139, signal="SIGSEGV")
    deep = "".join(
        f'  File "/opt/lib/python3.11/site-packages/torch/nn/m.py", line {n} in call\n'
        for n in range(30)
    )
    (node.path / "records" / "rank-0.1.0.fatal").write_text(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n"
        f'  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n{deep}'
        '  File "/home/me/proj/model.py", line 9 in forward\n'
        '  File "/home/me/proj/train.py", line 20 in <module>\n'
    )
    lines = on_screen(node.find()[0], 78)
    start = next(index for index, line in enumerate(lines) if line.startswith("stack"))
    stack = [line[10:] for line in lines[start : start + 8]]
    assert stack[0].startswith("  string_at (")
    assert stack[-2:] == ["> forward (/home/me/proj/model.py:9)",
                          "> <module> (/home/me/proj/train.py:20)"]  # fmt: skip
    assert not lines[start + 8].startswith(" ")


def test_of_an_empty_log_it_is_said_that_it_is_empty(node: Node) -> None:
    node.log("rank-0", "")
    node.ended(0, 0, code=137, signal="SIGKILL")
    lines = on_screen(node.find()[0], 78, "job-1")
    assert "log       rank 0 printed nothing; all ranks: safelaunch logs job-1" in lines


def test_the_users_own_path_and_line_are_folded_and_not_cut(node: Node) -> None:
    record = error(0, "ValueError", "x")
    file = "/home/me/proj/" + "experiments/" * 6 + "train.py"
    code = "loss = model(" + ", ".join(f"argument_{n}" for n in range(9)) + ")"
    record["frames"] = [{"file": file, "line": 17, "function": "step", "code": code}]
    node.record(0, record)
    lines = on_screen(node.find()[0], 78)
    assert max(map(len, lines)) <= 78
    joined = "".join(line[10:].strip() for line in lines)
    assert f"{file}:17 in step" in joined
    assert code.replace(" ", "") in joined.replace(" ", "")


# -- collectives -----------------------------------------------------------------------------------

WATCHDOG = (
    "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for "
    "600026 milliseconds before timing out.\n"
)


def timed_out(node: Node, *, waiting: tuple[int, ...] = (0, 1, 3)) -> None:
    """Let rank 0 abort by its watchdog, with dumps of four ranks."""
    node.log("rank-0", WATCHDOG)
    node.ended(0, 0, signal="SIGABRT")
    for number, rank in enumerate(recorders(4)):
        rank.call(line=9)
        if number in waiting:
            rank.waits()
        rank.write(node.path / "nccl" / "attempt-1")


def test_the_failure_of_a_timeout_names_the_rank_that_did_not_come(node: Node) -> None:
    timed_out(node)
    failure, _ = node.find()
    assert (failure["class"], failure["collectives"]["kind"]) == ("nccl-timeout", "slow-rank")
    assert failure["why"].startswith(
        "slow-rank: rank 2 has not come: ranks 0-1, 3 wait in all_reduce 2"
    )
    assert failure["remedy"][0] == failure["advice"]
    assert not any("DUMP_ON_TIMEOUT" in step for step in failure["remedy"])
    assert failure["advice"].startswith("look at what rank 2 did after train.py:9")


def test_the_block_of_a_timeout_says_where_the_dumps_are(node: Node) -> None:
    timed_out(node)
    lines = on_screen(node.find()[0], 200)
    assert f"dumps     {node.path}/nccl/attempt-1" in lines


def test_a_timeout_without_dumps_is_explained_by_its_signature(node: Node) -> None:
    node.log("rank-0", WATCHDOG)
    node.ended(0, 0, signal="SIGABRT")
    failure, _ = node.find()
    assert "collectives" not in failure
    assert failure["signature"] == "nccl-timeout-collective"


def test_dumps_do_not_explain_a_failure_that_has_a_cause(node: Node) -> None:
    timed_out(node)
    node.raised(2, "ValueError", "bad batch 17", ms=-1000)
    failure, _ = node.find()
    assert (failure["rank"], failure["what"]) == (2, "ValueError: bad batch 17")
    assert "collectives" not in failure


NCCL_START = (
    "h:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n"
    "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 - Init COMPLETE\n"
)
LINK = (
    "\n[2026-01-01 10:00:00] h:1:3 [0] transport/net_ib.cc:2241 (ncclIbTest) NCCL WARN NET/IB: Got "
    "completion from peer 192.0.2.7<55921> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
)


def nccl_log(node: Node, text: str) -> None:
    folder = node.path / "nccl" / "attempt-1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rank-0.1000").write_text(text)


def test_the_failure_of_nccl_says_what_it_had_chosen(node: Node) -> None:
    timed_out(node)
    nccl_log(node, NCCL_START)
    failure, _ = node.find()
    assert failure["nccl"] == "2.27.3+cuda12.9, P2P/CUMEM"
    assert "nccl      2.27.3+cuda12.9, P2P/CUMEM" in on_screen(failure, 100)


def test_a_warning_of_nccl_in_its_own_file_is_the_cause(node: Node) -> None:
    timed_out(node)
    nccl_log(node, NCCL_START + LINK)
    failure, _ = node.find()
    assert (failure["class"], failure["role"]) == ("nccl-ib", "root")
    assert failure["log"].endswith("nccl/attempt-1/rank-0.1000")


def test_a_warning_before_the_last_start_of_nccl_is_no_cause(node: Node) -> None:
    timed_out(node)
    nccl_log(node, LINK + NCCL_START)
    assert node.find()[0]["class"] == "nccl-timeout"
