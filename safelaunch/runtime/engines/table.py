"""The engines that can have a run: a module each, which answers the questions of `Engine`."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from safelaunch.runtime.engines.allocation import Allocation
    from safelaunch.runtime.engines.meaning import Meaning
    from safelaunch.runtime.records import EngineJob, Status

    class Engine(Protocol):
        """The questions about the jobs of an engine, which its module answers.

        An `Answer` is what the engine said about a job, None where it has no such job; only the
        module that gave it looks into it.
        """

        TITLE: str  # its name in messages
        LOG: str  # file of a run's folder with what the engine's own job has printed

        def check(self, request: Mapping[str, Any], environ: Mapping[str, str], /) -> None:
            """Raise StartFailed or SubmitError where it cannot be asked at all."""

        def names(
            self, request: Mapping[str, Any], environ: Mapping[str, str], /, *, with_limits: bool
        ) -> list[str]:
            """Return the names of what a job may be submitted to, or what it has."""

        def submit(
            self,
            request: Mapping[str, Any],
            environ: Mapping[str, str],
            on_start: Callable[[int], object],
            /,
        ) -> tuple[str, str]:
            """Submit the job of a request; return what it is called, and its cluster.

            `on_start` gets the pid of a program that submits it. Raises SubmitError, and
            UnclearSubmitError where the engine did not answer.
            """

        def trial(
            self, request: Mapping[str, Any], environ: Mapping[str, str], /
        ) -> dict[str, Any]:
            """Return what it says to a job that is not submitted."""

        def find(
            self, job: EngineJob, folder: str, environ: Mapping[str, str], /
        ) -> tuple[str, str] | None:
            """Return what the job of an interrupted start is called, and its cluster.

            Two empty texts: there is none. None: the engine does not answer.
            """

        def withdraw(self, job: EngineJob, folder: str, environ: Mapping[str, str], /) -> None:
            """Cancel a job that was just submitted, or may have been. Raises SubmitError."""

        def look(self, jobs: Mapping[str, EngineJob], home: str, /) -> Mapping[str, Any]:
            """Return {folder of a run: Answer} for jobs, by as few questions as can be."""

        def task(self, answer: Any, index: int, /) -> Any:
            """Return the Answer about one task of an array, of that about the whole."""

        def meaning(
            self, answer: Any, status: Status | None, life: int | None, now: float, /
        ) -> Meaning:
            """Return what an Answer and the status of a node mean.

            `life` is how often the job had been queued again when the node last joined.
            """

        def is_settled(self, answer: Any, now: float, /) -> bool:
            """Whether it has ended the job for good, so long ago that the nodes have said all."""

        def is_begun(self, job: EngineJob, folder: str, /) -> bool:
            """Whether supervisors may run: a request to stop reaches them, and they need time."""

        def cancel_waiting(self, job: EngineJob, /) -> None:
            """Cancel the tasks of an array that have not begun."""

        def with_tasks(
            self, request: Mapping[str, Any], numbers: Sequence[int], /
        ) -> Mapping[str, Any]:
            """Return a request of which only some tasks of its array are submitted."""

        def end(self, job: EngineJob, folder: str, /) -> tuple[bool, str]:
            """End a job: whether nothing of it is left, and what the user should know of it."""

        def shell(self, job: EngineJob, host: str, /) -> tuple[str, ...]:
            """Return the words that open a shell on a node within the job; () if it opens none."""

        def allocation(self, environ: Mapping[str, str], /) -> Allocation:
            """Return the machines of a job, by the variables on one of them. Raises JoinError."""

        def node_name(self, environ: Mapping[str, str], /) -> str:
            """Return its name of this machine."""


# engine, as run.json and `--on` have it -> its module in this package
_MODULES = {"slurm": "slurm.engine", "ray": "ray.engine"}


def has(name: str) -> bool:
    """Whether this version knows an engine, which a run may have from a later one."""
    return name in _MODULES


def load(name: str) -> Engine:
    """Return the answers of an engine's module. Raises ValueError for an unknown name."""
    if not has(name):
        raise ValueError(f"`{name}` is no engine that this version knows")
    module: Any = importlib.import_module(f"safelaunch.runtime.engines.{_MODULES[name]}")
    engine: Engine = module
    return engine
