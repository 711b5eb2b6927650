"""How the container of a node has ended, by its engine's word; and removing it.

The engine is asked once the supervisor is gone without having recorded an end. An engine that does
not answer has said nothing.
"""

# ruff: noqa: PLC0415 - json: a supervisor imports run_state, which imports this

from __future__ import annotations

import os
import time

from safelaunch.runtime import commands, processes
from safelaunch.runtime.records import ContainerEnd, Failure, RunRecord, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.records import ContainerStart

LIMIT = 10.0  # seconds for an answer of the engine
KILLED = 137  # exit code of a container that SIGKILL has ended
ENDED = ("succeeded", "failed", "stopped")
NO_CONTAINER = "no such"  # docker: No such container; podman: no such container, no such object
PAUSE = 0.1  # seconds between two questions whether it has ended
REMOVAL_LIMIT = 5.0  # seconds for the container to be removed, once the run has ended


def settle(
    node_dir: str, proof: str | None = None, *, is_late: bool = False
) -> ContainerEnd | None:
    """Record how the container ended, and remove it; None while it runs, or nobody knows.

    `proof` shows that memory was why the supervisor was killed. `is_late`: an engine that still
    says that it runs is wrong where its process is gone, as podman is once conmon was killed.
    """
    run = RunRecord.read(node_dir)
    if run is None or run.container is None:
        return None
    end = ContainerEnd.read(node_dir) or ContainerEnd()
    if end.state:
        return end
    answer = state(run.container)
    if answer is None:
        return None
    if answer.get("Running"):
        pid = _number(answer.get("Pid")) or 0
        if not is_late or processes.start_time(pid) is not None:
            return None
        answer = {"Error": f"{run.container.engine} has not noticed its end"}
    if answer:
        end.state, end.exit_code = "exited", _number(answer.get("ExitCode"))
        end.is_oom = end.exit_code == KILLED and bool(answer.get("OOMKilled") or proof)
        end.proof = proof or (f"OOMKilled of {run.container.engine}" if end.is_oom else None)
        if answer.get("Error"):
            end.error = str(answer["Error"])
    else:
        end.state = "removed"
        end.is_oom, end.proof = bool(proof), proof
    end.ended_at = time.time()
    try:
        end.write(node_dir)
        if end.is_oom:
            _record_failure(node_dir, run, end)
    except OSError:
        pass  # a full disk: the next look asks again, or says `lost`
    remove(run.container)
    return end


def remove(container: ContainerStart) -> None:
    """Remove a container, if it is there."""
    _call(container, "rm", "-f", container.name)


def reason(end: ContainerEnd, container: ContainerStart) -> str:
    """Return how a container ended that its supervisor says nothing of, for people."""
    if end.state == "removed":
        return f"the supervisor is gone: its container was removed ({container.engine} rm)"
    if end.exit_code == KILLED:
        return (
            f"the supervisor was killed with its container ({container.engine} kill, a stop of "
            f"{container.engine} itself, or kill -9), not for memory as far as that is known"
        )
    words = f": {end.error}" if end.error else ""
    return f"the supervisor is gone: its container exited with {end.exit_code}{words}"


def state(container: ContainerStart) -> dict[str, Any] | None:
    """Return the engine's `State` of a container; {} where there is none, None without answer."""
    import json

    result = _call(container, "inspect", "--type", "container", container.name)
    if result.code != 0:
        return {} if NO_CONTAINER in result.err.lower() and result.code > 0 else None
    try:
        answer = json.loads(result.out)[0]["State"]
    except (ValueError, LookupError, TypeError):
        return None
    return answer if isinstance(answer, dict) and answer else None


def signal_container(container: ContainerStart, name: str) -> bool:
    """Send a signal to the supervisor by its engine; False where that is refused."""
    return _call(container, "kill", "--signal", name, container.name).code == 0


def is_settling(node_dir: str) -> bool:
    """Whether the process that waits for the container has yet to record its end."""
    end = ContainerEnd.read(node_dir)
    if end is None or end.state or end.client is None:
        return False
    return processes.is_alive(end.client)


def await_removal(node_dir: str) -> None:
    """Wait until the container of a run that has ended is removed."""
    deadline = time.monotonic() + REMOVAL_LIMIT
    while not clean_up(node_dir):
        if time.monotonic() > deadline:
            settle(node_dir, is_late=True)
            return
        time.sleep(PAUSE)


def clean_up(node_dir: str) -> bool:
    """Remove the container of a run that has ended; return False while it may be there.

    The process that has waited for it does so, unless it was killed.
    """
    end = ContainerEnd.read(node_dir)
    if end is None or (end.client is not None and processes.is_alive(end.client)):
        return end is None
    return bool(end.state) or settle(node_dir) is not None


def _call(container: ContainerStart, *words: str) -> commands.CommandResult:
    environ = {**os.environ, **container.environ}
    return commands.run([container.engine, *words], environ=environ, limit=LIMIT)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _record_failure(node_dir: str, run: RunRecord, end: ContainerEnd) -> None:
    """Record that memory ended the run with its supervisor. Raises OSError."""
    status = Status.read(node_dir)
    if status is None or status.state in ENDED:
        return
    what = "the supervisor was killed with its container: out of memory"
    attempt = status.attempts[-1] if status.attempts else None
    failure = Failure(
        class_name="host-oom",
        role="root",
        host=run.hostname or "",
        time=end.ended_at,
        what=what,
        exit_code=end.exit_code,
        signal="SIGKILL",
        proof=end.proof,
        printed=False,
    )
    if attempt is not None:
        failure.attempt, attempt.state = attempt.attempt, "failed"
    failure.write(node_dir)
    status.state, status.exit_code, status.reason = "failed", end.exit_code, what
    status.ended_at = end.ended_at
    status.write(node_dir)
