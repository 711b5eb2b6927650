"""A project folder with a script, and short ways from job text to what the planner makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from safelaunch.config.paths import Paths
from safelaunch.config.resolve import Flags, Resolved, resolve, resolve_file
from safelaunch.errors import SafelaunchError
from safelaunch.plan.build import make_plan
from safelaunch.plan.serialize import script_of

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import EnvVar, NodePlan, Plan

TORCHRUN = "launcher: torchrun\nscript: train.py\nprocesses: 2\n"
PYTHON = "launcher: python\nscript: train.py\n"


class Refusal(NamedTuple):
    """What an error says, and where."""

    message: str
    where: str | None
    hint: str


class Project:
    """A folder with `train.py` and a `pyproject.toml`; jobs are written into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").touch()
        (folder / "train.py").touch()

    def write(self, text: str, name: str = "job.yaml") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def resolve(self, text: str, flags: Flags | None = None, name: str = "job.yaml") -> Resolved:
        self.write(text, name)
        return resolve_file(name, flags or Flags(), str(self.folder))

    def plan(self, text: str, flags: Flags | None = None, name: str = "job.yaml") -> Plan:
        return make_plan(self.resolve(text, flags, name))

    def line(self, tree: Node) -> Plan:
        """Plan the keys of a pasted line."""
        cwd = str(self.folder)
        paths = Paths.from_job(f"{cwd}/-", cwd)
        return make_plan(resolve(tree, Flags(), paths, default_name="job", job_file=""))

    def node(self, text: str, flags: Flags | None = None) -> NodePlan:
        return self.plan(text, flags).nodes[0]

    def env(self, text: str, flags: Flags | None = None) -> dict[str, EnvVar]:
        return dict(self.node(text, flags).env)

    def words(self, text: str, flags: Flags | None = None) -> list[str]:
        """Return the words that the program receives, in order."""
        return list(self.resolve(text, flags).job.args.words)

    def refused(self, text: str, flags: Flags | None = None) -> Refusal:
        """Return what the planner has against a job."""
        with pytest.raises(SafelaunchError) as caught:
            self.plan(text, flags)
        error = caught.value
        assert error.exit_code == 2
        return Refusal(error.message, error.where, error.hint or "")


def script(plan: Plan) -> str:
    """Return launch.sh of the first node."""
    return script_of(plan, plan.nodes[0])


def shown(plan: Plan) -> list[str]:
    """Return the argv of the first node with its slots as `<name>`."""
    return [str(word) for word in plan.nodes[0].argv]
