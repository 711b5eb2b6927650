"""What really happened, in words: crashes, kills, hidden failures, ends that look like success.

Ranks are started by the stand-in for torchrun, whose own status is 0 where a rank dies of a signal.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from support.faults.cascades import one_cascade
from support.python_versions import interpreter
from support.workspace import need_root, wait_for

from safelaunch.runtime import processes as runtime_processes
from safelaunch.runtime import run_state
from safelaunch.runtime.records import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workspace import Place

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


def test_a_rank_that_leaves_with_0_is_the_reason_for_what_follows(place: Place) -> None:
    program = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1':\n    print('no more batches')\n    sys.exit(0)\n"
        "path = os.environ['SAFELAUNCH_NODE_DIR'] + '/records/rank-1.1.0.json'\n"
        "while b'\"exit\"' not in open(path, 'rb').read(): time.sleep(0.05)\n"
        "raise ConnectionResetError('Connection reset by peer')\n"
    )
    shown = place.failed(place.ranks("import time\ntime.sleep(0.5)\n" + program))
    failure = shown["failure"]
    assert (failure["rank"], failure["exit_code"]) == (1, 0)
    assert "had ended with code 0 before the others were done" in shown["screen"]
    assert "no more batches" in shown["screen"]


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


def test_a_memory_kill_of_another_program_proves_nothing(place: Place, cgroup: Path) -> None:
    """A worker is killed by hand, while the kernel kills a stranger in a group of its own."""
    worker = "RuntimeError('DataLoader worker (pid 4242) is killed by signal: Killed. ')"
    waits = "import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(.02)\n"
    run = place.start(place.job(f"{waits}raise {worker}"))
    place.wait_for_text(run, "up")
    body = "held = []\nwhile True: held.append(bytearray(1 << 20))\n"
    words = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} -c '{body}'"
    assert subprocess.run(["bash", "-c", words], check=False).returncode == -signal.SIGKILL
    place.write("go", "")
    place.ended(run)
    failure = place.json("show", run)["failure"]
    assert (failure["class"], failure["proof"]) == ("dataloader-worker-killed", None)


def test_an_exception_in_a_thread_is_a_warning_where_the_run_ends_well(place: Place) -> None:
    program = (
        "import threading\ndef work(): raise ValueError('lost batch')\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()\n"
    )
    place.cli("run", "--follow", place.job(program))
    shown = place.json("show")
    assert (shown["state"], shown["failure"]) == ("succeeded", None)
    assert "ValueError: lost batch" in str(shown.get("warning"))


@pytest.mark.parametrize(
    ("rank", "by"),
    [
        *(pytest.param(rank, "stand-in", marks=pytest.mark.stand_in) for rank in (0, 2, 3)),
        pytest.param(0, "direct", marks=pytest.mark.train),
        pytest.param(3, "direct", marks=pytest.mark.train),
    ],
)
def test_the_first_failure_is_told_from_what_it_caused(tmp_path: Path, rank: int, by: str) -> None:
    assert one_cascade(rank, str(tmp_path), by=by) is None


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
    place.write("worse.py", BAD)
    place.write("inner.sh", f"#!/bin/bash\n{sys.executable} worse.py\n")
    script = (
        f"for n in 1 2; do {sys.executable} bad.py && break; done; {sys.executable} -c 'print(1)'\n"
        f"if ! {sys.executable} -c 1/0; then bash inner.sh || echo skipped; fi; echo done"
    )
    place.cli("run", "--follow", place.shell(script))
    shown = place.json("show")
    assert shown["state"] == "succeeded"
    assert "the shell handled a failure: worse.py: ValueError: bad batch" in shown["warning"]


@pytest.mark.parametrize(("script", "state"), [
    ("{flaky} ok; {flaky} bad || echo skipped", "succeeded"),
    ("{flaky} ok || echo skipped; {flaky} bad | cat", "failed"),
    ("train() {\n {flaky} bad\n local rc=$?\n echo\n return $rc\n}\ntrain || true", "succeeded"),
    ("train() { {flaky} bad || return 1; echo ok; }\nif train; then echo ok; fi", "succeeded"),
    ("train() { {flaky} bad || return 1; echo ok; }\ntrain; echo done", "failed"),
    (". ./lib.sh\ntrain ok; train bad || echo skipped", "succeeded"),
    (". ./lib.sh\ntrain ok || echo skipped; train bad; echo done", "failed"),
], ids=["handled", "lost", "status", "return", "return lost", "lib", "lib lost"])  # fmt: skip
def test_functions_and_several_calls_of_a_program_are_read(
    place: Place, script: str, state: str
) -> None:
    place.write("flaky.py", "import sys\nif sys.argv[1] == 'bad': raise ValueError('bad batch')\n")
    flaky = f"{sys.executable} flaky.py"
    place.write("lib.sh", f'train() {{\n  {flaky} "$1"\n}}\n')
    code = 0 if state == "succeeded" else 1
    place.cli("run", "--follow", place.shell(script.replace("{flaky}", flaky)), code=code)
    shown = place.json("show")
    assert (shown["state"], shown["exit_code"]) == (state, 0)
    if state == "failed":
        assert shown["failure"]["what"] == "ValueError: bad batch"
    else:
        assert "the shell handled a failure: flaky.py: ValueError: bad batch" in shown["warning"]


# -- ranks that the job itself starts and ends -----------------------------------------------------

SERVER = "import time\nopen('up', 'w').close()\ntime.sleep(600)\n"
BESIDE = (
    "{python} server.py & server=$!; until [ -e up ]; do sleep 0.01; done; {train}; code=$?;"
    " kill $server; wait $server; exit $code"
)
TORCHRUN = "{python} -m torch.distributed.run --nproc_per_node 2 job.py"


def beside_a_server(place: Place, program: str, train: str, signal_: str = "") -> str:
    """Write a job whose shell starts a server, trains, and ends the server."""
    place.write("server.py", SERVER)
    place.ranks(program)
    script = BESIDE.replace("{train}", train).replace("{python}", sys.executable)
    script = script.replace("kill $", f"kill {signal_} $")
    path = [str(place.root / "fake")]
    return place.shell(script.replace("{python}", sys.executable), "beside", pythonpath=path)


@pytest.mark.parametrize("train", ["{python} job.py", TORCHRUN], ids=["one process", "torchrun"])
@pytest.mark.parametrize("signal_", ["", "-KILL"])
def test_a_server_that_the_job_ends_is_no_failure(place: Place, train: str, signal_: str) -> None:
    output = place.cli("run", "--follow", beside_a_server(place, "print('done')", train, signal_))
    shown = place.json("show")
    assert (shown["state"], shown.get("warning")) == ("succeeded", None), output.stderr


@pytest.mark.parametrize("train", ["{python} job.py", TORCHRUN], ids=["one process", "torchrun"])
def test_what_fails_beside_a_server_is_named(place: Place, train: str) -> None:
    failure = place.failed(beside_a_server(place, BAD, train))["failure"]
    assert failure["what"] == "ValueError: bad batch"
    assert failure["frame"]["function"] == "load"


def test_what_fails_beside_one_that_goes_on_is_not_hidden_by_the_shell(place: Place) -> None:
    place.write(
        "bad.py", "import os, time\nwhile not os.path.exists('up'): time.sleep(.01)\n" + BAD
    )
    place.write("server.py", SERVER.replace("600", "1"))
    script = f"{sys.executable} bad.py & {sys.executable} server.py & wait"
    shown = place.failed(place.shell(script))
    assert (shown["exit_code"], shown["failure"]["what"]) == (0, "ValueError: bad batch")


def test_of_steps_that_fail_one_after_the_other_the_last_is_named(place: Place) -> None:
    place.write("bad.py", BAD)
    script = f"{sys.executable} bad.py || {sys.executable} -c 'raise KeyError(1)'"
    assert place.failed(place.shell(script))["failure"]["what"] == "KeyError: 1"


def test_a_failure_that_a_later_step_does_not_make_good_is_named(place: Place) -> None:
    place.write("bad.py", BAD)
    script = f"{sys.executable} bad.py; code=$?; {sys.executable} -c 'print(1)'; exit $code"
    assert place.failed(place.shell(script))["failure"]["what"] == "ValueError: bad batch"


def test_a_kill_that_the_shell_loses_is_a_failure(place: Place) -> None:
    # a process that lives for some milliseconds only may end unseen
    place.write("killed.py", "import os, time\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)\n")
    shown = place.failed(place.shell(f"{sys.executable} killed.py | cat"))
    assert (shown["exit_code"], shown["failure"]["signal"]) == (0, "SIGKILL")


WORKERS = (
    "import os, subprocess, sys, time\n"
    "def start(rank):\n"
    "    env = dict(os.environ, RANK=str(rank), WORLD_SIZE='2')\n"
    "    program = \"import time; open('up%d', 'w').close(); time.sleep(600)\" % rank\n"
    "    return subprocess.Popen([sys.executable, '-c', program], env=env)\n"
    "workers = [start(0), start(1)]\n"
    "while not (os.path.exists('up0') and os.path.exists('up1')): time.sleep(0.01)\n"
    "for worker in workers: worker.terminate()\n"
    "for worker in workers: worker.wait()\n"
)


@pytest.mark.parametrize("launcher", ["python", "command"])
def test_workers_that_their_driver_ends_are_no_failure(place: Place, launcher: str) -> None:
    job = place.job(WORKERS)
    if launcher == "command":
        job = place.shell(f"{sys.executable} job.py; exit $?", "workers")
    place.cli("run", "--follow", job)
    assert place.json("show")["state"] == "succeeded"


NESTED = (
    "import os, subprocess, sys\n"
    "words = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node', '2', 'bad.py']\n"
    "done = subprocess.run(words, check=%s, capture_output=%s)\n"
    "assert done.returncode\nprint('trained to the end')\n"
)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_failure_below_a_rank_that_handles_it_is_none(place: Place, hidden: bool) -> None:
    place.ranks(BAD, name="bad")
    path = [str(place.root / "fake")]
    place.cli("run", "--follow", place.job(NESTED % (False, hidden), pythonpath=path))
    shown = place.json("show")
    assert (shown["state"], shown.get("warning")) == ("succeeded", None)
    assert list(shown["pids"]["ranks"]) == ["0"]


def test_a_failure_below_a_rank_that_does_not_handle_it_is_named(place: Place) -> None:
    # in one rank: two that fail at once write their tracebacks into each other
    bad = BAD.replace("    raise", "    if os.environ['RANK'] == '1': raise")
    place.ranks(f"import os\n{bad}", name="bad")
    path = [str(place.root / "fake")]
    failure = place.failed(place.job(NESTED % (True, False), pythonpath=path))["failure"]
    output = "ValueError: bad batch (in a process that it had started)"
    assert (failure["rank"], failure["what"]) == (0, output)
    assert failure["frame"]["function"] == "load"


@pytest.mark.train
def test_a_failure_of_a_nested_torchrun_that_is_handled_is_none(place: Place) -> None:
    place.write("bad.py", BAD)
    place.cli("run", "--follow", place.job(NESTED % (False, False)), timeout=90)
    assert place.json("show")["state"] == "succeeded"


CAUGHT = (
    "import sys, traceback\n"
    "try: raise KeyError('no such column')\n"
    "except Exception:\n    traceback.print_exc()\n    sys.exit(1)\n"
)


@pytest.mark.parametrize("launcher", ["python", "command", "torchrun"])
def test_an_exception_that_one_process_shows_before_it_gives_up_is_named(
    place: Place, launcher: str
) -> None:
    keys: dict[str, Any] = {}
    if launcher == "command":
        keys = {"command": [sys.executable, "job.py"], "script": None}
    ranks = launcher == "torchrun"
    job = place.ranks(CAUGHT, 1) if ranks else place.job(CAUGHT, launcher=launcher, **keys)
    failure = place.failed(job)["failure"]
    output = "exited with code 1 (sys.exit) after KeyError: 'no such column'"
    assert (failure["rank"], failure["what"]) == (0, output)
    assert failure["frame"]["line"] == 2


SHOWN = (
    "import sys\ntry: raise ValueError('retry me')\n"
    "except ValueError: sys.excepthook(*sys.exc_info())\n"
)


@pytest.mark.stand_in
def test_an_exception_shown_by_hand_is_no_failure_where_no_code_was_seen(place: Place) -> None:
    """Python 3.8 has no pidfds, and the launcher is faster than a look at /proc."""
    place.cli("run", "--follow", place.ranks(SHOWN, python=interpreter("3.8")))
    shown = place.json("show")
    assert (shown["state"], shown["failure"]) == ("succeeded", None)
    assert "exception shown as uncaught: ValueError: retry me" in str(shown["warning"])


def test_a_rank_of_another_pid_namespace_is_told_from_our_process_of_that_number(
    place: Place,
) -> None:
    need_root()
    place.write("inside.py", "import os\nprint('i am', os.getpid(), flush=True)\n" + FOREVER)
    script = f"RANK=0 {sys.executable} inside.py; true"
    command = ["unshare", "-pf", "--mount-proc", "bash", "-c", script]
    run = place.start(place.job("", launcher="command", script=None, command=command))
    inner = int(place.wait_for_text(run, "up").split("i am ")[1].split()[0])
    pid, namespace, _ = (place.node(run) / "ranks" / "rank-0.1.0").read_text().split()
    assert (int(pid), namespace == os.readlink("/proc/self/ns/pid")) == (inner, False)
    [outer] = [pid for pid in runtime_processes.marked(run) if numbers(pid)[-1] == inner]
    assert runtime_processes.send(outer, runtime_processes.start_time(outer) or 0, signal.SIGKILL)
    assert place.ended(run)["state"] == "failed"
    failure = place.json("show")["failure"]
    assert (failure["rank"], failure["signal"]) == (0, "SIGKILL")


def numbers(pid: int) -> list[int]:
    """Return the numbers of a process in its namespaces, the innermost last."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        [line] = [line for line in file if line.startswith("NSpid:")]
    return [int(word) for word in line.split()[1:]]


# -- what the job itself calls success -------------------------------------------------------------

STEPS = "import sys\nfor n in range(1, 4): print(f'step {n}/3 loss: 0.5', flush=True)\n"
SAVE = "import os\nos.makedirs('out', exist_ok=True)\nopen('out/model.pt', 'w').close()\n"


def test_a_run_without_its_artifact_has_failed(place: Place) -> None:
    job = place.job("print('done')", success={"artifacts": ["out/*.pt"]})
    assert "out/*.pt" in place.failed(job)["failure"]["what"]


def test_an_artifact_of_an_earlier_run_does_not_count(place: Place) -> None:
    os.utime(place.write("out/model.pt", ""), (4e9, 4e9))  # the clock of another machine
    job = place.job("print('done')", success={"artifacts": ["out/*.pt"]})
    assert "but out/model.pt was there before" in place.failed(job)["failure"]["what"]


def test_a_run_with_its_artifact_has_succeeded(place: Place) -> None:
    place.cli("run", "--follow", place.job(SAVE, success={"artifacts": ["out/*.pt"]}))
    assert place.json("show")["state"] == "succeeded"


def test_a_run_that_ends_before_its_steps_has_failed(place: Place) -> None:
    shown = place.failed(place.job(STEPS, success={"min_steps": 4}))
    assert "4 steps, 3 were seen" in shown["failure"]["what"]


def test_a_run_that_has_made_its_steps_has_succeeded(place: Place) -> None:
    place.cli("run", "--follow", place.job(STEPS, success={"min_steps": 3}))
    assert place.json("show")["state"] == "succeeded"


def test_a_run_that_takes_too_long_is_stopped(place: Place) -> None:
    output = place.cli("run", "--follow", place.job(FOREVER, max_duration="1s"), code=1).stderr
    assert "max_duration" in output
    shown = place.json("show")
    assert (shown["state"], runtime_processes.marked(shown["id"])) == ("stopped", {})


def test_a_smoke_run_ends_well_at_its_steps_without_a_traceback(place: Place) -> None:
    smoke = {"success": {"min_steps": 3}}
    job = place.ranks(STEPS + FOREVER, smoke=smoke, env={"FAKE_SIGNALS": 1})
    log = place.cli("run", "--smoke", "--follow", job).stdout
    assert "step 3/3" in log
    assert "Traceback" not in log
    shown = place.json("show")
    assert (shown["state"], runtime_processes.marked(shown["id"])) == ("succeeded", {})


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
    place.wait_for_text(run, "[0] up")
    place.wait_for_text(run, "[1] up")
    pids = [int(pid) for pid in place.json("show", run)["pids"]["ranks"].values()]
    failure_json = {pid: runtime_processes.start_time(pid) or 0 for pid in pids}
    assert not set(failure_json) & set(runtime_processes.marked(run))
    try:
        yield run, failure_json
    finally:
        for pid, start in failure_json.items():
            runtime_processes.send(pid, start, signal.SIGKILL)


def living(processes: dict[int, int]) -> list[int]:
    """Return the pids that are still the same processes."""
    return [pid for pid, start in processes.items() if runtime_processes.start_time(pid) == start]


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
    assert runtime_processes.send(who["pid"], who["start"], signal.SIGKILL)
    wait_for(
        lambda: not runtime_processes.is_alive(Process.from_json(who)), "death of the supervisor"
    )
    assert set(ranks) <= set(run_state.remaining(str(place.node(run)), run))
    assert place.json("stop", run)["alive"] == 0
    assert living(ranks) == []
