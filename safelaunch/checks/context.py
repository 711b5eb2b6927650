"""What checks look at: a job with its plan, the machines that it would run on, and the project."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks.answers import NotKnown, Question
from safelaunch.checks.project_files import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Host, Job, NodePlan, Plan, Profile


class Ways(NamedTuple):
    """How the machines reach each other: the address and the interface of each, or what fails."""

    error: str | None = None
    hint: str = ""
    addresses: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """All that a check may know. Without a job `resolved` and `plan` are None.

    In their paths `~/` stands for the home folder of a host.
    """

    resolved: Resolved | None = None
    plan: Plan | None = None
    sites: tuple[Site, ...] = ()
    project: str | None = None  # the project's folder on this machine
    shown: tuple[str, ...] = ()  # and where it lies on each site
    environ: Mapping[str, str] = field(default_factory=dict)  # of whoever starts the job
    is_here: bool = True  # the job runs on this machine
    routes: Ways | None = None  # between several machines; None: not tried
    shared: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)  # path -> ranks
    is_quick: bool = False

    @cached_property
    def reading(self) -> Reading:
        """What is read of the project."""
        job = self.resolved.job if self.resolved is not None else None
        return Reading(job, self.here, is_quick=self.is_quick)

    @property
    def job(self) -> Job:
        """The job. Only for checks that have one."""
        if self.resolved is None:
            raise NotKnown("there is no job")
        return self.resolved.job

    @property
    def pythonpath(self) -> tuple[str, ...]:
        """The folders of the job's PYTHONPATH. Only for checks that have a job."""
        return tuple(map(str, self.job.pythonpath))

    def here(self, path: str, rank: int = 0) -> str | None:
        """Return where a planned path lies on this machine; None for one of the host's own.

        Relative paths begin at the job's working folder.
        """
        if self.plan is None or self.project is None:
            return None
        if not path.startswith("~"):
            path = posixpath.join(str(self.plan.nodes[rank].cwd), path)
        path = posixpath.normpath(path)
        if self.is_here:
            return path
        root = self.shown[rank]
        if path != root and not path.startswith(root.rstrip("/") + "/"):
            return None
        return os.path.normpath(os.path.join(self.project, posixpath.relpath(path, root)))


@dataclass(frozen=True, eq=False)
class Site:
    """A machine, as far as it is known. Without a job `node` is None."""

    host: Host
    profile: Profile | None = None
    node: NodePlan | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # hostfacts.facts.from_probe
    answers: Mapping[Question, Mapping[str, Any]] = field(default_factory=dict)
    case: Case = field(default_factory=Case, repr=False)

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.host.name

    @property
    def rank(self) -> int:
        """The rank of the node; 0 without a job."""
        return self.node.node_rank if self.node is not None else 0

    @property
    def plan(self) -> NodePlan:
        """What the machine would run. Only for checks that have a job."""
        if self.node is None:
            raise NotKnown("there is no job")
        return self.node

    @property
    def interpreter(self) -> str | None:
        """The path of the interpreter that runs the job there; None: the one that is found."""
        of = self.host.interpreter if self.node is None else self.node.interpreter
        return None if of is None or of.path is None else str(of.path)

    @property
    def cwd(self) -> str:
        """The job's working directory there. Only for checks that have a job."""
        return str(self.plan.cwd)

    def told(self, *question: Any) -> Any:
        """Return the answer to a question of `asks`. Raises NotKnown."""
        answer = self.answers.get(question)
        if answer is None:
            raise NotKnown("it was not asked")
        if "skip" in answer:
            raise NotKnown(str(answer["skip"]))
        return answer["value"]

    def fact(self, *keys: str) -> Any:
        """Return a fact by its keys. Raises NotKnown where it is not known."""
        found = self.known(*keys)
        if found is None:
            skipped = self.facts.get("skipped") or {}
            why = next((skipped[key] for key in keys if key in skipped), None)
            raise NotKnown(why or f"`{'.'.join(keys)}` of the host is not known")
        return found

    def known(self, *keys: str) -> Any:
        """Return a fact by its keys; None where it is not known."""
        found: Any = self.facts
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    @cached_property
    def ranks(self) -> int | None:
        """The processes that the job starts here: one for each card where it says no number."""
        processes = self.plan.processes
        if processes is not None:
            return processes
        cards = self.known("gpus", "cards")
        return len(cards) if cards else None


def unique(questions: Sequence[Question]) -> list[Question]:
    """Return questions, each once."""
    return list(dict.fromkeys(questions))
