"""The input of checks: a job with its plan, the hosts that it would run on, and the project."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks.answers import NotKnown, Question
from safelaunch.checks.project_files import ProjectFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Host, Job, NodePlan, Plan, Profile


class RouteReport(NamedTuple):
    """How the hosts reach each other: address and interface of each, or the error."""

    error: str | None = None
    hint: str = ""
    addresses: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class CheckContext:
    """What is known of a job and all its hosts. Without a job `resolved` and `plan` are None.

    In their paths `~/` stands for the home folder of a host.
    """

    resolved: Resolved | None = None
    plan: Plan | None = None
    hosts: tuple[HostContext, ...] = ()
    project: str | None = None  # the project's folder on this machine
    project_dirs: tuple[str, ...] = ()  # the project's folder on each host
    environ: Mapping[str, str] = field(default_factory=dict)  # of the user who starts the job
    is_local: bool = True  # the job runs on this machine
    routes: RouteReport | None = None  # between several hosts; None: not tried
    shared: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)  # path -> ranks
    is_quick: bool = False

    @cached_property
    def project_files(self) -> ProjectFiles:
        """The job's program and settings files on this machine. Only for checks with a job."""
        folders = self.job.pythonpath if self.plan is None else self.pythonpath
        return ProjectFiles(self.job, self.local_path, folders, is_quick=self.is_quick)

    @property
    def pythonpath(self) -> tuple[str, ...]:
        """The folders of the PYTHONPATH of node 0. Only for checks that have a job."""
        if self.plan is None:
            raise NotKnown("there is no job")
        return _pythonpath(self.plan.nodes[0], self.job)

    @property
    def is_pythonpath_set(self) -> bool:
        """Whether a variable sets the PYTHONPATH, in place of the job's `pythonpath:`."""
        var = None if self.plan is None else self.plan.nodes[0].env.get("PYTHONPATH")
        return var is not None and not var.prepend

    @property
    def job(self) -> Job:
        """The job. Only for checks that have one."""
        if self.resolved is None:
            raise NotKnown("there is no job")
        return self.resolved.job

    def local_path(self, path: str, rank: int = 0) -> str | None:
        """Return where a planned path is on this machine; None if only the host has it.

        Relative paths start at the job's working folder.
        """
        if self.plan is None or self.project is None:
            return None
        if not path.startswith("~"):
            path = posixpath.join(str(self.plan.nodes[rank].cwd), path)
        path = posixpath.normpath(path)
        if self.is_local:
            return path
        root = self.project_dirs[rank]
        if path != root and not path.startswith(root.rstrip("/") + "/"):
            return None
        return os.path.normpath(os.path.join(self.project, posixpath.relpath(path, root)))


@dataclass(frozen=True, eq=False)
class HostContext:
    """What is known of one host. Without a job `node` is None."""

    entry: Host
    profile: Profile | None = None
    node: NodePlan | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # hostfacts.facts.from_probe
    answers: Mapping[Question, Mapping[str, Any]] = field(default_factory=dict)
    context: CheckContext = field(default_factory=CheckContext, repr=False)

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.entry.name

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine."""
        return self.context.is_local

    @property
    def rank(self) -> int:
        """The rank of the node; 0 without a job."""
        return self.node.node_rank if self.node is not None else 0

    @property
    def is_first(self) -> bool:
        """Whether it is node 0, also of nodes that are started by hand."""
        by_hand = self.job.topology.node_rank
        return not (self.rank if by_hand is None else by_hand)

    @property
    def job(self) -> Job:
        """The job. Only for checks that have one."""
        return self.context.job

    @property
    def plan(self) -> NodePlan:
        """What the host would run. Only for checks that have a job."""
        if self.node is None:
            raise NotKnown("there is no job")
        return self.node

    @property
    def interpreter(self) -> str | None:
        """The path of the host's interpreter for the job; None if it is searched for."""
        interpreter = self.entry.interpreter if self.node is None else self.node.interpreter
        return None if interpreter is None or interpreter.path is None else str(interpreter.path)

    @property
    def cwd(self) -> str:
        """The job's working directory there. Only for checks that have a job."""
        return str(self.plan.cwd)

    @property
    def pythonpath(self) -> tuple[str, ...]:
        """The folders of the job's PYTHONPATH. Only for checks that have a job."""
        return _pythonpath(self.plan, self.job)

    @property
    def runs_python(self) -> bool:
        """Whether the interpreter runs the job: `launcher: command` may start any program."""
        return self.plan.runs_python

    @property
    def has_several_ranks(self) -> bool:
        """Whether the job has more than one rank on all its hosts."""
        return self.job.topology.nodes > 1 or (self.ranks or 0) > 1

    def answer(self, *question: Any) -> Any:
        """Return the host's answer to a question that the check declares. Raises NotKnown."""
        answer = self.answers.get(question)
        if answer is None:
            raise NotKnown("the machine was not asked")
        if "skip" in answer:
            raise NotKnown(str(answer["skip"]))
        return answer["value"]

    def fact(self, *keys: str) -> Any:
        """Return a fact by its keys. Raises NotKnown."""
        value = self.get(*keys)
        if value is None:
            skipped = self.facts.get("skipped") or {}
            why = next((skipped[key] for key in keys if key in skipped), None)
            raise NotKnown(why or f"`{'.'.join(keys)}` of the host is not known")
        return value

    def get(self, *keys: str) -> Any:
        """Return a fact by its keys, or None."""
        value: Any = self.facts
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @cached_property
    def ranks(self) -> int | None:
        """The processes that the job starts there: one per GPU if it sets no number."""
        processes = self.plan.processes
        if processes is not None:
            return processes
        gpus = self.get("gpus", "cards") or self.get("gpus", "others")
        return len(gpus) if gpus else None


def _pythonpath(node: NodePlan, job: Job) -> tuple[str, ...]:
    """Return the folders of a node's PYTHONPATH: an empty entry is the folder that it runs in."""
    var = node.env.get("PYTHONPATH")
    if var is None or var.prepend or not isinstance(var.value, str):
        return tuple(map(str, job.pythonpath))
    return tuple(folder or "." for folder in var.value.split(":")) if var.value else ()
