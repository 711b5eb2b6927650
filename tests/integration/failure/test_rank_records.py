"""What the hooks of a rank write down, each failure in a process of its own; no launcher here."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.mounts import tmpfs
from support.python_versions import interpreter
from support.rank_process import SITE, Rank
from support.workspace import DEADLINE, wait_for

from safelaunch.runtime.records import RankEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CRASH = "import ctypes\ndef crash(): ctypes.string_at(0)\n"


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_an_uncaught_exception_is_recorded(rank: Rank) -> None:
    before = time.time_ns(), time.monotonic_ns()
    program = "def step(n):\n    raise ValueError(f'bad batch {n}')\nstep(17)\n"
    with rank.popen(program) as process:
        _, shown = process.communicate(timeout=DEADLINE)
    record, end = rank.read()
    assert {k: record[k] for k in ("rank", "local_rank", "world_size", "attempt", "restart")} == {
        "rank": 1,
        "local_rank": 1,
        "world_size": 2,
        "attempt": 1,
        "restart": 0,
    }
    assert (record["kind"], record["thread"], record["pid"]) == ("exception", None, process.pid)
    assert (record["type"], record["message"]) == ("ValueError", "bad batch 17")
    assert record["host"] == os.uname().nodename
    assert before[0] < record["time_ns"] < time.time_ns()
    assert before[1] < record["monotonic_ns"] < end["monotonic_ns"] < time.monotonic_ns()
    assert record["traceback"] == shown  # as Python shows it
    file = str(rank.root / "train.py")
    code = "raise ValueError(f'bad batch {n}')"
    assert record["frames"] == [
        {"file": file, "line": 3, "function": "<module>", "code": "step(17)"},
        {"file": file, "line": 2, "function": "step", "code": code},
    ]
    assert end["kind"] == "exit"
    assert {*record, *end} == set(RankEvent.fields())


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.12", "3.13"])
def test_any_python_records(rank: Rank, version: str) -> None:
    rank.run("import torch_that_is_not_there", python=interpreter(version))
    [record] = rank.failures()
    assert (record["type"], record["frames"][-1]["line"]) == ("ModuleNotFoundError", 1)


def test_an_exception_in_a_thread_is_recorded_with_its_name(rank: Rank) -> None:
    program = "import threading\nt = threading.Thread(target=lambda: {}['k'], name='loader')\n"
    code, shown = rank.run(program + "t.start()\nt.join()\n")
    [record] = rank.failures()
    assert (record["thread"], record["type"], code) == ("loader", "KeyError", 0)
    assert "Exception in thread loader" in shown


def test_many_failing_threads_leave_room_for_the_main_thread(rank: Rank) -> None:
    program = (
        "import threading\nfor i in range(100):\n"
        "    t = threading.Thread(target=lambda: {}['k' * 900])\n    t.start()\n    t.join()\n"
        "raise ValueError('é' * 9000)\n"
    )
    rank.run(program)
    record = rank.failures()
    assert record[0]["thread"]
    assert record[-1]["type"] == "ValueError"
    size = (rank.node / "records" / "rank-1.1.0.json").stat().st_size
    assert len(b"".join(json.dumps(f).encode() for f in rank.read())) < size == 2 * 20480


def test_exceptions_that_are_only_shown_leave_room_for_the_last(rank: Rank) -> None:
    program = (
        "import sys\nfor i in range(100):\n    try: {}['k' * 900]\n"
        "    except KeyError: sys.excepthook(*sys.exc_info())\nraise ValueError('the last')\n"
    )
    rank.run(program)
    record = [failure["type"] for failure in rank.failures()]
    assert (record[0], record[-1]) == ("KeyError", "ValueError")


@pytest.mark.parametrize(
    ("program", "code"),
    [("import sys\nsys.exit(3)", 3), ("pass", 0), ("import threading as t\nt.Thread().start()", 0)],
)
def test_an_orderly_exit_is_no_failure(rank: Rank, program: str, code: int) -> None:
    assert rank.run(program)[0] == code
    assert [record["kind"] for record in rank.read()] == ["exit"]


def test_an_exit_past_the_interpreter_leaves_no_exit_record(rank: Rank) -> None:
    assert rank.run("import os\nos._exit(0)") == (0, "")
    assert rank.read() == []


def test_an_interrupt_is_recorded(rank: Rank) -> None:
    code, _ = rank.run("import os, signal\nos.kill(os.getpid(), signal.SIGINT)")
    assert (code, rank.failures()[0]["type"]) == (-signal.SIGINT, "KeyboardInterrupt")


def test_a_fatal_signal_in_native_code_names_the_python_frame(rank: Rank) -> None:
    code, shown = rank.run(CRASH + "crash()")
    assert (code, shown, rank.read()) == (-signal.SIGSEGV, "", [])
    assert "Segmentation fault" in rank.text("fatal")
    assert 'train.py", line 2 in crash' in rank.text("fatal")


def test_the_users_own_faulthandler_writes_where_he_expects_it(rank: Rank) -> None:
    _, shown = rank.run(CRASH + "crash()", "-X", "faulthandler")
    assert "Segmentation fault" in shown


def test_an_exception_is_recorded_at_once_also_of_a_process_that_is_then_ended(rank: Rank) -> None:
    """As by a launcher that ends all ranks at the failure of another, while the record is made."""
    program = (
        "import os, signal\nclass Slow(Exception):\n"
        "    def __str__(self): os.kill(os.getpid(), signal.SIGTERM)\nraise Slow\n"
    )
    assert rank.run(program) == (-signal.SIGTERM, "")
    [record] = rank.failures()
    assert (record["type"], record["message"], record["uncaught"]) == ("Slow", "", True)


def test_forked_children_write_nothing_into_the_record(rank: Rank) -> None:
    program = (
        CRASH + "import os, sys\n"
        "def child(do):\n"
        "    if os.fork() == 0:\n        do()\n"
        "    os.wait()\n"
        "child(lambda: {}['missing'])\nchild(sys.exit)\nchild(crash)\n"
    )
    code, shown = rank.run(program)
    assert code == 0
    assert [record["kind"] for record in rank.read()] == ["exit"]
    assert "KeyError" in shown
    assert rank.text("fatal") == ""


def test_what_a_rank_starts_is_no_rank(rank: Rank) -> None:
    program = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', '1/0'])"
    rank.run(program)
    assert [record["kind"] for record in rank.read()] == ["exit"]


HOOK = "import os, sys\ndef mine(*args):\n    print('mine')\n    %s\nsys.excepthook = mine\n1/0\n"


@pytest.mark.parametrize("body", ["pass", "sys.stdout.flush(); os._exit(9)", "raise OSError"])
def test_a_later_hook_of_the_user_runs_and_hides_nothing(rank: Rank, body: str) -> None:
    _, shown = rank.run(HOOK % body)
    assert "mine" in shown
    assert [record["type"] for record in rank.failures()] == ["ZeroDivisionError"]


def test_an_earlier_hook_of_the_user_still_runs(rank: Rank) -> None:
    own = rank.root / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text((HOOK % "pass").replace("1/0", ""))
    rank.env["PYTHONPATH"] += f":{own}"
    _, shown = rank.run("1/0")
    assert shown == "mine\n"
    assert len(rank.failures()) == 1


def test_a_debugger_that_shows_an_exception_is_no_failure(rank: Rank) -> None:
    program = "import code\ncode.InteractiveInterpreter().runsource('1/0')\n"
    program = "import sys\nsys.excepthook = sys.__excepthook__\n" + program
    assert rank.run(program)[0] == 0
    assert rank.failures() == []


DEEP = "import sys\nsys.setrecursionlimit(9**5)\ndef f(n): n and f(n - 1) or 1/0\nf(5000)"
CAUSE = "try:\n    1/0\nexcept Exception as e:\n    raise OSError(2, 'no') from e"

GIANT = "x" * (2000 - len("\n  [...]\n")) + "\n  [...]\n" + "x" * 2000


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        ("class E(Exception):\n    def __str__(s): 1/0\nraise E", "E", "<exception str() failed>"),
        ("raise ValueError('x' * 10**7)", "ValueError", GIANT),
        ("raise ValueError('\\ud800 \\U0001f600')", "ValueError", "\ud800 \U0001f600"),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError", None),
        ("def f(): f()\nf()", "RecursionError", None),
        (DEEP, "ZeroDivisionError", None),
        ("raise MemoryError", "MemoryError", ""),
        (CAUSE, "FileNotFoundError", "[Errno 2] no"),
    ],
    ids=["broken-str", "giant", "surrogate", "qualified", "recursion", "deep", "memory", "cause"],
)
def test_awkward_exceptions_are_recorded(
    rank: Rank, program: str, kind: str, message: str | None
) -> None:
    rank.run(program)
    [record] = rank.failures()
    assert record["type"] == kind
    assert message in (None, record["message"])
    assert record["frames"][-1]["file"]
    assert kind in record["traceback"]


def test_causes_stand_in_the_traceback(rank: Rank) -> None:
    rank.run(CAUSE)
    assert "ZeroDivisionError" in rank.failures()[0]["traceback"]


def test_a_chain_that_is_too_long_keeps_the_message_of_each_link(rank: Rank) -> None:
    lines = [f"def f{n}(): f{n + 1}()" for n in range(200)]
    lines += ["def f200(): raise KeyError('the cause')", "def g0():", "    try: f0()"]
    lines += ["    except KeyError as e: raise ValueError('the end') from e"]
    lines += [f"def g{n}(): g{n - 1}()" for n in range(1, 200)]
    rank.run("\n".join([*lines, "g199()"]))
    text = rank.failures()[0]["traceback"]
    assert len(text) <= 6000
    assert "KeyError: 'the cause'\n\nThe above exception was the direct cause" in text
    assert text.endswith("ValueError: the end\n")


def test_the_end_of_a_giant_message_stands_in_the_traceback(rank: Rank) -> None:
    rank.run("raise ValueError('begin' + 'x' * 10**6 + 'end')")
    text = rank.failures()[0]["traceback"]
    assert "ValueError: beginxxx" in text
    assert text.endswith("xxxend\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with 3.11")
def test_a_group_is_recorded_with_its_exceptions(rank: Rank) -> None:
    rank.run("raise ExceptionGroup('two', [ValueError('first'), OSError('second')])")
    [record] = rank.failures()
    assert "ValueError: first" in record["traceback"]


def test_a_syntax_error_is_found_at_its_place(rank: Rank) -> None:
    (rank.root / "model.py").write_text("x = 1\nx = = 2\n")
    rank.run("import model")
    place = rank.failures()[0]["frames"][-1]
    assert (place["file"], place["line"]) == (str(rank.root / "model.py"), 2)
    assert place["code"] == "x = = 2"


def test_a_long_traceback_keeps_its_head_and_its_tail(rank: Rank) -> None:
    lines = [f"def f{n}(): f{n + 1}()" for n in range(300)]
    rank.run("\n".join([*lines, "def f300(): 1/0", "f0()"]))
    [record] = rank.failures()
    assert len(record["traceback"]) <= 6000
    assert "in f0" in record["traceback"]
    assert "in f300" in record["traceback"]
    assert len(record["frames"]) == 20


def test_relative_names_are_those_of_the_start(rank: Rank) -> None:
    program = "import os\ncode = compile('1/0', 'gen/step.py', 'exec')\nos.chdir('/')\nexec(code)"
    rank.run(program)
    assert rank.failures()[0]["frames"][-1]["file"] == str(rank.root / "gen" / "step.py")


def test_no_descriptor_left(rank: Rank) -> None:
    program = "import os\ndef leak():\n    while True: os.open('/dev/null', 0)\nleak()\n"
    rank.run(program, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)))
    [record] = rank.failures()
    assert record["message"].startswith("[Errno 24]")
    assert record["frames"][-1]["code"] == "while True: os.open('/dev/null', 0)"


def test_no_memory_left(rank: Rank) -> None:
    """There may be too little for a traceback; type, time and rank are always said."""
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (60 << 20, 60 << 20))\n"
        "kept = []\nwhile True: kept.append(bytearray(1000))\n"
    )
    rank.run(program)
    [record] = rank.failures()
    assert (record["type"], record["rank"], record["thread"]) == ("MemoryError", 1, None)


def test_a_descriptor_that_user_code_took_is_left_alone(rank: Rank) -> None:
    program = (
        "import os\nos.closerange(3, 1024)\n"
        "fds = [os.open('precious', os.O_CREAT | os.O_RDWR) for _ in range(300)]\n1/0\n"
    )
    _, shown = rank.run(program)
    assert "ZeroDivisionError" in shown
    assert (rank.root / "precious").read_bytes() == b""


def test_a_record_whose_descriptor_was_closed_is_written_by_its_name(rank: Rank) -> None:
    rank.run("import os\nos.closerange(0, 1024)\n1/0\n")
    assert [record.get("message") for record in rank.read()] == ["division by zero", None]


def test_a_limit_of_memory_is_recorded(rank: Rank) -> None:
    limit = 1 << 42
    rank.run("1/0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert rank.failures()[0]["memory_limit"] == limit


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    with tmpfs(disk, "size=1m"):
        yield disk


def test_a_full_disk(small_disk: Path) -> None:
    rank = Rank(small_disk)
    program = (
        "import os\nfd = os.open('checkpoint', os.O_CREAT | os.O_WRONLY)\n"
        "for size in 4096, 1:\n"
        "    try:\n        while True: os.write(fd, b'x' * size)\n"
        "    except OSError: pass\n"
        "os.write(fd, b'x')\n"
    )
    rank.run(program)
    assert rank.failures()[0]["message"] == "[Errno 28] No space left on device"
    assert [record["kind"] for record in rank.read()] == ["exception", "exit"]


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.13"])
def test_a_rank_gets_a_pipe_of_its_own_instead_of_the_launchers(rank: Rank, version: str) -> None:
    pipes = rank.node / "pipes"
    pipes.mkdir()
    os.mkfifo(pipes / "control-1")
    control = os.open(pipes / "control-1", os.O_RDWR)
    reader, writer = os.pipe()
    info = os.fstat(writer)
    rank.env["SAFELAUNCH_LAUNCHER_PIPE"] = f"{info.st_dev}:{info.st_ino}"
    program = "import os\nprint('own'); os.write(2, b'too\\n')"
    streams = {"stdout": writer, "stderr": writer, "python": interpreter(version)}
    with rank.popen(program, **streams) as process:
        assert os.read(control, 1) == b"+"
        new = os.open(pipes / "rank-1.1.0.new", os.O_RDONLY | os.O_NONBLOCK)
        (pipes / "rank-1.1.0.new").rename(pipes / "rank-1.1.0")
        with open(pipes / "rank-1.1.0", "rb") as fifo:
            os.close(new)
            assert fifo.read() == b"too\nown\n"
        assert process.wait(DEADLINE) == 0
    os.close(control)
    # with nobody who reads the control pipe it keeps the launcher's
    (rank.node / "ranks" / "rank-1.1.0").unlink()
    (pipes / "rank-1.1.0").unlink()
    rank.run(program, **streams)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b"too\nown\n"
    assert [path.name for path in pipes.iterdir()] == ["control-1"]


def test_a_program_that_replaces_itself_is_still_recorded(rank: Rank) -> None:
    """It has shown an exception before, as the record tells."""
    program = (
        "import os, sys\nif os.environ.pop('FIRST', ''):\n"
        "    try: {}['k']\n    except KeyError: sys.excepthook(*sys.exc_info())\n"
        "    os.execv(sys.executable, [sys.executable, 'train.py'])\n"
        "raise ValueError('bad batch')\n"
    )
    rank.env["FIRST"] = "1"
    rank.run(program)
    record = [
        (record["kind"], record.get("type"), record.get("uncaught")) for record in rank.read()
    ]
    assert record == [
        ("exception", "KeyError", False),
        ("exception", "ValueError", True),
        ("exit", None, None),
    ]
    assert [path.name for path in (rank.node / "ranks").iterdir()] == ["rank-1.1.0"]
    assert (rank.node / "records" / "rank-1.1.0.json").stat().st_size == 2 * 20480


def test_stacks_of_a_program_that_has_replaced_itself_are_written(rank: Rank) -> None:
    program = (
        "import os, sys\nif os.environ.pop('FIRST', ''):\n"
        "    os.execv(sys.executable, [sys.executable, 'train.py'])\n"
        "def train():\n    print('up', flush=True)\n    input()\ntrain()\n"
    )
    rank.env["FIRST"] = "1"
    with rank.popen(program, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            process.send_signal(number())
            wait_for(lambda: "in train" in rank.text("stacks"), "stack in the file")
        finally:
            process.kill()


def number() -> int:
    """Return the signal's number as the supervisor has it; its module cannot be imported here."""
    record = re.search(
        r"^STACKS_SIGNAL = (\d+)", (SITE.parent / "hang" / "evidence.py").read_text(), re.MULTILINE
    )
    assert record
    return int(record[1])


def test_stacks_are_written_on_request_and_the_program_goes_on(rank: Rank) -> None:
    program = "def train():\n    print('up', flush=True)\n    input()\ntrain()\nprint('on')\n"
    with rank.popen(program, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            process.send_signal(number())
            wait_for(lambda: "in train" in rank.text("stacks"), "stack in the file")
            process.stdin.write("\n")
            process.stdin.close()
            assert process.stdout.read() == "on\n"
        finally:
            process.kill()
    assert rank.text("fatal") == ""
    assert process.returncode == 0


def test_nothing_happens_where_capture_is_off(rank: Rank) -> None:
    del rank.env["SAFELAUNCH_CAPTURE"]
    rank.run("1/0")
    assert list((rank.node / "records").iterdir()) == []
    assert (rank.node / "ranks" / "rank-1.1.0").exists()


def test_a_run_directory_that_cannot_be_written_does_no_harm(rank: Rank) -> None:
    (rank.node / "records").rmdir()
    assert rank.run("print('runs')") == (0, "runs\n")


def test_a_broken_capture_does_no_harm(rank: Rank) -> None:
    site = rank.root / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text((SITE / "sitecustomize.py").read_text())
    (site / "safelaunch_rank.py").write_text("no Python")
    rank.env["PYTHONPATH"] = str(site)
    assert rank.run("print('runs')") == (0, "runs\n")
