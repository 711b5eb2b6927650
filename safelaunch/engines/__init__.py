"""What gives a job its machines, on the client's side: pure functions from a plan to a request.

An engine module answers the questions of `Engine`. A new engine is one module here with its line in
NAMES, and what is asked of it: a block of the schema, read by config/topology/requests.py.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.engines.submission import Reason, Submission
    from safelaunch.errors import SafelaunchError
    from safelaunch.model import Job, NodePlan, Origin, Plan, PlanWarning, Slot, Word
    from safelaunch.runtime.records import EngineStart

# engine -> its module in this package
NAMES: Mapping[str, str] = MappingProxyType(
    {"slurm": "slurm.engine", "kubernetes": "kubernetes.engine", "ray": "ray.engine"}
)


class Engine(Protocol):
    """The questions that an engine module answers about itself."""

    TITLE: str  # its name in messages
    REQUEST: str  # what is asked of it, as `--explain` calls that
    HOW_TO_SUBMIT: str  # a hint, where safelaunch itself does not; empty: it does
    PRINTS_FILE: bool  # `--dry-run` prints nothing but a file for another program
    ONE_SCRIPT: bool  # all nodes have one launch script, and safelaunch does not run on them
    RAY_CLUSTER: bool  # a job may have a Ray of its own there
    DEVICES: tuple[str, ...]  # variables by which it tells a node its GPUs

    def late_values(self, plan: Plan, /) -> Mapping[Slot, Word]:
        """Return what the script itself has in place of slots that a start would fill."""

    def first_lines(self, plan: Plan, node: NodePlan, script: str, /) -> Sequence[str]:
        """Return lines that work out these values, for the script of a node without them."""

    def warnings(self, job: Job, node: NodePlan, accelerator: str, /) -> Iterator[PlanWarning]:
        """Warn about what a job says itself and the engine decides, and what it does not ask."""

    def notes(self, job: Job, /) -> Iterator[str]:
        """Yield what of a job has no effect there."""

    def origins(self, plan: Plan, /) -> Iterator[tuple[str, Origin]]:
        """Yield what is asked of it, as text, each with its origin."""

    def file(self, plan: Plan, scripts: Sequence[str], /) -> str:
        """Return what `--dry-run` prints, for the launch scripts of the nodes."""

    def sections(self, plan: Plan, /) -> Iterator[tuple[str, str]]:
        """Yield what a start hands over, each part with its title, for people."""

    def start(self, plan: Plan, /) -> EngineStart:
        """Return how it starts the nodes. Where HOW_TO_SUBMIT is empty, as are those below."""

    def request(self, plan: Plan, place: Submission, /) -> dict[str, Any]:
        """Return what its module of the runtime takes to submit the job."""

    def secret(self, plan: Plan, /) -> str | None:
        """Return the name of the variable without which it cannot be asked."""

    def refusal(self, reason: Reason, /) -> SafelaunchError:
        """Return the error of a submission that has failed."""

    def to_json(self, plan: Plan, scripts: Sequence[str], /) -> dict[str, Any]:
        """Return what would be submitted, as plain data."""


@cache
def load(name: str) -> Engine:
    """Return the answers of an engine module."""
    return cast("Engine", importlib.import_module(f"safelaunch.engines.{NAMES[name]}"))


def node_name(engine: str, rank: int) -> str:
    """Return what stands for the name of a node that an engine will choose."""
    return "<node>" if load(engine).ONE_SCRIPT else f"<node-{rank}>"


def of_plan(plan: Plan) -> Engine | None:
    """Return what chooses the machines of a plan; None where its hosts are named."""
    return None if plan.engine is None else load(plan.engine.engine_name)
