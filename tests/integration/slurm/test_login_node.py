"""Runs of a real Slurm behind a login node over SSH: a real sshd in front of it."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from support.ssh import sshd
from support.ssh.faulty_proxy import Faults
from support.workspace import DEADLINE, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.slurm import Slurm
    from support.ssh.sshd import Sshd
    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))

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
STEPS = """
import os, pathlib, sys, time
rank, begin = int(os.environ["RANK"]), 0
if len(sys.argv) > 1:
    begin = int(sys.argv[2].rsplit("-", 1)[1])
for step in range(begin + 1, 7):
    if rank == 0:
        pathlib.Path(f"out/checkpoint-{step}").mkdir(parents=True)
        pathlib.Path(f"out/checkpoint-{step}/model.pt").write_bytes(b"weights")
    print(f"step {step}/6", flush=True)
    if step == 3:
        time.sleep(600)
"""
RESUME = {"checkpoint": "out/checkpoint-*", "resume_args": ["--resume", "{checkpoint}"]}
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"

# a site's wrapper: an sbatch that takes its time to submit
SLOW = """#!/bin/sh
case " $* " in *" --test-only "*) ;; *" sbatch "*) touch "$0.began"; sleep 3 ;; esac
exec "$@"
"""
LOG = """#!/bin/sh
echo "$@" >> "$0.calls"
exec "$@"
"""


@pytest.fixture(autouse=True)
def cluster(place: Place, server: Sshd, slurm: Slurm) -> Iterator[Slurm]:
    """Yield a cluster, whose login node the place knows as `cluster`, with an empty queue."""
    place.ssh_config(server.ssh_config("login1"))
    prefix = ["env", f"SLURM_CONF={slurm.config}", f"PATH={slurm.environ['PATH']}"]
    block = {"prefix": prefix, "cpus_per_task": 1, "mem": "300MiB", "time": "10m"}
    hosts = {"hosts": {"cluster": {"ssh": "login1", "slurm": block}}}
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "hosts.yaml").write_text(json.dumps(hosts))
    slurm.end_jobs()
    yield slurm
    slurm.end_jobs()


def job(place: Place, program: str, nodes: int = 2, **keys: Any) -> str:
    """Write a job with one rank on each of some nodes."""
    return place.ranks(program, 1, nodes=nodes, profile="cpu", **{"python": None, **keys})


def submit(place: Place, name: str, *words: str) -> str:
    """Submit a job and return its run's id."""
    return str(place.json("remote", "--host", "cluster", name, *words)["id"])


def test_two_nodes_meet_and_their_log_comes_here(place: Place) -> None:
    screen = place.cli("remote", "--host", "cluster", "--follow", job(place, WHO))
    lines = {line.partition("| ")[2] for line in screen.stdout.splitlines()}
    assert {"[0] rank 0 of 2 127.0.0.1", "[1] rank 1 of 2 127.0.0.1"} <= lines
    assert "of Slurm on cluster" in screen.stderr
    assert place.json("show")["state"] == "succeeded"


def test_a_failed_rank_is_named_with_the_machine_that_slurm_chose(place: Place) -> None:
    run = submit(place, job(place, FAIL))
    place.cli("wait", run, code=1)
    shown = place.json("show", run)
    failure = shown["failure"]
    assert (failure["rank"], failure["what"]) == (1, "KeyError: 'label'")
    assert failure["host"] in {"n1", "n2", "n3"}
    assert [node["host"] for node in shown["nodes"]] != ["cluster", "cluster"]


def test_a_stop_ends_all_nodes_and_the_job(place: Place, cluster: Slurm) -> None:
    run = submit(place, job(place, FOREVER))
    wait_for(lambda: "up" in place.cli("logs", run, code=None).stdout, "log of the ranks")
    listed = place.json("ps")["runs"][0]
    assert (listed["host"], listed["state"]) == ("cluster", "running")
    place.cli("stop", "--grace", "2", run)
    shown = place.json("show", run)
    assert [node["state"] for node in shown["nodes"]] == ["stopped", "stopped"]
    cluster.await_empty_queue()


def test_a_job_begins_after_another_of_the_same_login_node(place: Place) -> None:
    first = submit(place, job(place, WHO, 1), "--set", "slurm.partition=down")
    second = submit(place, job(place, WHO, 1), "--after-any", first)
    wait_for(
        lambda: "(Dependency)" in (place.json("show", second).get("reason") or ""), "a dependency"
    )
    refused = place.cli("run", place.job("print(1)", name="here"), "--after", first, code=2).stderr
    assert f"{first} is a job of Slurm" in refused
    place.cli("stop", first)
    assert place.json("wait", second)["state"] == "succeeded"
    again = place.cli("remote", "--host", "cluster", "job.yaml", "--after", first, code=3).stderr
    assert f"{first} has ended: stopped" in again


def test_a_run_that_waits_says_for_what(place: Place) -> None:
    run = submit(place, job(place, WHO), "--set", "slurm.partition=down")
    status = wait_for(
        lambda: (s := place.json("show", run)).get("reason") and s, "a reason of Slurm"
    )
    assert (status["state"], "(PartitionDown)" in status["reason"]) == ("pending", True)
    place.cli("stop", run)
    shown = place.json("show", run)
    assert (shown["state"], shown["reason"]) == ("stopped", "cancelled before it started")


def test_what_slurm_refuses_leaves_nothing_and_names_the_partitions(
    place: Place, server: Sshd
) -> None:
    words = ("--set", "slurm.partition=gpus")
    before = set(server.home().glob(".safelaunch/runs/*"))
    refused = place.cli("remote", "--host", "cluster", job(place, WHO), *words, code=3)
    text = " ".join(refused.stderr.split())
    assert "error: cluster: Slurm does not accept the job" in text
    assert "partitions: " in text
    assert "(check slurm-request)" in text  # before anything was sent there
    assert not list(server.home().rglob("train.py"))
    assert place.json("ps")["runs"] == []
    assert set(server.home().glob(".safelaunch/runs/*")) == before


def test_a_setup_that_fails_shows_its_log_here(place: Place) -> None:
    file = job(place, WHO, nodes=1, slurm={"setup": ["echo no such module; exit 1"]})
    run = submit(place, file)
    place.cli("wait", run, code=1)
    assert "no such module" in place.cli("logs", run).stdout


def test_a_rerun_submits_the_same_plan(place: Place) -> None:
    run = submit(place, job(place, WHO))
    place.cli("wait", run)
    again = place.cli("rerun", "--follow", run)
    lines = {line.partition("| ")[2] for line in again.stdout.splitlines()}
    assert "[1] rank 1 of 2 127.0.0.1" in lines


def test_a_secret_reaches_the_ranks_and_nothing_that_slurm_shows(
    place: Place, cluster: Slurm, server: Sshd
) -> None:
    place.env["API_KEY"] = "s3cr3t-of-the-test"
    program = "import os\nprint('length', len(os.environ['API_KEY']))\n" + FOREVER
    run = submit(place, job(place, program, nodes=1, env_from=["API_KEY"]), "--yes")
    wait_for(lambda: "length 18" in place.cli("logs", run, code=None).stdout, "log of the rank")
    number = cluster.queue().split()[0]
    shown = cluster.run("scontrol", "--details", "show", "job", number)
    script = cluster.run("scontrol", "write", "batch_script", number, "-")
    own = [path for path in place.root.rglob("*") if path.is_file()]
    remote = [p for p in server.home().rglob(f"runs/{run}/**/*") if p.is_file() and public(p)]
    leaks = [path for path in (*own, *remote) if b"s3cr3t" in path.read_bytes()]
    place.cli("stop", "--grace", "1", run)
    assert ("s3cr3t" in shown + script, leaks) == (False, [])
    left = [path for path in server.home().rglob(f"runs/{run}/**/*") if path.is_file()]
    assert not [path for path in left if b"s3cr3t" in path.read_bytes()]


def public(path: Path) -> bool:
    """Whether other users may read a file."""
    return bool(path.stat().st_mode & 0o077)


def wrapper(place: Place, text: str) -> Path:
    """Let a script of the site start Slurm's programs, and return its path."""
    script = place.root / "site-wrapper"
    script.write_text(text)
    for path in (script, script.parent):
        path.chmod(0o755)
    file = place.home / "hosts.yaml"
    hosts = json.loads(file.read_text())
    block = hosts["hosts"]["cluster"]["slurm"]
    block["prefix"] = [str(script), *block["prefix"]]
    file.write_text(json.dumps(hosts))
    return script


def slow_sbatch(place: Place) -> Path:
    """Let sbatch take its time, and return the path of the file that it begins with."""
    return wrapper(place, SLOW).with_suffix(".began")


def test_a_list_of_many_runs_asks_slurm_once(place: Place) -> None:
    calls = wrapper(place, LOG).with_suffix(".calls")
    file = job(place, WHO)
    runs = [submit(place, file, "--set", "slurm.partition=down") for _ in range(3)]
    calls.write_text("")
    listed = place.json("ps")["runs"]
    pending = {run["id"] for run in listed if run["state"] == "pending"}
    assert pending == set(runs)  # of one second the order is by chance
    programs = [word for line in calls.read_text().splitlines() for word in line.split()]
    # of jobs of other tests that ended a short time ago sacct is asked, once for all too
    assert (programs.count("squeue"), programs.count("sacct") <= 1) == (1, True)
    for run in runs:
        place.cli("stop", run)


def test_a_start_that_ctrl_c_interrupts_leaves_no_job(place: Place, cluster: Slurm) -> None:
    began = slow_sbatch(place)
    command = place.popen("remote", "--host", "cluster", job(place, WHO))
    wait_for(began.exists, "sbatch under way")
    command.send_signal(signal.SIGINT)
    assert command.wait(DEADLINE) == 130
    assert cluster.queue() == ""
    assert place.json("ps")["runs"] == []


def test_a_connection_that_is_cut_while_it_submits_submits_once(
    place: Place, cluster: Slurm, server: Sshd
) -> None:
    began = slow_sbatch(place)
    with Faults(server.address, server.port) as proxy:
        config = server.ssh_config("login1").replace(str(server.port), str(proxy.port))
        place.ssh_config(f"{config}  HostKeyAlias [{server.address}]:{server.port}\n")
        command = place.popen("remote", "--host", "cluster", "--json", job(place, FOREVER, nodes=1))
        wait_for(began.exists, "sbatch under way")
        proxy.reset()
        out, err = command.communicate(timeout=DEADLINE)
        assert out, err
        run = json.loads(out)["id"]
        assert [line.split()[2] for line in cluster.queue().splitlines()] == [f"safelaunch:{run}"]
        place.cli("stop", "--grace", "1", run)


def test_a_login_node_that_is_away_leaves_the_state_unknown_and_the_job_alone(
    place: Place, cluster: Slurm, server: Sshd
) -> None:
    run = submit(place, job(place, FOREVER, nodes=1))
    place.ssh_config("Host login1\n  HostName 127.0.0.1\n  Port 1\n")
    assert place.json("show", run)["state"] == "unknown"
    place.ssh_config(server.ssh_config("login1"))
    assert place.json("show", run)["state"] in {"pending", "running"}
    place.cli("stop", "--grace", "1", run)
    cluster.await_empty_queue()


def test_another_client_sees_the_run_and_stops_it(
    place: Place, cluster: Slurm, tmp_path: Path
) -> None:
    run = submit(place, job(place, FOREVER))
    env = {**place.env, "SAFELAUNCH_HOME": str(tmp_path / "other")}
    hosts = str(place.home / "hosts.yaml")
    listed = place.json("ps", "--host", "cluster", "--hosts", hosts, env=env)["runs"]
    assert run in [entry["id"] for entry in listed]
    place.cli("stop", "--grace", "1", run, env=env)
    assert place.json("show", run, env=env)["state"] == "stopped"
    cluster.await_empty_queue()


def test_a_host_without_slurm_says_where_sbatch_may_be(place: Place) -> None:
    place.home.joinpath("hosts.yaml").write_text('{"hosts": {"cluster": {"ssh": "login1"}}}')
    words = ("--on", "slurm", "--set", "slurm.prefix=[env,PATH=/nowhere]")
    assert (
        "sbatch" in place.cli("remote", "--host", "cluster", job(place, WHO), *words, code=3).stderr
    )
    words = ("--on", "slurm", "--set", "slurm.prefix=[no-such-wrapper]")
    refused = place.cli("remote", "--host", "cluster", job(place, WHO), *words, code=2)
    assert "error: cluster: no `no-such-wrapper` on PATH" in refused.stderr
    assert "hosts file of cluster: slurm: {prefix: " in refused.stderr


def results(place: Place, *words: str, code: int | None = None) -> dict[str, dict[str, str]]:
    """Return {id: result} of a check of the login node."""
    answers = place.json("check", "--host", "cluster", "--all", *words, code=code)["results"]
    return {result["id"]: result for result in answers}


def test_a_check_looks_at_a_node_and_asks_whether_slurm_takes_the_job(place: Place) -> None:
    checks = results(place, job(place, WHO))
    statuses = {name: checks[name]["status"] for name in ("slurm-request", "slurm-node")}
    assert statuses == {"slurm-request": "ok", "slurm-node": "ok"}
    assert checks["slurm-shared"]["status"] == "ok"
    assert checks["interpreter"]["status"] == "ok"


def test_a_check_without_a_job_asks_slurm_for_what_the_host_says(place: Place) -> None:
    checks = results(place)
    statuses = {name: checks[name]["status"] for name in ("slurm-request", "slurm-node")}
    assert statuses == {"slurm-request": "ok", "slurm-node": "ok"}
    assert "interpreter" in checks


def test_a_check_of_a_job_that_slurm_does_not_take_names_the_partitions(place: Place) -> None:
    checks = results(place, job(place, WHO), "--set", "slurm.partition=gpus", code=3)
    assert list(checks) == ["slurm-request"]
    assert checks["slurm-request"]["hint"].startswith("partitions: ")


def test_a_log_is_followed_over_two_lives_of_a_job_without_a_lost_or_doubled_line(
    place: Place, cluster: Slurm
) -> None:
    run = submit(place, job(place, STEPS, recovery=RESUME))
    follow = place.popen("logs", "-f", run)
    # of both ranks: the second may be later, and has no checkpoint of its own
    wait_for(lambda: place.cli("logs", run, code=None).stdout.count("step 3/6") == 2, "step 3")
    number = cluster.queue().split()[0]
    cluster.run("scontrol", "requeue", number)
    cluster.start_again(number)
    out, _ = follow.communicate(timeout=DEADLINE)
    lines = [line.partition("| ")[2] for line in out.decode().splitlines()]
    steps = sorted(line for line in lines if "] step " in line)
    assert steps == [f"[{rank}] step {step}/6" for rank in range(2) for step in range(1, 7)]
    assert place.json("show", run)["state"] == "succeeded"
