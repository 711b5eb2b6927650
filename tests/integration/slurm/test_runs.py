"""Runs on a real Slurm: submitted, followed, stopped, queued again, and their true ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.slurm import Slurm
    from support.workspace import Place

BLOCK = {"cpus_per_task": 1, "mem": "300MiB", "time": "10m"}
WHO = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"])
"""
FAIL = """
import os, time
if os.environ["RANK"] == "1":
    raise KeyError("label")
time.sleep(600)
"""
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
STEPS = """
import os, pathlib, sys, time
rank, begin = int(os.environ["RANK"]), 0
if len(sys.argv) > 1:
    begin = int(sys.argv[2].rsplit("-", 1)[1])
for step in range(begin + 1, 7):
    if rank == 0:
        folder = pathlib.Path(f"out/checkpoint-{step}")
        folder.mkdir(parents=True)
        (folder / "model.pt").write_bytes(b"weights")
        print(f"step {step}/6", flush=True)
    if step == 3:
        time.sleep(600)
"""
RESUME = {"checkpoint": "out/checkpoint-*", "resume_args": ["--resume", "{checkpoint}"]}


@pytest.fixture
def cluster(place: Place, slurm: Slurm) -> Iterator[Slurm]:
    """Yield the cluster, of which the place is a login node, with an empty queue."""
    place.env |= {"SLURM_CONF": str(slurm.config), "PATH": slurm.environ["PATH"]}
    slurm.end_jobs()  # other tests leave some
    yield slurm
    slurm.end_jobs()


def job(place: Place, program: str, nodes: int = 2, **keys: Any) -> str:
    """Write a job with one rank on each of some nodes."""
    return place.ranks(program, 1, nodes=nodes, slurm=BLOCK, profile="cpu", **keys)


def submit(place: Place, name: str, *words: str) -> str:
    """Submit a job and return its run's id."""
    return str(place.json("run", "--on", "slurm", name, *words)["id"])


def number(place: Place, run: str) -> str:
    """Return what Slurm calls the job of a run."""
    return str(json.loads((place.node(run) / "engine.json").read_text())["job"])


def state(cluster: Slurm, place: Place, run: str) -> str:
    """Return the state of a run's job, once Slurm has ended it."""

    def ended() -> str | None:
        shown = cluster.run("scontrol", "--oneliner", "show", "job", number(place, run))
        word = shown.partition("JobState=")[2].split()[0]
        return None if word in ("RUNNING", "COMPLETING", "PENDING") else word

    return str(wait_for(ended, f"end of the job of {run}"))


def wait_for_line(place: Place, run: str, text: str, node: int = 0, attempt: int = 1) -> None:
    """Wait until the log of a node holds a text."""
    path = place.home / "runs" / run / f"node-{node}/logs/attempt-{attempt}/combined.log"
    wait_for(lambda: path.exists() and text in path.read_text(), f"{text!r} on node {node}")


def test_two_nodes_meet_and_slurm_has_the_job_as_completed(place: Place, cluster: Slurm) -> None:
    screen = place.cli("run", "--on", "slurm", "--follow", job(place, WHO))
    lines = {line.partition("| ")[2] for line in screen.stdout.splitlines()}
    assert {"[0] rank 0 of 2 127.0.0.1", "[1] rank 1 of 2 127.0.0.1"} <= lines
    run = place.json("show")["id"]
    assert state(cluster, place, run) == "COMPLETED"
    missing = place.cli("logs", "--attempt", "2", run, code=None)
    assert (missing.stdout, missing.stderr.startswith("error: ")) == ("", True)


def test_a_failed_rank_is_named_with_its_node_and_slurm_has_the_job_as_failed(
    place: Place, cluster: Slurm
) -> None:
    run = submit(place, job(place, FAIL))
    place.cli("wait", run, code=1)
    failure = place.json("show", run)["failure"]
    assert (failure["rank"], failure["what"]) == (1, "KeyError: 'label'")
    assert state(cluster, place, run) == "FAILED"


def test_a_run_that_waits_says_for_what_and_a_stop_cancels_it(place: Place, cluster: Slurm) -> None:
    run = submit(place, job(place, WHO), "--set", "slurm.partition=down")
    status = wait_for(
        lambda: (s := place.json("show", run)).get("reason") and s, "a reason of Slurm"
    )
    assert (status["state"], "(PartitionDown)" in status["reason"]) == ("pending", True)
    place.cli("stop", run)
    shown = place.json("show", run)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled before it started")
    cluster.await_empty_queue()


def test_a_stop_ends_all_nodes_and_the_job(place: Place, cluster: Slurm) -> None:
    run = submit(place, job(place, FOREVER))
    for node in range(2):
        wait_for_line(place, run, "up", node)
    place.cli("stop", "--grace", "2", run)
    shown = place.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["stopped", "stopped"]
    cluster.await_empty_queue()


def test_a_job_that_is_cancelled_by_hand_is_stopped(place: Place, cluster: Slurm) -> None:
    run = submit(place, job(place, FOREVER))
    wait_for_line(place, run, "up")
    cluster.run("scancel", number(place, run))
    place.cli("wait", run, code=1)
    assert place.json("show", run)["state"] == "stopped"


def test_a_job_that_slurm_queues_again_goes_on_as_the_same_run(
    place: Place, cluster: Slurm
) -> None:
    run = submit(place, job(place, STEPS, recovery=RESUME))
    wait_for_line(place, run, "step 3/6")
    cluster.run("scontrol", "requeue", number(place, run))
    wait_for(lambda: place.json("show", run)["state"] == "pending", "a run that waits again")
    cluster.start_again(number(place, run))
    place.cli("wait", run)
    shown = place.json("show", run)
    assert [attempt["state"] for attempt in shown["attempts"]] == ["stopped", "succeeded"]
    steps = (place.logs(run, 2) / "combined.log").read_text().splitlines()
    assert [line for line in steps if "step" in line] == [f"[0] step {n}/6" for n in (4, 5, 6)]


@pytest.mark.usefixtures("cluster")
def test_a_batch_script_that_fails_before_the_ranks_shows_its_own_log(place: Place) -> None:
    block = {**BLOCK, "setup": ["echo no such module >&2; exit 3"], "requeue": False}
    name = place.ranks("print('up')\n", 1, nodes=2, slurm=block, profile="cpu")
    run = submit(place, name)
    place.cli("wait", run, code=1)
    assert "exit code 3" in place.cli("show", run).stdout
    for follow in ([], ["--follow"], ["--tail", "1"]):
        assert "no such module" in place.cli("logs", *follow, run).stdout


@pytest.mark.parametrize(
    ("value", "refusal", "hint"),
    [
        ("partition=nowhere", "invalid partition", "main, urgent, old, down"),
        ("mem=1TiB", "Memory specification", "main (2 nodes of 8 CPUs and 8192 MB, 1-00:00:00)"),
    ],
)
def test_what_slurm_refuses_leaves_nothing_and_says_what_there_is(
    place: Place, cluster: Slurm, value: str, refusal: str, hint: str
) -> None:
    words = ("--set", f"slurm.{value}")
    screen = place.cli("run", "--on", "slurm", job(place, WHO), *words, code=3)
    text = " ".join(screen.stderr.split())
    assert f"Slurm does not accept the job: {refusal}" in text
    assert f"partitions: {hint}" in text
    assert list((place.home / "runs").glob("*")) == []
    assert cluster.queue() == ""


@pytest.mark.usefixtures("cluster")
def test_a_check_on_the_login_node_asks_slurm_and_looks_at_a_node(place: Place) -> None:
    file = job(place, WHO)
    answers = place.json("check", "--on", "slurm", "--all", file, code=None)["results"]
    checks = {answer["id"]: answer["status"] for answer in answers}
    shown = {name: checks[name] for name in ("slurm-request", "slurm-node", "slurm-shared")}
    assert set(shown.values()) == {"ok"}
    assert checks["interpreter"] == "ok"
    words = ("--set", "slurm.partition=nowhere")
    refused = place.json("check", "--on", "slurm", file, *words, code=3)["results"]
    assert [answer["id"] for answer in refused] == ["slurm-request"]


def test_a_secret_is_in_nothing_that_slurm_shows(place: Place, cluster: Slurm) -> None:
    place.env["API_KEY"] = "s3cr3t-of-the-test"
    run = submit(place, job(place, FOREVER, 1, env_from=["API_KEY"]))
    wait_for_line(place, run, "up")
    shown = cluster.run("scontrol", "--details", "show", "job", number(place, run))
    script = cluster.run("scontrol", "write", "batch_script", number(place, run), "-")
    files = [path for path in (place.home / "runs" / run).rglob("*") if path.is_file()]
    readable = [path for path in files if path.stat().st_mode & 0o077]
    leaks = [path.name for path in readable if b"s3cr3t" in path.read_bytes()]
    place.cli("stop", "--grace", "2", run)
    assert ("s3cr3t" in shown + script, leaks) == (False, [])
    assert not [path for path in files if path.exists() and b"s3cr3t" in path.read_bytes()]


# All nodes of the test cluster are one machine. With this in its `setup` each step has a host name
# and process numbers of its own, so that nothing on the login node can look at its processes.
APART = """
srun() {
  local options=()
  while [[ $1 == -* ]]; do options+=("$1"); shift; done
  command srun "${options[@]}" unshare --uts --pid --fork --mount-proc --kill-child \
    bash -c 'hostname "$SLURMD_NODENAME"; exec "$@"' - "$@"
}
"""


def test_a_login_node_that_sees_no_process_of_the_nodes_tells_and_stops_the_run(
    place: Place, cluster: Slurm
) -> None:
    block = {**BLOCK, "setup": [APART]}
    name = place.ranks(FOREVER, 1, nodes=2, slurm=block, profile="cpu")
    run = submit(place, name)
    for node in range(2):
        wait_for_line(place, run, "up", node)
    records = [
        json.loads((place.node(run).parent / f"node-{n}/run.json").read_text()) for n in (0, 1)
    ]
    assert len({record["starter"]["pidns"] for record in records}) == 2
    shown = place.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["running", "running"]
    place.cli("stop", "--grace", "2", run)
    shown = place.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["stopped", "stopped"]
    cluster.await_empty_queue()


def test_a_failure_on_a_node_apart_is_named_with_it(place: Place, cluster: Slurm) -> None:
    block = {**BLOCK, "setup": [APART]}
    run = submit(place, place.ranks(FAIL, 1, nodes=2, slurm=block, profile="cpu"))
    place.cli("wait", run, code=1)
    failure = place.json("show", run)["failure"]
    assert (failure["rank"], failure["what"], failure["node"]) == (1, "KeyError: 'label'", 1)
    assert state(cluster, place, run) == "FAILED"


def test_a_job_begins_after_the_job_of_an_earlier_run_as_slurm_lets_it(
    place: Place, cluster: Slurm
) -> None:
    waits = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    first = submit(place, job(place, waits, 1, name="first"))
    name = job(place, FAIL.replace('"1"', '"0"'), 1, name="second")
    dry = place.cli("run", "--on", "slurm", name, "--after", first, "--dry-run").stdout
    assert f"--dependency=afterok:<job of {first}>' --kill-on-invalid-dep=yes" in dry
    second = submit(place, name, "--after", first)
    third = submit(place, job(place, WHO, 1, name="third"), "--after", second)
    fourth = submit(place, job(place, WHO, 1, name="fourth"), "--after-any", second)
    wait_for(
        lambda: "(Dependency)" in (place.json("show", second).get("reason") or ""), "a dependency"
    )
    local = place.cli("run", place.job("print(1)", name="here"), "--after", first, code=2).stderr
    assert f"{first} is a job of Slurm" in local
    place.write("go", "")
    place.json("wait", second, code=1)
    assert place.json("wait", fourth)["state"] == "succeeded"
    shown = place.json("wait", third, code=1)
    assert (shown["state"], shown["attempts"]) == ("stopped", [])
    assert "the job that it depends on has failed" in shown["reason"]
    cluster.await_empty_queue()


def test_steps_are_jobs_that_depend_on_each_other_with_the_outputs_of_those_before(
    place: Place, cluster: Slurm
) -> None:
    place.job("import sys\nprint('from', sys.argv[1])\n", name="export")
    train = "import pathlib\np = pathlib.Path('out/step-1')\np.mkdir(parents=True)\n"
    name = place.job(
        train + "(p / 'model.pt').write_bytes(b'weights')\n",
        slurm=BLOCK,
        profile="cpu",
        script=None,
        steps={
            "train": {"script": "job.py", "recovery": {"checkpoint": "out/step-*"}},
            "export": {"script": "export.py", "args": ["{steps.train.checkpoint}"]},
        },
    )
    dry = place.cli("run", "--on", "slurm", name, "--dry-run").stdout
    assert "'--dependency=afterok:<job of step train>'" in dry
    group = place.json("run", "--on", "slurm", name)["group"]
    shown = place.json("wait", group)
    assert [step["state"] for step in shown["steps"]] == ["succeeded"] * 2
    log = place.cli("logs", shown["steps"][1]["id"]).stdout
    assert f"from {place.project}/out/step-1" in log
    cluster.await_empty_queue()
