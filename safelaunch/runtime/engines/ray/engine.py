"""What Ray is to a run: the answers of `table.Engine`."""

from __future__ import annotations

import os

from safelaunch.runtime.engines.ray import allocation as actor
from safelaunch.runtime.engines.ray import jobs, query
from safelaunch.runtime.engines.ray import meaning as ray
from safelaunch.runtime.engines.ray import submit as interface
from safelaunch.runtime.records import RunRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from safelaunch.runtime.engines.allocation import Allocation
    from safelaunch.runtime.engines.meaning import Meaning
    from safelaunch.runtime.engines.ray.jobs import RayJob
    from safelaunch.runtime.records import EngineJob, Status

TITLE = "Ray"
LOG = ray.LOG


def check(request: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise UnreachableEngine where no Ray answers."""
    interface.check(request, environ)


def names(
    _request: Mapping[str, Any], _environ: Mapping[str, str], *, with_limits: bool
) -> list[str]:
    """Return nothing: a Ray has no partitions."""
    del with_limits
    return []


def submit(
    request: Mapping[str, Any], environ: Mapping[str, str], _on_start: Callable[[int], object]
) -> tuple[str, str]:
    """Post the job of a request; return its id and the address. Raises SubmitError."""
    return interface.submit(request, environ)


def trial(request: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return whether a Ray answers, and what its machines have altogether."""
    return interface.capacity(request, environ)


def find(job: EngineJob, folder: str, _environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return id and address of a job, which is called as its run."""
    return interface.find(job, folder)


def withdraw(job: EngineJob, folder: str, _environ: Mapping[str, str]) -> None:
    """Stop a job. Raises SubmitError."""
    interface.withdraw(job, folder)


def look(runs: Mapping[str, EngineJob], home: str) -> Mapping[str, RayJob | None]:
    """Return {folder: job} for runs, with one question for each address."""
    return query.look(runs, home)


def meaning(answer: RayJob | None, status: Status | None, _life: int | None, now: float) -> Meaning:
    """Return what a job and the status of a node mean."""
    return ray.meaning(answer, status, now)


def is_settled(answer: RayJob | None, now: float) -> bool:
    """Whether Ray has ended the job, and long ago."""
    if answer is None:
        return True
    is_end = answer.state in jobs.ENDS
    return is_end and answer.ended_at is not None and now - answer.ended_at > ray.SETTLING


def is_begun(job: EngineJob, folder: str) -> bool:
    """Whether a node has joined, and Ray still has the job: before, only the driver runs."""
    names = [name for name in os.listdir(folder) if name.startswith("node-")]
    runs = [RunRecord.read(os.path.join(folder, name)) for name in names]
    joined = [run for run in runs if run is not None and run.engine is not None]
    has_joined = any(run.engine is not None and run.engine.is_joined for run in joined)
    return has_joined and interface.state(job, folder) not in ("", *jobs.ENDS)


def end(job: EngineJob, folder: str) -> tuple[bool, str]:
    """Stop a job."""
    return interface.end(job, folder)


def shell(_job: EngineJob, _host: str) -> tuple[str, ...]:
    """Return nothing: Ray opens no shell."""
    return ()


def allocation(environ: Mapping[str, str]) -> Allocation:
    """Return the nodes of the job that this process is on. Raises JoinError."""
    return actor.of_actor(environ)


def node_name(environ: Mapping[str, str]) -> str:
    """Return Ray's name of this machine."""
    return actor.node_name(environ)
