"""Which lines of a log decide the class of an end, and which are a program's own text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.ended_node import Node, error

from safelaunch.cli.runs.failure_block import block
from safelaunch.runtime.failure import log_tails
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import Failure

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


# -- aborts ----------------------------------------------------------------------------------------

ASSERTION = "python: kernel.c:17: launch: Assertion `n > 0' failed.\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
TIMEOUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
NCCL_END = (
    f"""[rank0]:[E1121 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] {TIMEOUT}
[rank0]:[E1121 10:00:00.2 ProcessGroupNCCL.cpp:636] [Rank 0] To avoid data inconsistency, we are \
taking the entire process down.
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 Rank 0] Process group watchdog thread terminated with exception: {TIMEOUT}
Exception raised from ncclCommWatchdog at ProcessGroupNCCL.cpp:1601 (most recent call first):
"""
    + "frame #1: c10d::ProcessGroupNCCL::watchdogHandler() + 0x1 (0x7 in libtorch_cuda.so)\n" * 20
)
THROWN = "terminate called after throwing an instance of '{}'\n  what():  {}\n"
NCCL = (
    "NCCL error in: x.cpp:4, unhandled system error\nncclSystemError: call failed\nLast error:\n"
    "socketStartConnect: Connect to 10.0.0.1<39621> failed : Connection refused"
)
FAULT = "CUDA error: an illegal memory access was encountered"
QUIET = "still waiting\n" * 40


def aborted(node: Node, log: str) -> dict[str, Any]:
    node.log("rank-0", log)
    node.ended(0, 0, code=134, signal="SIGABRT")
    return node.find()[0]


@pytest.mark.parametrize(
    "log",
    [
        f"WARNING: caught {OOM}, retrying with batch 4\nstep 1\n{ASSERTION}",
        f"caught {OOM}\n{ASSERTION}",
        f"{OOM}\nstep 1\n",
        f"{OOM}\nEpoch 1, step 7/100\n",
        f"{OOM}\n 10%|#  | 3/30 [00:10<01:30, 3.3s/it]\n 13%|#  | 4/30 [00:13<01:27, 3.3s/it]\n",
        f"{OOM}\n{QUIET}",
        f"retrying after {OOM}\n",
        f"retrying: {TIMEOUT}\n{QUIET}{ASSERTION}",
        f"{NCCL_END}the group was made anew\nstep 5\n{ASSERTION}",
        f"{NCCL_END}{ASSERTION}",
        f"{OOM}\nfree(): invalid pointer\n",
        f"{OOM}\n{THROWN.format('std::logic_error', 'bad')}",
        f"{OOM}\nF1121 10:00:00.0 12 graph.cc:7] Check failed: n > 0\n",
    ],
)
def test_an_abort_has_no_class_of_what_was_handled_before(node: Node, log: str) -> None:
    failure = aborted(node, log)
    assert (failure["class"], failure.get("why", "")) == ("killed-by-signal", ""), failure["what"]


def test_an_abort_is_described_by_the_message_of_its_assertion(node: Node) -> None:
    assert "Assertion `n > 0' failed." in aborted(node, f"{OOM}\n{ASSERTION}")["what"]


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (NCCL_END, "nccl-timeout"),
        (f"{OOM}\nstep 5\n{NCCL_END}", "nccl-timeout"),
        (f"{ASSERTION}{NCCL_END}", "nccl-timeout"),
        (THROWN.format("c10::Error", FAULT), "cuda-illegal-memory-access"),
        (THROWN.format("std::runtime_error", NCCL), "nccl-unhandled-error"),
    ],
)
def test_an_abort_has_the_class_of_its_own_message(node: Node, log: str, name: str) -> None:
    failure = aborted(node, log)
    assert failure["class"] == name
    assert "failure" not in failure["why"]


def test_a_class_that_only_stands_near_an_abort_is_likely(node: Node) -> None:
    failure = aborted(node, f"step 1\n{OOM}\n")
    assert (failure["class"], failure["why"].split()[0]) == ("cuda-oom", "likely:")


def test_the_abort_of_one_rank_is_not_explained_by_anothers_line(node: Node) -> None:
    node.log("launcher", f"[rank1]: {OOM}\n[rank0]: {ASSERTION}")
    node.ended(0, 0, code=134, signal="SIGABRT")
    node.ended(1, 50, code=134, signal="SIGABRT")
    assert node.find()[0]["class"] == "killed-by-signal"


def test_a_message_that_names_another_way_is_still_the_cause_of_an_exit(node: Node) -> None:
    text = "unrecognized arguments: --x; if you mean it, use --y instead"
    node.log("rank-0", f"t.py: error: {text}\n")
    node.record(0, {"kind": "exit", "time_ns": 1, "pid": 1000})
    node.ended(0, 0, code=2)
    assert node.find()[0]["class"] == "argument-error"


R0, R1 = "[rank0]: ", "[rank1]: "
BEGIN = "Traceback (most recent call last):\n"
MODULE = '  File "/home/me/proj/t.py", line {}, in <module>\n    main()\n'
INNER = '  File "/home/me/proj/t.py", line {}, in {}\n    raise\n'

# -- exceptions ------------------------------------------------------------------------------------

PROGRAM_TEXT = (
    f"{OOM}\n",
    f"config: {{'on_error': '{OOM}'}}\n",
    "usage: if you see `NCCL error: unhandled system error`, set NCCL_DEBUG=INFO\n",
    f'  File "old.py", line 3, in f\n    raise X("{OOM}")\nRuntimeError: {OOM}\nstep 9\n',
    f"INFO handled: {OOM}\n",
    f"ERROR:root:{OOM}\nTraceback (most recent call last):\nValueError: {OOM}\nretrying\n",
    "NCCL WARN unhandled system error\nstep 12, loss 0.3\n",
)


@pytest.mark.parametrize("text", PROGRAM_TEXT)
@pytest.mark.parametrize(
    ("kind", "message", "name"),
    [
        ("KeyError", "'labels'", "user-code-exception"),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", "peer-lost"),
        ("RuntimeError", "[x/gloo/transport/tcp/pair.cc:5] Connection closed by peer", "peer-lost"),
    ],
)
def test_an_exception_has_no_class_of_text_that_the_program_printed(
    node: Node, text: str, kind: str, message: str, name: str
) -> None:
    node.log("rank-0", text)
    node.raised(0, kind, message)
    assert node.find()[0]["class"] == name


def test_what_a_library_logs_is_the_cause_of_a_lost_peer(node: Node) -> None:
    node.log("rank-0", "[E1121 10:00 ProcessGroupNCCL.cpp:9] CUDA error: out of memory\n")
    node.raised(0, "torch.distributed.DistBackendError", "NCCL communicator was aborted on rank 0.")
    assert node.find()[0]["class"] == "cuda-oom"


def test_a_traceback_before_a_later_step_is_not_the_end_of_a_rank(node: Node) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nKeyError: 1\n'
    )
    node.log("rank-0", f"{trace}step 5\n")
    node.ended(0, 0, code=1)
    failure, _ = node.find()
    assert (failure["exception"], failure["what"]) == (None, "exited with code 1")


def test_an_exit_has_no_class_of_what_stands_above_its_last_step(node: Node) -> None:
    node.log("rank-0", f"{OOM}\nstep 5\ngiving up\n")
    node.ended(0, 0, code=3)
    assert node.find()[0]["class"] == "user-code-exception"


@pytest.mark.parametrize(
    "parts",
    [
        [R0 + BEGIN, R0 + MODULE, R1 + BEGIN, R0 + INNER, R1 + MODULE, R0 + "KeyError: 1\n"],
        [BEGIN, MODULE, BEGIN, INNER, MODULE, "KeyError: 1\n"],
        [BEGIN, BEGIN, MODULE, MODULE, INNER, "KeyError: 1\n"],
        [BEGIN, MODULE, INNER, BEGIN, MODULE, "KeyError: 1\n"],
    ],
)
def test_tracebacks_that_were_written_into_each_other_keep_the_inner_frame(
    parts: list[str],
) -> None:
    def filled(part: str) -> str:
        prefix = part[: len(R0)] if part.startswith("[rank") else ""
        body = part.removeprefix(prefix).format(5, "load")
        return "".join(prefix + line + "\n" for line in body.splitlines())

    last = log_tails.last_exception("".join(map(filled, parts)))
    assert last is not None
    assert log_tails.frames_of(last)[-1].function == "load"


def test_of_ranks_in_one_log_the_exception_is_that_of_the_rank() -> None:
    text = "".join(
        f'{prefix}{BEGIN}{prefix}  File "t.py", line 3, in f\n{prefix}{last}\n'
        for prefix, last in ((R0, "KeyError: 0"), (R1, "ValueError: 1"))
    )
    assert [getattr(log_tails.last_exception(text, rank), "type", "") for rank in (0, 1, None)] == [
        "KeyError",
        "ValueError",
        "ValueError",
    ]


# -- DataLoader workers ----------------------------------------------------------------------------

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
TRANSFER = (
    f"{TORCH}/utils/data/dataloader.py",
    "/usr/lib/python3.11/multiprocessing/queues.py",
    f"{TORCH}/multiprocessing/reductions.py",
    "/usr/lib/python3.11/multiprocessing/connection.py",
)
KILLED = "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. "


def lost_connection(*files: str) -> dict[str, Any]:
    record = error(0, "ConnectionResetError", "[Errno 104] Connection reset by peer")
    record["frames"] = [
        {"file": file, "line": 1, "function": "f", "code": ""}
        for file in ("/home/me/proj/train.py", *files)
    ]
    return record


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (f"step 3\nException ignored in: <function f>\n{KILLED}\n", KILLED.strip()),
        ("", "a DataLoader worker exited unexpectedly, while a batch was read from it"),
    ],
)
def test_a_killed_worker_is_named_where_the_rank_only_lost_its_connection(
    node: Node, log: str, what: str
) -> None:
    node.log("rank-0", log)
    node.record(0, lost_connection(*TRANSFER))
    node.ended(0, 5, code=1)
    failure, _ = node.find()
    assert (failure["class"], failure["what"]) == ("dataloader-worker-killed", what)


def test_a_memory_kill_of_a_worker_that_the_log_names_is_proved(node: Node) -> None:
    node.log("rank-0", KILLED)
    node.record(0, lost_connection(*TRANSFER))
    node.ended(0, 5, code=1)
    kill = oom_kills.OomKill(text="kernel log: Killed process 4242 (python)", pid=4242)
    failure, _ = node.find(kills=oom_kills.Kills([kill]))
    assert (failure["class"], failure["proof"]) == ("host-oom", kill.text)


@pytest.mark.parametrize(
    "files",
    [
        (f"{TORCH}/distributed/c10d.py", "/usr/lib/python3.11/multiprocessing/connection.py"),
        (*TRANSFER[:1], f"{TORCH}/utils/data/_utils/fetch.py", "/home/me/proj/data.py"),
        (*TRANSFER[:1], "/home/me/proj/sampler.py", "/usr/lib/python3.11/socket.py"),
    ],
)
def test_another_lost_connection_is_no_killed_worker(node: Node, files: tuple[str, ...]) -> None:
    node.log("rank-0", KILLED)
    node.record(0, lost_connection(*files))
    node.ended(0, 5, code=1)
    assert node.find()[0]["class"] == "peer-lost"


# -- limits of memory, texts of sys.exit -----------------------------------------------------------


@pytest.mark.parametrize(("limit", "is_limit"), [(1 << 28, True), (1 << 62, False), (None, False)])
def test_memory_that_a_limit_refused_is_told_from_a_machine_without_memory(
    node: Node, limit: int | None, is_limit: bool
) -> None:
    node.record(0, {**error(0, "MemoryError", ""), "memory_limit": limit})
    node.ended(0, 5, code=1)
    failure, _ = node.find()
    proof = "`ulimit` allows the process 256 MiB of memory"
    assert (failure["class"], failure["proof"]) == ("host-oom", proof if is_limit else None)
    assert ("`ulimit -v`" in failure["meaning"]) is is_limit
    assert ("`ulimit -Hv`" in failure["advice"]) is is_limit


def test_a_kill_by_the_limit_of_a_group_is_told_from_a_machine_without_memory(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    text = "kernel log: Memory cgroup out of memory: Killed process 1000 (python)"
    kills = oom_kills.Kills([oom_kills.OomKill(text=text, pid=1000)])
    failure, _ = node.find(kills=kills)
    assert "cgroup" in failure["meaning"]
    assert "MemoryMax" in failure["advice"]


@pytest.mark.parametrize(("code", "ending"), [(1, "; its last line: no data at /x"), (3, "")])
def test_the_text_of_sys_exit_is_told(node: Node, code: int, ending: str) -> None:
    node.log("rank-0", "step 5\nno data at /x\n")
    node.record(0, {"kind": "exit", "time_ns": 1, "pid": 1000})
    node.ended(0, 0, code=code)
    assert node.find()[0]["what"] == f"exited with code {code} (sys.exit){ending}"


def test_a_line_that_the_headline_has_is_not_shown_again(node: Node) -> None:
    node.log("rank-0", "reading\nno data at /x\n")
    node.record(0, {"kind": "exit", "time_ns": 1, "pid": 1000})
    node.ended(0, 0, code=1)
    lines = block(Failure.from_json(node.find()[0]), 80)
    shown = " ".join(" ".join(lines).split())  # the host's name decides where a line is wrapped
    assert (shown.count("no data at /x"), shown.count("reading")) == (1, 1)
