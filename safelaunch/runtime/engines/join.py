"""Makes one machine of an engine's allocation a node of a run, and becomes its supervisor.

    python -I -S -B join.py RUN_FOLDER

The engine runs it once on each machine. Only here are the values known that a plan leaves open:
which node this is, where node 0 is reached, over which network card, and how many cores there are.
The files of the start have placeholders for them, in `unbound/`, so that a run which the engine
starts again, on other machines, is filled in anew.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from types import MappingProxyType

# the package is two folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import PLACE, json_files, processes
from safelaunch.runtime.engines import addresses, table
from safelaunch.runtime.engines.allocation import JoinError
from safelaunch.runtime.preconditions import PreconditionFailed, earlier_runs
from safelaunch.runtime.progress import checkpoints
from safelaunch.runtime.records import (
    EngineJob,
    EngineMeeting,
    EngineStart,
    JobEnvironment,
    PeersAddress,
    RunRecord,
    Status,
)
from safelaunch.runtime.start import placeholders, start_probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.runtime.engines.allocation import Allocation

MEETING_LIMIT = 180.0  # seconds: a shared file system may show a new file late
MEETING_PAUSE = 0.1
SEED = 997  # between the ports that are searched for the ranks and for the supervisors


def main(folder: str) -> int:
    """Join the run in a folder: does not return where the supervisor starts."""
    os.umask(0o077)
    name = os.uname().nodename
    try:
        engine = table.load(read_start(folder, 0)[1].name)
        name = engine.node_name(os.environ)
        allocation = engine.allocation(os.environ)
        node_dir = join(folder, allocation)
        environ = job_environ(node_dir, allocation.environ, read_start(folder, 0)[1])
    except (JoinError, OSError, ValueError) as e:
        sys.stderr.write(f"safelaunch: {name} cannot join the run in {folder}: {e}\n")
        return 1
    argv = supervisor_argv(node_dir)
    os.execve(sys.executable, argv, environ)  # noqa: S606 - no shell
    return 1


def supervisor_argv(node_dir: str) -> list[str]:
    """Return the words that start the supervisor of a node."""
    program = os.path.join(node_dir, PLACE, "supervise", "supervisor.py")
    return [sys.executable, "-I", "-S", "-B", program, node_dir]


def read_start(folder: str, node: int) -> tuple[RunRecord, EngineStart]:
    """Return run.json of a node, and how its engine starts it. Raises JoinError."""
    node_dir = os.path.join(folder, f"node-{node}")
    run = RunRecord.read(node_dir)
    if run is None or run.engine is None:
        raise JoinError(
            f"no run.json in {node_dir}: does this machine mount that file system?"
            " SAFELAUNCH_HOME must be in a folder that all nodes share"
        )
    return run, run.engine


def join(
    folder: str, allocation: Allocation, more: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Write what the supervisor of this node needs; return the node's folder.

    `more` are further values for placeholders. Raises JoinError, OSError, ValueError.
    """
    node_dir = os.path.join(folder, f"node-{allocation.node}")
    run, engine = read_start(folder, allocation.node)
    if len(run.hosts) != len(allocation.nodes):
        raise JoinError(f"the run has {len(run.hosts)} nodes, the job {len(allocation.nodes)}")
    engine.life, engine.is_joined = allocation.life, True
    meeting = _meeting(folder, run, allocation)
    engine.attempt, engine.port = meeting.attempt, meeting.port
    engine.checkpoint = meeting.checkpoint
    run.hosts, run.hostname = list(allocation.nodes), allocation.nodes[allocation.node]
    run.starter = processes.identity(os.getpid())
    values = {**_values(meeting, run, allocation), **more}
    try:
        values.update(earlier_runs.outputs(run, os.path.dirname(folder), engine.placeholders))
    except PreconditionFailed as e:
        raise JoinError(e.failure.what) from e
    if "python" in engine.placeholders:
        run.python = sys.executable
    placeholders.fill(node_dir, engine.placeholders, values)
    if len(run.hosts) > 1:
        peers = PeersAddress(address=meeting.address, port=meeting.messages, token=meeting.token)
        peers.write(node_dir)
    run.write(node_dir)
    _name_job(node_dir, allocation.job)
    return node_dir


def _name_job(node_dir: str, name: str) -> None:
    """Write down what the engine calls the job, where the start was interrupted before."""
    job = EngineJob.read(node_dir)  # on node 0 only
    if job is not None and not job.job:
        job.job = name
        job.write(node_dir)


def _meeting(folder: str, run: RunRecord, allocation: Allocation) -> EngineMeeting:
    """Return what node 0 has chosen for all nodes; node 0 itself chooses and writes it."""
    first = os.path.join(folder, "node-0")
    path = os.path.join(first, f"meeting.{allocation.life}.json")
    if allocation.node == 0:
        meeting = _choose(folder, run, allocation)
        json_files.write_json(path, meeting.to_json())
        return meeting
    deadline = time.monotonic() + MEETING_LIMIT
    while time.monotonic() < deadline:
        data = json_files.read_json(path)
        if data is not None:
            return EngineMeeting.from_json(data)
        time.sleep(MEETING_PAUSE)
    raise JoinError(
        f"node 0 ({allocation.nodes[0]}) has not written {path} within {MEETING_LIMIT:.0f} s"
    )


def _choose(folder: str, run: RunRecord, allocation: Allocation) -> EngineMeeting:
    """Choose address, ports, attempt and checkpoint of this life, on node 0."""
    seed = os.getpid() * 31
    port, messages = start_probe.free_port(seed), start_probe.free_port(seed + SEED)
    if port is None or messages is None:
        raise JoinError("no free port")
    numbers = [0]
    for node in range(len(run.hosts)):
        status = Status.read(os.path.join(folder, f"node-{node}")) or Status()
        numbers += [attempt.attempt for attempt in status.attempts]
    checkpoint = run.resume_checkpoint
    policy = run.recovery
    if allocation.life and policy is not None and policy.checkpoint is not None:
        checkpoint = checkpoints.common([checkpoints.whole(policy.checkpoint, run.cwd or "/")[0]])
    return EngineMeeting(
        address=addresses.of_node_0(allocation),
        port=port,
        messages=messages,
        token=secrets.token_hex(16),
        attempt=max(numbers) + 1,
        checkpoint=checkpoint,
    )


def _values(meeting: EngineMeeting, run: RunRecord, allocation: Allocation) -> dict[str, str]:
    """Return the values for the placeholders, by the names that run.json has for them."""
    cores = start_probe.usable_cores()
    if allocation.cores is not None:
        cores = min(cores, allocation.cores)
    return {
        "master-addr": meeting.address,
        "port": str(meeting.port),
        "interface": addresses.interface(meeting.address),
        "threads": str(max(1, cores // (run.ranks or 1))),
        # of an image, into which the login node does not look
        "python": sys.executable,
        "prefix": os.path.dirname(os.path.dirname(sys.executable)),
    }


def job_environ(node_dir: str, own: Mapping[str, str], engine: EngineStart) -> dict[str, str]:
    """Return the environment of the supervisor: the caller's, and over it what the engine sets.

    In a container it is that of the image, and over it what the job takes of the caller's.
    """
    saved = JobEnvironment.read(node_dir) or JobEnvironment()
    if engine.image:
        return {**own, **saved.variables, "HOME": engine.home}
    return {**saved.variables, **own}


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
