"""A run whose machines an engine chooses, without the engine: this machine is all of its nodes.

The variables are those that srun sets for its tasks (Slurm 22.05, srun(1)).
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.plan.build import make_plan
from safelaunch.runtime.engines import submission
from safelaunch.runtime.records import EngineStart, StopRequest
from safelaunch.start import engine
from safelaunch.start.caller import caller
from safelaunch.start.local_probe import LocalProbe
from safelaunch.start.resume import CheckpointChoice
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.workspace import Place


class EngineRun:
    """A run that has been submitted to an engine; `start` makes this machine one of its nodes."""

    def __init__(self, place: Place, job: str, nodes: int = 2, submit: str = "echo 7") -> None:
        """Write the run directories of a job; `submit` is what stands in for sbatch."""
        self.place = place
        hosts = {f"h{n}": {"address": f"h{n}", "workdir": str(place.project)} for n in range(nodes)}
        place.write("hosts.yaml", json.dumps({"hosts": hosts}))
        flags = Flags(remote=True, hosts_file="hosts.yaml", hosts=tuple(hosts))
        plan = make_plan(resolve_file(job, flags, str(place.project)))
        planned = [replace(node, host="localhost") for node in plan.nodes]
        plan = replace(plan, nodes=tuple(planned))
        by = caller(place.env)
        self.id = by.run_id(plan.name)
        probe = LocalProbe(plan.nodes[0], place.env)
        report = probe.report(by.home)
        for command in probe.backends.values():  # an engine is asked for no terminal
            command.result()
        start = EngineStart(name="slurm", can_resume=True, notice=60.0)
        choice = engine.StartChoice(CheckpointChoice(plan), {})
        request = engine.node_requests(
            start, report, by, choice, run_id=self.id, environ=by.environ
        )
        words = {
            **request.words,
            "script": [str(place.home / "runs" / self.id / "batch.sh"), "#!/bin/bash\n"],
            "submit": ["sh", "-c", submit],
            "comment": f"safelaunch:{self.id}",
        }
        submission.submit(words, request.data, by.environ, by.home)
        self.folder = Path(by.home) / "runs" / self.id
        self.count = nodes

    def node(self, number: int) -> Path:
        """Return the folder of a node."""
        return self.folder / f"node-{number}"

    def start(
        self, number: int, life: int = 0, variables: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        """Start what the engine starts on a node, with more or other variables of srun's."""
        names = ",".join(["localhost"] * self.count)
        environ = {
            "PATH": self.place.env["PATH"],
            "SLURM_JOB_ID": "7",
            "SLURM_NTASKS": str(self.count),
            "SLURM_NODEID": str(number),
            "SLURM_STEP_NODELIST": names,
            "SLURM_RESTART_COUNT": str(life),
            "SLURM_CPUS_PER_TASK": "1",
            **variables,
        }
        program = self.node(0) / "runtime/safelaunch/runtime/engines/join.py"
        argv = [sys.executable, "-I", "-S", "-B", str(program), str(self.folder)]
        log = (self.folder / f"step-{number}.log").open("ab")
        with log:
            process = subprocess.Popen(argv, env=environ, cwd=self.folder, stdout=log, stderr=log)
        self.place.started.append(process)
        return process

    def start_all(self, life: int = 0) -> list[subprocess.Popen[bytes]]:
        """Start all nodes."""
        return [self.start(number, life) for number in range(self.count)]

    def output(self, number: int = 0) -> str:
        """Return what a node has written into the job's output."""
        return (self.folder / f"step-{number}.log").read_text()

    def log(self, number: int = 0, attempt: int = 1) -> str:
        """Return a node's log; "" before there is one."""
        path = self.node(number) / "logs" / f"attempt-{attempt}" / "combined.log"
        return path.read_text() if path.exists() else ""

    def wait_for_text(self, text: str, number: int = 0, attempt: int = 1) -> str:
        """Wait until a node's log holds a text, and return the log."""
        what = f"{text!r} in attempt {attempt} of node {number}"
        wait_for(lambda: text in self.log(number, attempt), what)
        return self.log(number, attempt)

    def status(self, number: int = 0) -> dict[str, Any]:
        """Return status.json of a node."""
        status = json.loads((self.node(number) / "status.json").read_text())
        assert isinstance(status, dict)
        return status

    def events(self, number: int = 0) -> list[str]:
        """Return the kinds of a node's events so far."""
        path = self.node(number) / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["event"] for line in lines]

    def ask_to_stop(self) -> None:
        """Write a stop request for each node."""
        for number in range(self.count):
            StopRequest(grace=2.0, origin="a test").write(str(self.node(number)))

    def warn_of_time_limit(self, life: int = 0) -> None:
        """Warn of the time limit, as the script of the job does."""
        (self.folder / f"time-limit.{life}").touch()


def ends(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """Return the exit codes of nodes, once all have ended."""
    wait_for(lambda: all(node.poll() is not None for node in processes), "end of all nodes")
    return [node.wait() for node in processes]
