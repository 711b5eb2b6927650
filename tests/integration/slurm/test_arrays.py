"""Parts of a job as tasks of one array on a real Slurm: each end, the merge, what is left of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.slurm import Slurm
    from support.ssh.sshd import Sshd
    from support.workspace import Place

BLOCK = {"cpus_per_task": 1, "mem": "200MiB", "time": "10m"}
# what a part does is written in files of the project: `fails`, `waits` have the numbers of parts
PROGRAM = """
import os, pathlib, sys, time
part, source, target = sys.argv[1:]
def listed(name):
    path = pathlib.Path(name)
    return part in path.read_text().split() if path.exists() else False
print("part", part, os.environ["SLURM_ARRAY_TASK_ID"], flush=True)
with open(f"ran-{part}", "a") as file:
    file.write("x")
while listed("waits"):
    time.sleep(0.05)
if listed("fails"):
    raise KeyError(part)
pathlib.Path(target).write_text(pathlib.Path(source).read_text().upper())
"""
ROWS = [f"row {number}" for number in range(9)]
LOG = """#!/bin/sh
echo "$@" >> "$0.calls"
exec "$@"
"""


@pytest.fixture
def cluster(place: Place, slurm: Slurm) -> Iterator[Slurm]:
    """Yield the cluster, of which the place is a login node, with an empty queue."""
    place.env |= {"SLURM_CONF": str(slurm.config), "PATH": slurm.environ["PATH"]}
    slurm.end_jobs()
    yield slurm
    slurm.end_jobs()


def job(place: Place, parts: int = 3, **keys: Any) -> str:
    """Write a job over nine rows, whose outputs are merged."""
    place.write("rows.txt", "\n".join(ROWS) + "\n")
    shards = {"over": "rows.txt", "parts": parts, "merge": {"output": "merged.txt"}}
    args = ["{shard.index}", "{shard.input}", "{shard.output}"]
    keys = {"shards": shards, "args": args, "slurm": BLOCK, **keys}
    return place.job(PROGRAM, profile="cpu", **keys)


def submit(place: Place, name: str, *words: str) -> str:
    return str(place.json("run", "--on", "slurm", name, *words)["id"])


def tasks(cluster: Slurm, place: Place, run: str) -> dict[str, str]:
    """Return {number of the task: Slurm's state} of the array of a run."""
    number = json.loads((place.node(run) / "engine.json").read_text())["job"]
    text = cluster.run("scontrol", "--oneliner", "show", "job", number)
    rows = [dict(w.partition("=")[::2] for w in line.split()) for line in text.splitlines()]
    return {row["ArrayTaskId"]: row["JobState"] for row in rows}


def merged(place: Place) -> list[str]:
    return (place.project / "merged.txt").read_text().splitlines()


def test_parts_are_tasks_of_one_array_and_one_of_them_merges(place: Place, cluster: Slurm) -> None:
    place.write("waits", "1")
    run = submit(place, job(place))
    reason = "2 of 3 parts are done, 1 running"
    shown = wait_for(
        lambda: (s := place.json("show", run)).get("reason") == reason and s, "two parts"
    )
    assert (shown["state"], shown["part_count"]) == ("running", 3)
    assert "2/3" in place.cli("ps").stdout
    assert "part 1 1" in place.cli("logs", run, "--part", "1").stdout
    assert not (place.project / "merged.txt").exists()
    place.write("waits", "")
    assert place.json("wait", run)["state"] == "succeeded"
    assert merged(place) == [row.upper() for row in ROWS]
    assert place.cli("logs", run).stdout.count("are merged in") == 1
    wait_for(
        lambda: tasks(cluster, place, run) == dict.fromkeys("012", "COMPLETED"), "an end for Slurm"
    )
    assert not (place.node(run) / "environ.json").exists()


def test_a_part_that_fails_fails_the_run_at_the_end_and_rerun_runs_it_alone(
    place: Place, cluster: Slurm
) -> None:
    place.write("fails", "1")
    later = place.job("print(1)", name="after", profile="cpu", slurm=BLOCK)
    run = submit(place, job(place))
    after = submit(place, later, "--after", run)
    place.json("wait", run, code=1)
    shown = place.json("show", run)
    assert shown["failure"]["what"] == "1 of 3 parts failed; part 1: KeyError: '1'"
    assert [end["state"] for end in shown["parts"]] == ["succeeded", "failed", "succeeded"]
    states = {"0": "COMPLETED", "1": "FAILED", "2": "COMPLETED"}
    wait_for(lambda: tasks(cluster, place, run) == states, "an end for Slurm")
    assert "the job that it depends on has failed" in place.json("wait", after, code=1)["reason"]
    place.write("fails", "")
    again = str(place.json("rerun", run)["id"])
    assert place.json("wait", again)["state"] == "succeeded"
    assert list(tasks(cluster, place, again)) == ["1"]
    assert merged(place) == [row.upper() for row in ROWS]
    assert [(place.project / f"ran-{part}").read_text() for part in range(3)] == ["x", "xx", "x"]


def test_a_stop_cancels_what_waits_and_leaves_nothing(place: Place, cluster: Slurm) -> None:
    place.write("waits", "0 1 2")
    run = submit(place, job(place, at_once=1))
    wait_for((place.project / "ran-0").exists, "the first part")
    place.cli("stop", "--grace", "2", run)
    shown = place.json("show", run)
    assert (shown["state"], cluster.queue()) == ("stopped", "")
    assert [end["state"] for end in shown["parts"]] == ["stopped"] * 3
    assert shown["parts"][2]["cause"] == "cancelled before it started"
    assert not (place.project / "ran-1").exists()
    assert not (place.node(run) / "environ.json").exists()


def test_a_task_that_slurm_queues_again_goes_on_as_the_same_part(
    place: Place, cluster: Slurm
) -> None:
    place.write("waits", "1")
    run = submit(place, job(place, 2))
    wait_for((place.project / "ran-1").exists, "the second part")
    number = json.loads((place.node(run) / "engine.json").read_text())["job"]
    cluster.run("scontrol", "requeue", f"{number}_1")
    cluster.start_again(f"{number}_1")
    wait_for(lambda: (place.project / "ran-1").read_text() == "xx", "a second life")
    place.write("waits", "")
    assert place.json("wait", run)["state"] == "succeeded"
    part = json.loads((place.node(run) / "members/part-1/node-0/status.json").read_text())
    assert [attempt["attempt"] for attempt in part["attempts"]] == [1, 2]
    assert (place.project / "ran-0").read_text() == "x"
    assert merged(place) == [row.upper() for row in ROWS]


def test_a_part_that_slurm_cancels_is_shown_and_the_run_ends(place: Place, cluster: Slurm) -> None:
    place.write("waits", "1")
    run = submit(place, job(place, 2))
    wait_for((place.project / "ran-1").exists, "the second part")
    number = json.loads((place.node(run) / "engine.json").read_text())["job"]
    cluster.run("scancel", f"{number}_1")
    assert place.json("wait", run, code=1)["state"] == "stopped"
    assert not (place.project / "merged.txt").exists()


def test_more_parts_than_an_array_may_have_are_refused_with_the_number(
    place: Place, cluster: Slurm
) -> None:
    name = place.job("print(1)", profile="cpu", slurm=BLOCK, shards=2000)
    refused = place.cli("run", "--on", "slurm", name, code=3).stderr
    assert "2000 parts" in refused
    assert "MaxArraySize of this cluster allows 1001" in refused
    assert cluster.queue() == ""
    assert place.json("ps")["runs"] == []


@pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
def test_an_array_behind_a_login_node_asks_slurm_seldom(
    place: Place, server: Sshd, slurm: Slurm, tmp_path: Path
) -> None:
    place.ssh_config(server.ssh_config("login1"))
    wrapper = tmp_path / "site"
    wrapper.write_text(LOG)
    wrapper.chmod(0o755)
    prefix = [str(wrapper), "env", f"SLURM_CONF={slurm.config}", f"PATH={slurm.environ['PATH']}"]
    hosts = {"hosts": {"cluster": {"ssh": "login1", "slurm": {"prefix": prefix, **BLOCK}}}}
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "hosts.yaml").write_text(json.dumps(hosts))
    place.write("fails", "1")
    run = str(place.json("remote", "--host", "cluster", job(place, slurm={}))["id"])
    place.cli("wait", run, code=1)
    shown = place.json("show", run)
    assert [end["state"] for end in shown["parts"]] == ["succeeded", "failed", "succeeded"]
    assert "part 1 1" in place.cli("logs", run, "--part", "1").stdout
    assert "2/3" in place.cli("ps").stdout
    calls = (tmp_path / "site.calls").read_text().splitlines()
    submitted = [line for line in calls if " sbatch " in f" {line} "]
    assert sum("--test-only" not in line for line in submitted) == 1
    began, ended = shown["started_at"], shown["ended_at"]
    assert sum(" squeue " in f" {line} " for line in calls) <= 2 + (ended - began) / 10
