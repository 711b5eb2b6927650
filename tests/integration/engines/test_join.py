"""Nodes that an engine starts: they fill in what the plan left open, end truly, and live again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.engine_nodes import EngineRun, ends
from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.engines.errors import SubmitError
from safelaunch.runtime.records import EngineJob

if TYPE_CHECKING:
    from support.workspace import Place

WHO = """
import os
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "MINE", "SLURM_JOB_ID",
         "SLURM_NTASKS")
print("ranks", *(os.environ.get(name) for name in names), flush=True)
"""
FAIL = """
import os, time
if os.environ["RANK"] == "1":
    raise KeyError("label")
time.sleep(600)
"""
# rank 0 takes until it is killed, so that node 1 waits with its failure for the end of node 0
FAIL_ALONE = """
import os, signal, time
if os.environ["RANK"] == "1":
    raise KeyError("label")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""
# saves a checkpoint with each step, and goes on from the one that it is given
STEPS = """
import os, pathlib, sys, time
rank, last = int(os.environ["RANK"]), int(sys.argv[1])
begin = int(sys.argv[3].rsplit("-", 1)[1]) if len(sys.argv) > 3 else 0
print("begins at", begin, flush=True)
for step in range(begin + 1, last + 1):
    if rank == 0:
        folder = pathlib.Path(f"out/checkpoint-{step}")
        folder.mkdir(parents=True)
        (folder / "model.pt").write_bytes(b"weights")
        print(f"step {step}/{last}", flush=True)
    if step == 2:
        time.sleep(600)
"""
RECOVERY = {
    "max_restarts": 2,
    "checkpoint": "out/checkpoint-*",
    "resume_args": ["--resume", "{checkpoint}"],
}


def test_each_node_fills_in_what_only_it_knows(place: Place) -> None:
    place.env["MINE"] = "of the caller"
    run = EngineRun(place, place.ranks(WHO, 1))
    assert ends(run.start_all()) == [0, 0]
    logs = [run.log(number) for number in range(2)]
    expected = [f"ranks {n} 2 127.0.0.1 1 of the caller 7 None" for n in range(2)]
    assert [line in log for line, log in zip(expected, logs, strict=True)] == [True, True]


def test_no_placeholder_is_left_in_what_runs(place: Place) -> None:
    run = EngineRun(place, place.ranks(WHO, 1))
    ends(run.start_all())
    texts = [
        (run.node(number) / name).read_text()
        for number in range(2)
        for name in ("launch.sh", "plan.json")
    ]
    assert [text for text in texts if "safelaunchport" in text or "safelaunchmaster" in text] == []


def test_the_environment_of_the_job_is_private_and_goes_with_its_end(place: Place) -> None:
    run = EngineRun(place, place.ranks(WHO, 1), nodes=1)
    file = run.node(0) / "environ.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert ends(run.start_all()) == [0]
    assert not file.exists()


def test_a_failure_fails_the_job_and_names_its_rank_on_both_nodes(place: Place) -> None:
    run = EngineRun(place, place.ranks(FAIL, 1))
    assert ends(run.start_all()) == [143, 1]
    assert run.status(1)["state"] == "failed"
    assert "localhost (node 1) failed: rank 1: KeyError" in run.status(0)["reason"]


def test_a_failure_of_a_single_node_names_it_as_the_engine_does(place: Place) -> None:
    run = EngineRun(place, place.ranks("raise KeyError('x')\n", 1), nodes=1)
    assert ends(run.start_all()) == [1]
    failure = json.loads((run.node(0) / "failure.json").read_text())
    assert (failure["rank"], failure["host"]) == (0, "localhost")


def test_a_stop_request_in_the_run_directory_stops_all_nodes(place: Place) -> None:
    run = EngineRun(
        place, place.ranks("print('up', flush=True)\nimport time; time.sleep(600)\n", 1)
    )
    nodes = run.start_all()
    run.wait_for_text("up")
    run.ask_to_stop()
    assert ends(nodes) == [143, 143]
    origins = [run.status(number).get("stop_origin") for number in range(2)]
    assert "`safelaunch stop` (a test)" in origins  # the other may be stopped by this one


def test_a_stop_before_the_nodes_agree_on_a_restart_is_a_stop(place: Place) -> None:
    policy = {"max_restarts": 2, "classes": {"user-code-exception": "restart"}}
    run = EngineRun(place, place.ranks(FAIL_ALONE, 1, recovery=policy))
    nodes = run.start_all()
    wait_for(lambda: "failed" in run.events(1), "failure of node 1, while node 0 ends its rank")
    run.ask_to_stop()
    assert ends(nodes) == [143, 143]
    assert [run.status(number)["state"] for number in range(2)] == ["stopped", "stopped"]


def test_a_run_that_meets_its_time_limit_goes_on_in_the_next_life(place: Place) -> None:
    run = EngineRun(place, place.ranks(STEPS, 1, args=["4"], recovery=RECOVERY))
    nodes = run.start_all()
    run.wait_for_text("step 2/4")
    run.warn_of_time_limit()
    assert ends(nodes) == [75, 75]
    assert run.status()["state"] == "pending"
    assert ends(run.start_all(life=1)) == [0, 0]
    assert "begins at 2" in run.log(attempt=2)
    attempts = [(a["attempt"], a["state"]) for a in run.status()["attempts"]]
    assert attempts == [(1, "failed"), (2, "succeeded")]


def test_a_time_limit_without_progress_is_not_met_again_and_again(place: Place) -> None:
    program = "print('up', flush=True)\nimport time; time.sleep(600)\n"
    run = EngineRun(place, place.ranks(program, 1, recovery=RECOVERY), nodes=1)
    nodes = run.start_all()
    run.wait_for_text("up")
    run.warn_of_time_limit()
    assert ends(nodes) == [1]
    assert run.status()["attempts"][0]["next"] == (
        "no requeue: the attempt made no progress that it could resume from"
    )


def test_a_life_that_was_killed_counts_as_a_lost_attempt(place: Place) -> None:
    run = EngineRun(place, place.ranks(STEPS, 1, args=["3"], recovery=RECOVERY), nodes=1)
    (node,) = run.start_all()
    run.wait_for_text("step 2/3")
    place.note()
    node.kill()
    ends([node])
    processes.end_all(lambda: processes.marked(run.id), lambda: True)
    assert ends(run.start_all(life=1)) == [0]
    attempts = [(a["attempt"], a["state"]) for a in run.status()["attempts"]]
    assert attempts == [(1, "lost"), (2, "succeeded")]


def test_one_life_of_a_node_starts_once(place: Place) -> None:
    run = EngineRun(place, place.ranks(WHO, 1), nodes=1)
    assert ends(run.start_all()) == [0]
    assert ends(run.start_all()) == [1]
    assert run.status()["state"] == "succeeded"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"SLURM_NODEID": "2"}, "node 2 of `localhost,localhost`"),
        ({"SLURM_NODEID": ""}, "SLURM_NODEID and SLURM_STEP_NODELIST are not set"),
        ({"SLURM_STEP_NODELIST": "n[1-"}, "no `]` in the node list"),
        ({"SLURM_STEP_NODELIST": "localhost"}, "the run has 2 nodes, the job 1"),
        ({"SLURMD_NODENAME": "n9"}, "node 0 of `localhost,localhost` is not n9"),
        ({"SLURM_STEP_NODELIST": "nowhere.invalid,nor.invalid"}, "has no address"),
    ],
)
def test_a_machine_that_cannot_join_says_why(
    place: Place, variables: dict[str, str], words: str
) -> None:
    run = EngineRun(place, place.ranks(WHO, 1))
    assert ends([run.start(0, variables=variables)]) == [1]
    assert words in run.output(0)


def test_a_machine_that_does_not_see_the_run_directory_says_so(place: Place) -> None:
    run = EngineRun(place, place.ranks(WHO, 1))
    (run.node(1) / "run.json").unlink()
    assert ends([run.start(1)]) == [1]
    assert f"no run.json in {run.node(1)}: does this machine mount that file system?" in run.output(
        1
    )


def test_a_submission_that_is_refused_leaves_nothing(place: Place) -> None:
    with pytest.raises(SubmitError, match="invalid partition"):
        EngineRun(place, place.ranks(WHO, 1), submit="echo invalid partition >&2; exit 1")
    assert list((place.home / "runs").iterdir()) == []


def test_a_node_names_the_job_of_a_start_that_was_interrupted(place: Place) -> None:
    run = EngineRun(place, place.ranks(WHO, 1), nodes=1)
    EngineJob(name="slurm", comment=f"safelaunch:{run.id}").write(str(run.node(0)))
    assert ends([run.start(0)]) == [0]
    job = EngineJob.read(str(run.node(0)))
    assert job is not None
    assert job.job == "7"
