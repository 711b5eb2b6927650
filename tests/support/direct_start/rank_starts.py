"""The words and the environment of a node's first rank in a direct start."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.model import Slot
from safelaunch.plan import direct
from safelaunch.plan.build import bind
from safelaunch.runtime.ranks import start_ranks
from safelaunch.script import rank_words
from support.direct_start.launcher_answers import C10D, RANDOM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import NodePlan, Plan
    from support.project import Project

PORT = "23456"
# accelerate's, where a single process needs one: a direct start takes a free one
DEFAULT_PORT = "29500"
# under c10d the agent takes its host's name for an address; on one node loopback cannot fail
HOME = "127.0.0.1"
# what ranks find to be different where they are started directly
DIFFERENT = frozenset({
    "TORCHELASTIC_USE_AGENT_STORE",  # there is no agent: rank 0 opens the store itself
    "TORCHELASTIC_ERROR_FILE",  # in the run directory; of a start by hand there is none
})  # fmt: skip
PYTHON = "/opt/env/bin/python"
# what a start finds in the environment, beside what the plan sets
BASE = {"PATH": "/usr/bin:/bin", "HOME": "/root", "http_proxy": "http://proxy:3128"}


@dataclass(frozen=True)
class Job:
    """A job whose ranks may be started directly, as far as the launchers' flags say it."""

    launcher: str = "torchrun"
    flags: tuple[str, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ("--lr", "1e-3")

    @property
    def text(self) -> str:
        """The job file."""
        keys = {
            "launcher": self.launcher,
            "start": "direct",
            "processes": 2,
            "python": PYTHON,
            **({} if "module" in self.keys else {"script": "train.py"}),
            "launcher_args": list(self.flags),
            "args": list(self.args),
            **self.keys,
        }
        shown = {name: value for name, value in keys.items() if value is not None}
        return json.dumps(shown, ensure_ascii=False)  # YAML has no escapes of halves

    def __str__(self) -> str:
        return f"{self.launcher} {' '.join(map(repr, self.flags))} {dict(self.keys) or ''}".rstrip()


class Answer(NamedTuple):
    """The words and variables of the first rank; `reason`: why the launcher starts it."""

    words: Sequence[str] = ()
    env: Mapping[str, str] = {}
    reason: str = ""


def planned(job: Job, project: Project) -> Plan | None:
    """Return the plan of a job, bound but for its run directory; None where it is refused."""
    try:
        plan = project.plan(job.text)
    except ConfigError:
        return None
    facts = {
        Slot.PORT: PORT,
        Slot.THREADS: "3",
        Slot.GPUS: "2",
        Slot.MASTER_ADDR: "10.0.0.7",
        Slot.RUN_ID: "job-1",
    }
    return bind(plan, facts)


def with_run_dir(plan: Plan, run_dir: str) -> Plan:
    """Return a plan with its run directory bound too."""
    return bind(plan, {Slot.RUN_DIR: run_dir})


def question(node: NodePlan) -> tuple[str, list[str], dict[str, str]]:
    """Return what to ask the launcher of a node: its module, its words, its environment."""
    words = [str(word) for word in node.argv[node.prefix :]]
    at = words.index("-m")
    return words[at + 1], words[at + 2 :], environment(node)


def environment(node: NodePlan) -> dict[str, str]:
    """Return what launch.sh has exported before it starts the launcher or the ranks."""
    env = dict(BASE)
    for name, var in node.env.items():
        if var.value is None:
            if not var.computed:
                env.pop(name, None)
        elif not (var.computed and not var.soft):
            env[name] = str(var.value)
    return env


def answer(plan: Plan, versions: Mapping[str, str], folder: str) -> Answer:
    """Return what a direct start does for the first rank of a plan's first node."""
    if plan.nodes[0].ranks is None:
        return Answer(reason=plan.notes[-1])
    decided, reasons = direct.decide(plan, [versions] * len(plan.nodes))
    node = decided.nodes[0]
    if node.ranks is None:
        return Answer(reason=reasons[0])
    env = environment(node)
    for var in node.ranks.variables:
        env[var.name] = env.get(var.name, str(var.value)) if var.soft else str(var.value)
    options = node.ranks.options
    own = folder if "--own-folder" in options else ""
    env = start_ranks.inherited(env, own, upper_case="--upper-case" in options)
    if "--new-run-id" in options:
        env["TORCHELASTIC_RUN_ID"] = RANDOM
    words = [str(word) for word in rank_words(node, node.ranks)]
    if "--local-rank" in options:
        words.insert(start_ranks.local_rank_index(words), "--local-rank=0")
    return Answer(words, env)


def differences(real: Mapping[str, Any], ours: Answer, python: str) -> list[str]:
    """Return how a direct start differs from the launcher's; none where it falls back."""
    if ours.reason:
        return []
    if "words" not in real:
        return [f"the launcher would start no ranks: {real.get('refused', 'a child')}"]
    words = [PYTHON if word == python else word for word in real["words"]]
    env = dict(real["env"])
    lines = [f"the launcher does more: {name}" for name in real["unusual"]]
    if words != list(ours.words):
        lines.append(f"words: {words} is {list(ours.words)}")
    for name in sorted({*env, *ours.env}):
        theirs, own = env.get(name), ours.env.get(name)
        is_named = name in DIFFERENT or (theirs in (C10D, DEFAULT_PORT) and own in (HOME, PORT))
        if theirs != own and not is_named:
            lines.append(f"{name}: {theirs!r} is {own!r}")
    return lines


def write_files(plan: Plan, run_dir: str) -> None:
    """Write the files that the launcher of a plan reads."""
    for name, body in plan.nodes[0].files:
        path = os.path.join(run_dir, name)
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(body))
