"""What a pasted line means, as plain data, and that its job file means the same."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from safelaunch.config.write_job import job_yaml
from safelaunch.plan.launch_line.parse import parse_line
from support.project import script, shown

if TYPE_CHECKING:
    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import Plan
    from support.project import Project


def plain(node: Node) -> object:
    """Return a tree of keys as dicts, lists and text."""
    if node.kind == "map":
        return {k.text: plain(v) for k, v in node.items}
    return [item.text for item in node.items] if node.kind == "list" else node.text


def keys_of(line: str) -> object:
    """Return the keys of the job that a line means."""
    return plain(parse_line(shlex.split(line)))


def plan_of(project: Project, line: str) -> Plan:
    """Return the plan of a line."""
    return project.line(parse_line(shlex.split(line)))


def argv_of(project: Project, line: str) -> str:
    """Return the command of the first node as one text, with its slots as `<name>`."""
    return " ".join(shown(plan_of(project, line)))


def assert_same_job(project: Project, words: list[str]) -> Plan:
    """Return the plan of a line; the job file written from it must start the same script."""
    tree = parse_line(words)
    direct, written = project.line(tree), project.plan(job_yaml(tree, None))
    assert shown(written) == shown(direct)
    assert script(written) == script(direct)
    assert written.supervision == direct.supervision
    return direct
