"""Attempts after a failure: by class, with a fresh port, until a limit; and stops in between."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from support.faults.supervisor_kills import SPAN, kill_at
from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.records import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workspace import Place

NCCL = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600026 milliseconds before timing out."
)
# For as many attempts as its first argument says it ends as NCCL's watchdog ends a process.
FLAKY = (
    "import os, sys, time\n"
    "attempt = int(os.environ['SAFELAUNCH_ATTEMPT'])\n"
    "print('attempt', attempt, 'args', sys.argv[2:], flush=True)\n"
    "if attempt <= int(sys.argv[1]):\n"
    "    time.sleep(0.2)\n"
    f"    print({NCCL!r}, file=sys.stderr, flush=True)\n"
    "    os.abort()\n"
)
AT_GO = FLAKY.replace("time.sleep(0.2)", "while not os.path.exists('go'): time.sleep(0.01)")
QUICK = {"backoff": "0.1s"}


def flaky(place: Place, failures: int, **recovery: object) -> str:
    """Write a job of two ranks whose first attempts fail for a cause that may pass."""
    return place.ranks(FLAKY, args=[str(failures)], recovery={**QUICK, **recovery})


def ended(place: Place, job: str, *words: str) -> dict[str, Any]:
    """Run a job to its end, whatever it is, and return what `show` tells."""
    place.cli("run", "--follow", job, *words, code=None)
    return place.json("show")


def port(place: Place, run: str, script: str) -> str:
    """Return the rendezvous port in a launch script."""
    text = (place.node(run) / script).read_text()
    _, name, rest = text.partition("export MASTER_PORT=")
    return (rest if name else text.split("--master_port ")[1]).split()[0]


# -- whether ---------------------------------------------------------------------------------------


def test_a_failure_that_may_pass_is_tried_again(
    place: Place, ranks_job: Callable[..., str]
) -> None:
    recovery = {"backoff": "0s", "resume_args": ["--resume"]}
    shown = ended(place, ranks_job(FLAKY, args=["1"], recovery=recovery))
    run = shown["id"]
    assert shown["state"] == "succeeded"
    attempts = [(a["attempt"], a["state"], a.get("class")) for a in shown["attempts"]]
    assert attempts == [(1, "failed", "nccl-timeout"), (2, "succeeded", None)]
    assert "attempt 2 args ['--resume']" in place.wait_for_text(run, "attempt 2", attempt=2)
    assert "attempt 1 args []" in place.wait_for_text(run, "attempt 1")
    assert port(place, run, "launch.sh") != port(place, run, "launch.2.sh")
    assert "attempt 2" in place.cli("show", run).stdout


def test_an_error_of_the_program_is_not_tried_again(place: Place) -> None:
    shown = place.failed(place.ranks("raise ValueError('bad batch')", recovery=QUICK))
    assert [a["attempt"] for a in shown["attempts"]] == [1]
    assert "`user-code-exception` would fail again" in shown["screen"]


def test_without_recovery_nothing_is_tried_again(place: Place) -> None:
    shown = place.failed(place.ranks(FLAKY, args=["9"]))
    assert len(shown["attempts"]) == 1


def test_an_unmet_success_is_told_whole_and_not_tried_again(place: Place) -> None:
    program = "for step in range(1, 6): print(f'step {step}/5 loss 0.5', flush=True)\n"
    success = {"artifacts": ["out/modle.bin"], "min_steps": 100}
    shown = place.failed(place.ranks(program, success=success, recovery=QUICK))
    assert len(shown["attempts"]) == 1
    assert "a restart would train it all again" in shown["screen"]
    what = shown["failure"]["what"]
    assert "100 steps, 5 were seen" in what
    assert "`out/modle.bin`, there is none" in what
    assert shown["screen"].count("100 steps") == 1
    assert "correct `success.artifacts`" in shown["failure"]["advice"]


def test_the_number_of_restarts_is_limited(place: Place) -> None:
    shown = place.failed(flaky(place, 9, max_restarts=1, no_progress=9))
    assert len(shown["attempts"]) == 2
    assert "`max_restarts: 1` is used up" in shown["screen"]
    assert shown["failure"]["attempt"] == 2


def test_attempts_without_progress_end(place: Place) -> None:
    shown = place.failed(flaky(place, 9, max_restarts=9, no_progress=2))
    assert len(shown["attempts"]) == 2
    assert "no progress in 2 attempts" in shown["screen"]


def test_a_new_checkpoint_is_progress(place: Place) -> None:
    save = "import os\nopen('ck-' + os.environ['SAFELAUNCH_ATTEMPT'], 'w').close()\n"
    recovery = {**QUICK, "max_restarts": 2, "no_progress": 1, "checkpoint": "ck-*"}
    shown = place.failed(place.ranks(save + FLAKY, args=["9"], recovery=recovery))
    assert len(shown["attempts"]) == 3
    assert "`max_restarts: 2` is used up" in shown["screen"]


def test_the_ladder_is_climbed_and_its_lesson_told(place: Place) -> None:
    place.write(
        "box.yaml",
        "description: a box\nladder:\n- {NCCL_P2P_DISABLE: 1}\n- {NCCL_SHM_DISABLE: 1}\n",
    )
    program = (
        "import os\nprint('shm', os.environ.get('NCCL_SHM_DISABLE'), flush=True)\n"
        "if not os.environ.get('NCCL_SHM_DISABLE'):\n"
        "    raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
    )
    job = place.ranks(program, profile="box.yaml", recovery={**QUICK, "ladder": True})
    stderr = place.cli("run", "--no-check", "--follow", job).stderr  # there is no card
    shown = place.json("show")
    assert [a.get("rung", 0) for a in shown["attempts"]] == [0, 1, 2]
    assert "shm 1" in place.wait_for_text(shown["id"], "shm", attempt=3)
    assert "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1" in stderr
    assert [e["rung"] for e in place.events(shown["id"], "restarting")] == [1, 2]


def test_a_run_whose_directory_was_removed_is_still_tried_again(place: Place) -> None:
    job = place.ranks(AT_GO, args=["1"], recovery=QUICK)
    run = place.start(job)
    place.wait_for_text(run, "[0] attempt 1")
    place.wait_for_text(run, "[1] attempt 1")
    place.remove(run)
    wait_for((place.node(run) / "status.json").exists, "directory")
    place.write("go", "")
    status = place.ended(run)
    assert (status["state"], len(status["attempts"])) == ("succeeded", 2)
    log = place.wait_for_text(run, "[1] attempt 2", attempt=2)  # captured as before
    assert "[1] attempt 2" in log
    assert "earlier logs are lost" in status["warning"]


def test_an_attempt_that_cannot_start_leaves_no_process_behind(place: Place) -> None:
    """Where its script cannot be written, as on a full disk."""
    run = place.start(place.ranks(AT_GO, args=["9"], recovery=QUICK))
    (place.node(run) / "launch.2.sh").mkdir()
    place.write("go", "")
    status = place.ended(run)
    assert status["state"] == "failed"
    assert "attempt 2 cannot be started" in status["warning"]
    assert "cannot see" not in status["warning"]


# -- between two attempts --------------------------------------------------------------------------


def waiting(place: Place, backoff: str = "5m", **keys: Any) -> str:
    """Start a job that fails and waits long for its next attempt; return the run."""
    run = place.start(place.ranks(FLAKY, args=["9"], recovery={"backoff": backoff}, **keys))
    wait_for(lambda: place.status(run).get("waiting"), "pause")
    return run


def test_a_run_that_waits_for_its_next_attempt_is_told_and_can_be_stopped(place: Place) -> None:
    run = waiting(place)
    output = place.cli("show", run).stdout
    assert "running, attempt 2 in " in output
    assert "nccl-timeout" in output
    alive = place.status(run)["supervisor"]["pid"]
    assert re.findall(r"processes (.*)", output) == [f"supervisor {alive}"]
    shown = place.json("stop", run)
    assert (shown["state"], shown["alive"], len(shown["attempts"])) == ("stopped", 0, 1)
    screen = " ".join(place.cli("show", run).stdout.split())
    assert re.search(r"stopped by `safelaunch stop` \(.+\), while waiting for attempt 2", screen)
    log = place.wait_for_text(run, "while waiting")
    assert re.search(r"`safelaunch stop` \(.+\) while waiting for attempt 2", log)


def test_max_duration_also_ends_the_wait_for_the_next_attempt(place: Place) -> None:
    run = waiting(place, max_duration="6s")
    status = place.ended(run)
    assert (status["state"], status["stopped_by"]) == ("stopped", "max_duration")
    assert status["reason"] == ("its max_duration of 6s had passed while waiting for attempt 2")
    assert len(status["attempts"]) == 1
    assert 6 <= status["elapsed"] < 60
    log = place.wait_for_text(run, "max_duration of 6s reached while waiting for attempt 2")
    assert "[safelaunch]" in log


def test_a_run_directory_that_is_removed_in_the_pause_comes_back(place: Place) -> None:
    run = waiting(place)
    place.remove(run)
    assert place.status(run)["state"] == "running"
    wait_for((place.node(run) / "again.0.sh").exists, "directory")
    wait_for((place.node(run) / "status.json").exists, "status")
    assert place.json("stop", run)["state"] == "stopped"


def test_while_it_waits_no_time_left_is_told(place: Place) -> None:
    steps = "for n in (1, 2, 3, 4): print(f'step {n}/5 loss 0.5', flush=True); time.sleep(0.1)\n"
    program = FLAKY.replace("if attempt", f"{steps}if attempt", 1)
    run = place.start(place.ranks(program, args=["9"], recovery={"backoff": "5m"}))
    wait_for(lambda: place.status(run).get("waiting"), "pause")
    output = place.cli("show", run).stdout
    assert "step 4/5" in output
    assert "of attempt 1" in output
    assert " left" not in output
    assert " left" not in place.cli("ps").stdout


def test_a_supervisor_killed_while_it_waits_leaves_a_lost_run(place: Place) -> None:
    run = waiting(place)
    who = place.status(run)["supervisor"]
    processes.send(who["pid"], who["start"], signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(Process.from_json(who)), "death of the supervisor")
    shown = place.json("show", run)
    assert (shown["state"], shown["alive"]) == ("lost", 0)
    assert "attempt 2 in" not in place.cli("show", run).stdout
    assert place.json("stop", run)["state"] == "stopped"


@pytest.mark.parametrize(
    ("part", "by"),
    [
        (0.1, "stand-in"),
        (0.5, "stand-in"),
        pytest.param(0.3, "direct", marks=pytest.mark.train),
    ],
)
def test_a_supervisor_killed_at_any_moment_leaves_a_run_that_can_be_cleaned(
    tmp_path: Path, part: float, by: str
) -> None:
    assert kill_at(part * SPAN, str(tmp_path), by=by) is None
