"""Checks the image that a job runs in: its engine, interpreter and packages."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from safelaunch.checks.answers import Answer, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.launchers import load as load_launcher
from safelaunch.model import Slot
from safelaunch.plan.container import HOME_FOLDER, on_login_node, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext
    from safelaunch.model import NodePlan

_SHOWN = 6  # packages
_DIGITS = 12  # of the image's id, as docker shows it


def _question(host: HostContext) -> Question:
    spec = json.dumps(spec_of(host.plan, HOME_FOLDER).to_json(), sort_keys=True)
    name = f"safelaunch-check-{os.getpid()}-{host.rank}"
    return ("image", name, spec, str(Slot.STORE))


def _asks(host: HostContext) -> Iterator[Question]:
    if host.node is not None and host.node.container is not None and _is_here(host.node):
        yield _question(host)


def _is_here(node: NodePlan) -> bool:
    """Whether the machine itself runs the container, and not a compute node of Slurm."""
    return on_login_node(node) is node


@check("image", asks=_asks)
def image(host: HostContext) -> Answer | None:
    """Whether the engine runs the job's image, and what is in it."""
    if host.plan.container is None or not _is_here(host.plan):
        return None
    answer: dict[str, Any] = host.answer(*_question(host))
    if answer.get("error"):
        return fail(str(answer["error"]), str(answer.get("hint") or "docs/containers.md"))
    lines = str((answer.get("probe") or ["", ""])[1]).splitlines()
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    packages: dict[str, str] = answer.get("packages") or {}
    named = [f"{name} {version}" for name, version in packages.items()][:_SHOWN]
    engine = (answer.get("machine") or {}).get("engine")
    digest = str(answer.get("image_id") or "").removeprefix("sha256:")[:_DIGITS]
    evidence = f"{engine}, {host.plan.container.image} ({digest}): bash, Python "
    evidence += ", ".join([str(values.get("version")), *named])
    if load_launcher(host.job.launcher).STARTS_RANKS and "torch" not in packages:
        hint = "another image, or `container: {python: PATH}` for the interpreter that has it"
        return warn(f"{evidence}; no torch", hint)
    absent = [path for path in answer.get("absent") or () if host.is_local]
    if absent:
        return fail(f"not on this machine: {', '.join(absent)}", "correct `container.mounts`")
    notes = "; ".join(answer.get("notes") or ())
    return ok(f"{evidence}; {notes}" if notes else evidence)
