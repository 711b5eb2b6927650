"""Ends, stops and preemptions of runs on a real Slurm; what must hold of each.

Used by `scripts/bench slurm`; tests/integration/slurm has a sample of them.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runtime import processes
from support.faults.kill_matrix import check, what_is_wrong
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.slurm import Slurm
    from support.workspace import Place

BLOCK = {"cpus_per_task": 1, "mem": "300MiB", "time": "10m"}
LIMIT = 240.0  # seconds for an end: a time limit is told up to a minute late
FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
OK = "print('up', flush=True)\n"
EXIT = "import sys\nsys.exit(3)\n"
SEGFAULT = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
ONE_RANK = """
import os, time
if os.environ["RANK"] == "1":
    raise KeyError("label")
time.sleep(600)
"""
MEMORY = """
import time
print("up", flush=True)
data = [bytearray(1 << 20) for _ in range(800)]
for part in data:
    part[::4096] = b"x" * 256
time.sleep(600)
"""
STEPS = """
import os, pathlib, sys, time
rank, begin = int(os.environ["RANK"]), 0
if len(sys.argv) > 1:
    begin = int(sys.argv[2].rsplit("-", 1)[1])
for step in range(begin + 1, 13):
    time.sleep(0.4)
    if rank == 0:
        folder = pathlib.Path(f"out/.new-{step}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.pt").write_bytes(b"weights")
        folder.rename(f"out/checkpoint-{step}")
        print(f"step {step}/12", flush=True)
"""
RESUME = {"checkpoint": "out/checkpoint-*", "resume_args": ["--resume", "{checkpoint}"]}
RESTARTS = """
import os, sys
print("up", flush=True)
print("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", file=sys.stderr)
os.abort()
"""


class Job:
    """A run that was submitted from a place to a cluster."""

    def __init__(
        self, place: Place, cluster: Slurm, program: str, *words: str, **keys: Any
    ) -> None:
        self.place, self.cluster = place, cluster
        place.env |= {"SLURM_CONF": str(cluster.config), "PATH": cluster.environ["PATH"]}
        block = {**BLOCK, **keys.pop("slurm", {})}
        nodes = keys.pop("nodes", 2)
        file = place.ranks(program, 1, nodes=nodes, slurm=block, profile="cpu", **keys)
        self.run = str(place.json("run", "--on", "slurm", file, *words)["id"])
        self.number = str(json.loads((place.node(self.run) / "engine.json").read_text())["job"])

    def wait_for_log(self, text: str) -> None:
        """Wait until the log of node 0 holds a text."""
        logs = self.place.home / "runs" / self.run / "node-0/logs"
        wait_for(lambda: any(text in p.read_text() for p in logs.glob("*/combined.log")), text)

    def shown(self) -> dict[str, Any]:
        """Return the run as `show` has it."""
        return self.place.json("show", self.run)

    def end(self) -> dict[str, Any]:
        """Return the run once it has ended."""
        self.place.cli("wait", self.run, code=None, timeout=LIMIT)
        return self.shown()

    def requeue(self) -> None:
        """Let Slurm queue the job again, and start it at once instead of after two minutes."""
        self.cluster.run("scontrol", "requeue", self.number)
        self.cluster.start_again(self.number)

    def state(self) -> str:
        """Return the state of the job in the queue, "" where it is none."""
        line = self.cluster.run("squeue", "--noheader", f"--jobs={self.number}", "--format=%T")
        return line.strip()

    def leaves_nothing(self) -> None:
        """Check that neither a job nor a process of the run is left."""
        wait_for(lambda: self.state() in ("", "COMPLETING"), "end of the job")
        check(processes.marked(self.run), {}, "processes of the run")


class End(NamedTuple):
    """How a job ends: what is done to it, and what must be shown; `code` of a refused start."""

    name: str
    act: Callable[[Place, Slurm], dict[str, Any]]
    state: str
    class_name: str | None = None

    def __str__(self) -> str:
        return self.name


def _plain(program: str, *words: str, **keys: Any) -> Callable[[Place, Slurm], dict[str, Any]]:
    return lambda place, cluster: Job(place, cluster, program, *words, **keys).end()


def _cancelled_while_it_runs(place: Place, cluster: Slurm) -> dict[str, Any]:
    job = Job(place, cluster, FOREVER)
    job.wait_for_log("up")
    cluster.run("scancel", job.number)
    return job.end()


def _cancelled_while_it_waits(place: Place, cluster: Slurm) -> dict[str, Any]:
    job = Job(place, cluster, FOREVER, slurm={"partition": "down"})
    cluster.run("scancel", job.number)
    return job.end()


def _requeued(place: Place, cluster: Slurm) -> dict[str, Any]:
    job = Job(place, cluster, STEPS, recovery=RESUME)
    job.wait_for_log("step 2/12")
    job.requeue()
    return job.end()


def _preempted(place: Place, cluster: Slurm) -> dict[str, Any]:
    job = Job(place, cluster, STEPS, recovery=RESUME)
    job.wait_for_log("step 2/12")
    _preempt(job)
    return job.end()


def _preempt(job: Job) -> None:
    urgent = ("--partition=urgent", "--nodes=2", "--exclusive")
    number = job.cluster.submit(*urgent, script="sleep 1")
    wait_for(lambda: job.state() == "PENDING" or not job.state(), "a job that was preempted")
    line = ("squeue", "--noheader", f"--jobs={number}", "--format=%T")
    wait_for(lambda: job.cluster.run(*line) == "", "end of the urgent job")
    if job.state():
        job.cluster.start_again(job.number)


def _node_down(place: Place, cluster: Slurm) -> dict[str, Any]:
    job = Job(place, cluster, FOREVER, slurm={"requeue": False})
    job.wait_for_log("up")
    cluster.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        return job.end()
    finally:
        state = cluster.run("sinfo", "--noheader", "--nodes=n2", "--format=%T")
        if "down" in state:  # else it has come back by itself
            cluster.run("scontrol", "update", "nodename=n2", "state=resume")


def _on_hold(place: Place, cluster: Slurm) -> dict[str, Any]:
    job = Job(place, cluster, FOREVER, slurm={"options": ["--hold"]})
    wait_for(lambda: job.shown().get("reason"), "a reason")
    shown = job.shown()
    place.cli("stop", job.run)
    return shown


def _dependency(place: Place, cluster: Slurm) -> dict[str, Any]:
    failed = cluster.submit(script="exit 3")
    return Job(place, cluster, OK, slurm={"options": [f"--dependency=afterok:{failed}"]}).end()


def _refused(setting: str) -> Callable[[Place, Slurm], dict[str, Any]]:
    def act(place: Place, cluster: Slurm) -> dict[str, Any]:
        place.env |= {"SLURM_CONF": str(cluster.config), "PATH": cluster.environ["PATH"]}
        file = place.ranks(OK, 1, nodes=2, slurm=BLOCK, profile="cpu")
        words = ("run", "--on", "slurm", file, "--set", setting)
        error = place.cli(*words, code=3).stderr
        check("error: Slurm does not accept the job" in error, True, error)
        check(list((place.home / "runs").iterdir()), [], "folders of a job that was refused")
        return {"state": "refused"}

    return act


SHORT = {"time": "1m", "signal": "20s", "requeue": False}
ENDS = (
    End("ok", _plain(OK), "succeeded"),
    End("exit code 3", _plain(EXIT), "failed"),
    End("SIGSEGV", _plain(SEGFAULT), "failed"),
    End("one rank of two fails", _plain(ONE_RANK), "failed", "user-code-exception"),
    End("more memory than asked for", _plain(MEMORY, nodes=1), "failed", "host-oom"),
    End("cancelled while it runs", _cancelled_while_it_runs, "stopped"),
    End("cancelled while it waits", _cancelled_while_it_waits, "stopped"),
    End("requeued", _requeued, "succeeded"),
    End("preempted", _preempted, "succeeded"),
    End("node down", _node_down, "failed"),
    End("time limit", _plain(FOREVER, slurm=SHORT), "failed", "time-limit"),
    End("held", _on_hold, "pending"),
    End("dependency that is never satisfied", _dependency, "stopped"),
    End("setup fails", _plain(OK, slurm={"setup": ["exit 3"], "requeue": False}), "failed"),
    *(
        End(f"refused: {setting}", _refused(setting), "refused")
        for setting in (
            "slurm.partition=nowhere",
            "nodes=40",
            "slurm.mem=1TiB",
            "slurm.cpus_per_task=99",
            "slurm.time=9d",
            "slurm.reservation=none",
            "slurm.constraint=moon",
        )
    ),
)


def run_end(case: End, cluster: Slurm) -> str | None:
    """Return what is wrong with the end of a job, None where it is as it must be."""

    def act(place: Place) -> None:
        shown = case.act(place, cluster)
        check(shown["state"], case.state, f"state, {shown.get('reason')}")
        if case.class_name is not None:
            failure = shown["failure"] or {}
            check(failure.get("class"), case.class_name, "class of the failure")

    return what_is_wrong(act)


class Stop(NamedTuple):
    """A moment at which a run is stopped: seconds after `until` is true of it."""

    name: str
    seconds: float
    program: str = FOREVER
    block: tuple[tuple[str, object], ...] = ()
    text: str | None = None  # of its log, from which the seconds count

    def __str__(self) -> str:
        return f"{self.name} + {self.seconds:g} s"


STOPS = (
    *(Stop("pending", s, block=(("partition", "down"),)) for s in (0.0, 1.0)),
    Stop("held", 0.5, block=(("options", ["--hold"]),)),
    *(Stop("submitted", s) for s in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0)),
    *(Stop("running", s, text="up") for s in (0.0, 0.5, 1.5)),
    *(Stop("restarting", s, RESTARTS, text="up") for s in (0.3, 0.8, 1.5)),
    *(Stop("requeued", s, text="up") for s in (0.0, 1.0)),
)


def run_stop(case: Stop, cluster: Slurm) -> str | None:
    """Return what a stop at a moment leaves, None where it leaves nothing."""

    def act(place: Place) -> None:
        keys = (
            {"recovery": {"backoff": "5s", "max_restarts": 3}} if case.name == "restarting" else {}
        )
        job = Job(place, cluster, case.program, slurm=dict(case.block), **keys)
        if case.text is not None:
            job.wait_for_log(case.text)
        if case.name == "requeued":
            cluster.run("scontrol", "requeue", job.number)
        began = time.monotonic()
        wait_for(lambda: time.monotonic() >= began + case.seconds, "the moment")
        place.cli("stop", "--grace", "2", job.run, timeout=LIMIT)
        check(job.shown()["state"], "stopped", "state")
        job.leaves_nothing()

    return what_is_wrong(act)


def run_preemption(number: int, cluster: Slurm) -> str | None:
    """Return what is wrong with a run that is preempted at a random moment."""

    def act(place: Place) -> None:
        job = Job(place, cluster, STEPS, recovery=RESUME)
        step = random.Random(number).randrange(1, 11)  # noqa: S311 - no secret
        job.wait_for_log(f"step {step}/12")
        _preempt(job)
        shown = job.end()
        check(shown["state"], "succeeded", f"state, {shown.get('reason')}")
        folders = {path.name for path in (place.project / "out").iterdir()}
        check(folders - {f".new-{n}" for n in range(13)}, {
            f"checkpoint-{n}" for n in range(1, 13)
        }, "checkpoints")  # fmt: skip
        job.leaves_nothing()

    return what_is_wrong(act)
