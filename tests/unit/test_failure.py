"""What `failure.find` makes of records, exits, blocks and logs, written as a run leaves them."""

from __future__ import annotations

import itertools
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.cli.failure import block as on_screen
from safelaunch.runtime import failure

if TYPE_CHECKING:
    from pathlib import Path

START = 1_700_000_000_000_000_000  # ns: a whole second, so that some ms later it is still the same
MS = 1_000_000
FAILED = {"exit_code": 1, "signal": "", "time_ns": START + 2000 * MS}
ENDED_WELL = {"exit_code": 0, "signal": "", "time_ns": START + 2000 * MS}
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"


class Node:
    """The node directory of a run that is over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs" / "attempt-1"
        self.logs.mkdir(parents=True)
        (path / "records").mkdir()
        self.exits: dict[int, dict[str, Any]] = {}
        self.run = {"roots": ["/home/me/proj"], "cwd": "/home/me/proj"}
        self.log("launcher", "")

    def log(self, name: str, text: str) -> None:
        (self.logs / f"{name}.log").write_text(text)

    def record(self, rank: int, *objects: dict[str, Any], restart: int = 0) -> None:
        text = "".join(json.dumps(one) + "\n" for one in objects).encode()
        path = self.path / "records" / f"rank-{rank}.1.{restart}.json"
        path.write_bytes(text.ljust(16384, b"\x00"))

    def raised(
        self, rank: int, kind: str, message: str, ms: float = 0, thread: str | None = None
    ) -> None:
        self.record(rank, error(rank, kind, message, ms, thread))
        self.ended(rank, ms + 5, code=1)

    def ended(
        self, rank: int, ms: float, code: int | None = None, signal: str = "", restart: int = 0
    ) -> None:
        self.exits[rank] = {
            "pid": 1000 + rank,
            "restart": restart,
            "code": code,
            "signal": signal,
            "time_ns": START + int(ms * MS),
        }

    def find(
        self, launcher: dict[str, Any] | None = None, **more: Any
    ) -> tuple[dict[str, Any], list[str]]:
        found, warnings = failure.find(
            str(self.path), self.run, 1, self.exits, launcher or FAILED, **more
        )
        return found or {}, warnings


def error(
    rank: int, kind: str, message: str, ms: float = 0, thread: str | None = None
) -> dict[str, Any]:
    file, line = "/home/me/proj/train.py", 17
    return {
        "kind": "exception",
        "thread": thread,
        "rank": rank,
        "host": "gpu01",
        "pid": 1000 + rank,
        "time_ns": START + int(ms * MS),
        "type": kind,
        "message": message,
        "traceback": "Traceback (most recent call last):\n"
        f'  File "{file}", line {line}, in step\n    loss = model(batch)\n{kind}: {message}\n',
        "frames": [
            {"file": file, "line": line, "function": "step", "code": "loss = model(batch)"},
            {
                "file": "/home/me/proj/.venv/lib/python3.11/site-packages/torch/nn/x.py",
                "line": 1,
                "function": "forward",
                "code": "raise",
            },
        ],
    }


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
    found, _ = node.find()
    assert (found["rank"], found["what"]) == (first, f"ValueError: bad batch {first}")


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_consequence_that_is_noted_earlier_is_not_blamed(
    node: Node, order: tuple[int, ...]
) -> None:
    first, *rest = order
    node.raised(first, "ValueError", "slow to unwind", ms=30)
    for place, rank in enumerate(rest):
        node.raised(rank, *CONSEQUENCES[place], ms=place)
    assert node.find()[0]["rank"] == first


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


def test_a_rank_ended_by_sigterm_before_anything_else_failed_is_the_cause(node: Node) -> None:
    node.ended(1, 0, code=143, signal="SIGTERM")
    node.raised(0, "RuntimeError", CLOSED, ms=3)
    found, _ = node.find()
    assert (found["rank"], found["what"]) == (1, "ended by SIGTERM from outside the run")


def test_only_the_last_restart_counts(node: Node) -> None:
    node.record(0, error(0, "ValueError", "of the first try"), restart=0)
    node.record(1, error(1, "KeyError", "'of the second'", ms=9000), restart=1)
    node.ended(0, 9001, code=143, signal="SIGTERM", restart=1)
    node.ended(1, 9005, code=1, restart=1)
    assert node.find()[0]["what"] == "KeyError: 'of the second'"


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
    found, _ = node.find()
    assert (found["rank"], found["role"]) == (1, "unknown")


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
    found, _ = node.find()
    assert found["what"] == "segmentation fault (SIGSEGV)"
    assert (found["frame"]["line"], found["frame"]["function"]) == (9, "native")


def test_the_users_own_frame_is_told_before_a_librarys(node: Node) -> None:
    node.raised(0, "ValueError", "x")
    assert node.find()[0]["frame"]["file"] == "/home/me/proj/train.py"


def test_sigkill_without_proof_is_not_called_out_of_memory(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    node.log("rank-0", "step 1\nKilled\n")
    found, _ = node.find()
    assert (found["class"], found["what"], found["proof"]) == ("killed", "killed (SIGKILL)", None)


def test_a_counter_of_the_ranks_group_proves_a_memory_kill(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    kill = {"text": "oom_kill rose from 0 to 1 in /x", "pid": None, "pids": [1000]}
    found, _ = node.find(kills=[kill])
    assert (found["class"], found["proof"]) == ("host-oom", kill["text"])


def test_a_memory_kill_of_another_process_proves_nothing(node: Node) -> None:
    node.ended(0, 0, code=137, signal="SIGKILL")
    kills = [{"text": "kernel log: Killed process 77 (java)", "pid": 77, "pids": []}]
    assert node.find(kills=kills)[0]["class"] == "killed"


def test_a_wrong_argument_is_named_from_the_output(node: Node) -> None:
    node.log("rank-0", "usage: t.py [-h]\nt.py: error: unrecognized arguments: --foo\n")
    node.record(0, {"kind": "exit", "time_ns": START, "pid": 1000})
    node.ended(0, 0, code=2)
    found, _ = node.find()
    assert found["class"] == "argument-error"
    assert "unrecognized arguments: --foo" in found["what"]


def test_without_hooks_the_exception_comes_from_the_log(node: Node) -> None:
    bar = "".join(f"\r{n:3}%" for n in range(100))
    traceback = (
        'Traceback (most recent call last):\n  File "/home/me/proj/a.py", line 3, in f\n'
        "    g()\nKeyError: 'x'\n"
    )
    node.log("rank-0", f"{bar}\n[rank0]: {traceback}".replace("\n  ", "\n[rank0]:   "))
    node.ended(0, 0, code=1)
    found, _ = node.find()
    assert found["exception"]["type"] == "KeyError"
    assert found["frame"]["line"] == 3
    assert found["last_lines"][0] == " 99%"


def test_a_cuda_fault_seen_by_the_nccl_watchdog_is_named_by_its_class(node: Node) -> None:
    node.log(
        "rank-0",
        "[rank0]:[E ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=9)\n",
    )
    node.ended(0, 0, code=134, signal="SIGABRT")
    assert node.find()[0]["class"] == "nccl-timeout"


# -- failed, or not --------------------------------------------------------------------------------


def test_a_run_without_any_sign_of_failure_has_none(node: Node) -> None:
    node.log("rank-0", "ValueError: caught and printed\nstep 2 loss 0.1\n")
    node.ended(0, 0, code=0)
    assert node.find(ENDED_WELL) == ({}, [])


def test_an_exception_in_a_thread_of_a_run_that_ended_well_is_a_warning(node: Node) -> None:
    node.record(1, error(1, "ValueError", "in a thread", thread="Thread-1 (f)"))
    node.ended(1, 0, code=0)
    found, (warning,) = node.find(ENDED_WELL)
    assert not found
    assert warning.startswith("rank 1: exception in thread Thread-1 (f): ValueError: in a thread")


def test_an_exception_shown_by_hand_fails_nothing(node: Node) -> None:
    node.record(0, error(0, "ValueError", "shown"))
    node.ended(0, 900, code=0)
    found, warnings = node.find(ENDED_WELL)
    assert not found
    assert len(warnings) == 1


def test_a_launcher_that_swallows_a_ranks_failure_fails(node: Node) -> None:
    node.raised(1, "ValueError", "x")
    found, warnings = node.find(ENDED_WELL)
    assert found["rank"] == 1
    assert warnings == ["the launcher ended with 0, although a rank failed"]


def test_a_rank_that_outlived_a_good_launcher_and_was_ended_fails_nothing(node: Node) -> None:
    node.ended(1, 12_000, code=143, signal="SIGTERM")
    assert node.find(ENDED_WELL) == ({}, [])


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
    found, _ = node.find(ENDED_WELL)
    assert (found["rank"], found["exit_code"], found["host"]) == (1, 3, "h")


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
    recorded = os.path.join(os.path.dirname(__file__), "..", "data", "logs", name)
    with open(recorded, encoding="utf-8") as file:
        node.log("launcher", file.read())
    found, _ = node.find()
    assert (found["rank"], found["what"]) == (1, what)
    assert [(other["rank"], other["role"]) for other in found["others"]] == [(0, "cascade")]


# -- the launcher ----------------------------------------------------------------------------------


def test_a_launcher_that_was_ended_is_blamed_before_the_ranks_it_took_along(node: Node) -> None:
    node.ended(0, 5, code=143, signal="SIGTERM")
    node.ended(1, 6, code=143, signal="SIGTERM")
    found, _ = node.find({"exit_code": 143, "signal": "SIGTERM", "time_ns": START + 900 * MS})
    assert (found["rank"], found["what"]) == (None, "the launcher was ended by SIGTERM")
    assert [other["what"] for other in found["others"]] == ["ended by SIGTERM"] * 2


def test_torchruns_own_words_tell_that_it_was_ended(node: Node) -> None:
    node.log(
        "launcher",
        "torch.distributed.elastic.multiprocessing.api.SignalException: "
        "Process 123 got signal: 15\n",
    )
    node.ended(0, 5, code=143, signal="SIGTERM")
    found, _ = node.find()
    assert (found["rank"], found["signal"]) == (None, "SIGTERM")


def test_a_rank_that_failed_before_the_launcher_was_ended_is_blamed(node: Node) -> None:
    node.raised(1, "ValueError", "x", ms=0)
    found, _ = node.find({"exit_code": 143, "signal": "SIGTERM", "time_ns": START + 900 * MS})
    assert found["rank"] == 1


def test_a_single_process_is_the_program_and_not_a_launcher(node: Node) -> None:
    node.run["single"] = "main"
    found, _ = node.find({"exit_code": 139, "signal": "SIGSEGV", "time_ns": START})
    assert (found["rank"], found["what"]) == (0, "segmentation fault (SIGSEGV)")


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
    found, _ = node.find({"exit_code": code, "signal": "", "time_ns": START})
    assert (found["rank"], found["class"], found["what"]) == (None, name, text)


def test_the_frameworks_own_log_names_the_cause_of_a_lost_actor(node: Node, tmp_path: Path) -> None:
    own = tmp_path / "worker.log"
    own.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    node.raised(0, "ray.exceptions.ActorDiedError", "The actor died unexpectedly")
    found, _ = node.find(logs=[str(own)])
    assert (found["class"], found["log"]) == ("cuda-oom", str(own))


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
    found, warnings = node.find()
    assert found["rank"] == 0
    assert not warnings


def test_without_any_file_the_launchers_code_is_told(tmp_path: Path) -> None:
    found, _ = failure.find(str(tmp_path / "gone"), {}, 1, {}, {"exit_code": 5, "signal": ""})
    assert found is not None
    assert found["what"] == "the launcher exited with code 5"


def test_a_log_with_a_hole_of_gigabytes_is_read_at_its_end(node: Node) -> None:
    path = node.logs / "rank-0.log"
    with path.open("wb") as file:
        file.truncate(4 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"ValueError: at the end\n")
    node.ended(0, 0, code=1)
    begun = time.monotonic()
    found, _ = node.find()
    assert found["last_lines"] == ["ValueError: at the end"]
    assert time.monotonic() - begun < 2


# -- the block on the screen -----------------------------------------------------------------------


def test_the_screen_says_who_where_then_and_next_in_80_columns(node: Node) -> None:
    node.raised(1, "ValueError", "bad batch 17")
    for rank in (0, 2, 3):
        node.raised(rank, "RuntimeError", CLOSED, ms=20 + rank)
    lines = on_screen(node.find()[0], 78, "digits-1")
    assert [line[:8].strip() for line in lines if line[:1] != " "] == [
        "failure", "class", "at", "then", "log", "next",
    ]  # fmt: skip
    assert lines[0] == "failure   rank 1 on gpu01 failed first: ValueError: bad batch 17"
    assert any("ranks 0, 2-3, 20 to 23 ms later: " in line for line in lines)
    assert max(map(len, lines)) <= 78


def test_a_block_of_long_words_stays_short(node: Node) -> None:
    node.raised(1, "ValueError", "x" * 2000)
    lines = on_screen(node.find()[0], 78)
    assert len(lines) <= 16
    assert max(map(len, lines)) <= 78
