"""Job files for `lint`: judged with what they extend, and by what is known of their hosts.

Nothing is asked of a host: only what `safelaunch facts` kept of it counts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.resolve import read_job
from safelaunch.config.schema.files import JOB
from safelaunch.errors import ConfigError
from safelaunch.lint import file_variables
from safelaunch.lint.env.model import Facts
from safelaunch.lint.file_variables import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.lint.finding import Finding


class Judged(NamedTuple):
    """What is wrong in a job, at the lines of the files that say it."""

    variables: tuple[Finding, ...] | None  # None: the files could not be read
    refused: ConfigError | None  # what `run` has against it


def judge(path: str, shown: str, known: Facts | None, home: str) -> Judged:
    """Return what is wrong in a job with all that it extends. `known` of a machine goes first."""
    try:
        tree = read_job(path, shown, None, ())
    except ConfigError as e:
        return Judged(None, e)
    refused = None
    try:
        JOB.read(tree)
    except ConfigError as e:
        refused = e
    machines = [known] if known is not None else [*_kept_of_hosts(tree, home)] or [Facts()]
    found: dict[tuple[str, int, int, str], Finding] = {}
    for machine in machines:
        for finding in _variables(tree, machine):
            found.setdefault((finding.file, finding.line, finding.column, finding.id), finding)
    return Judged(tuple(found.values()), refused)


def _variables(tree: Node, machine: Facts) -> Iterator[Finding]:
    smoke = tree.get("smoke")
    launcher, nodes = tree.get("launcher"), tree.get("nodes")
    facts = machine._replace(
        launcher=launcher.text if launcher is not None else None,
        nodes=file_variables.count(nodes.text) if nodes is not None else _hosts(tree),
    )
    yield from _of_mapping(tree.get("env"), facts)
    if smoke is not None:
        yield from _of_mapping(smoke.get("env"), facts)


def _of_mapping(env: Node | None, facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with variables; those that are taken away are none."""
    if env is None or env.kind != "map":
        return
    values: dict[str, str | None] = {}
    places = {}
    for key, value in env.items:
        if not value.is_null:
            values[key.text] = value.text if value.kind == "scalar" else None
            at = key.origin
            places[key.text] = Place(_slashes(at.source), at.line, at.column, key.plain)
    yield from file_variables.judged(values, places, facts)


def _hosts(tree: Node) -> int | None:
    node = tree.get("hosts")
    return len(node.items) if node is not None and node.kind == "list" else None


def _slashes(path: str) -> str:
    return path.replace(os.sep, "/")


# -- what is known of hosts ------------------------------------------------------------------------


def kept(home: str, host: str) -> Facts | None:
    """Return what is kept of a host, however old; None where it was never asked."""
    told = _told(home, host)
    return None if told is None else _facts(host, told)


def _told(home: str, host: str) -> dict[str, object] | None:
    from safelaunch.hostfacts.saved import SavedFacts, with_age  # noqa: PLC0415 - for hosts only

    facts = SavedFacts(home).load(host)
    return None if facts is None else with_age(facts)


def _facts(host: str, told: Mapping[str, object]) -> Facts:
    from safelaunch.lint.env.host_versions import facts_of  # noqa: PLC0415 - as above
    from safelaunch.runtime.units import brief_duration  # noqa: PLC0415 - as above

    age = told.get("age")
    when = f"asked {brief_duration(age)} ago" if isinstance(age, float) else "asked before"
    return facts_of(told, f"{host} ({when})")


def _kept_of_hosts(tree: Node, home: str) -> Iterator[Facts]:
    """Yield what is kept of the job's hosts, where it is of the interpreter that the job names."""
    node = tree.get("hosts")
    for item in node.items if node is not None and node.kind == "list" else ():
        told = _told(home, item.text) if item.kind == "scalar" and "\0" not in item.text else None
        if told is not None and _is_of_its_python(tree, told.get("python")):
            yield _facts(item.text, told)


def _is_of_its_python(tree: Node, asked: object) -> bool:
    """Whether facts are of the interpreter that a job names; of any where it names none."""
    if not isinstance(asked, dict):
        return False
    said = {key: tree.get(key) for key in ("python", "venv", "conda")}
    named = {key: node.text for key, node in said.items() if node is not None and not node.is_null}
    if not named:
        return True
    prefix = str(asked.get("prefix"))
    if "conda" in named:
        return os.path.basename(prefix) == named["conda"] or named["conda"] == "base"
    return named.get("python") == asked.get("executable") or named.get("venv") == prefix
