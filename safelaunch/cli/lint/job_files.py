"""Checks job files for `lint`, together with the files they extend and the facts of their hosts.

No host is contacted: only facts that `safelaunch facts` stored are used.
"""

# ruff: noqa: PLC0415 - the readers of stored facts are imported for jobs with hosts, and --host;
# those of programs for jobs with findings

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config import steps
from safelaunch.config.members import variables as job_variables
from safelaunch.config.resolve import read_job
from safelaunch.config.schema.files import JOB
from safelaunch.config.schema.members.words import readable
from safelaunch.config.yaml_io.node import Node, overlay
from safelaunch.errors import ConfigError
from safelaunch.lint import variables
from safelaunch.lint.env.model import Facts
from safelaunch.lint.finding import JOB_VARIABLE, NOTE, WARNING, LintFinding
from safelaunch.lint.variables import VariableLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class JobFindings(NamedTuple):
    """The findings of a job, each at its file and line."""

    variables: tuple[LintFinding, ...] | None  # None: the files could not be read
    error: ConfigError | None  # the reason why `run` would refuse it


def check_job(path: str, shown: str, facts: Facts | None, home: str) -> JobFindings:
    """Return the findings of a job with the files it extends. `facts` override its hosts."""
    try:
        tree = read_job(path, shown, None, ())
    except ConfigError as e:
        return JobFindings(None, e)
    error = None
    try:
        JOB.check_keys(tree)
        JOB.read(readable(tree))
        steps.split(tree, "job")
    except ConfigError as e:
        error = e
    machines = [facts] if facts is not None else [*_facts_of_hosts(tree, home)] or [Facts()]
    findings: dict[tuple[str, int, int, str], LintFinding] = {}
    trees = [tree, *_steps(tree)]
    for machine, job in itertools.product(machines, trees):
        for finding in _variables(job, machine):
            findings.setdefault((finding.file, finding.line, finding.column, finding.id), finding)
    for finding in _job_variables(tree):
        findings.setdefault((finding.file, finding.line, finding.column, finding.id), finding)
    variables_of_job = [*findings.values()]
    if variables_of_job:
        from safelaunch.cli.lint import programs

        own = programs.of_job(tree, os.path.dirname(path))
        variables_of_job = programs.without_own_variables(variables_of_job, own)
    return JobFindings(tuple(variables_of_job), error)


def _job_variables(tree: Node) -> Iterator[LintFinding]:
    """Yield variables that are declared and not used, and words of variables where none is."""
    for name, node in job_variables.unused(tree):
        yield _at(node, JOB_VARIABLE, f"`{{vars.{name}}}` is not used in this job", NOTE)
    for word, node in job_variables.undeclared(tree):
        yield _at(node, JOB_VARIABLE, f"`{word}` stays as it is: the job has no `vars`", WARNING)


def _at(node: Node, rule: str, message: str, severity: str) -> LintFinding:
    origin = node.origin
    file = origin.source.replace(os.sep, "/")
    return LintFinding(file, origin.line, origin.column, rule, message, severity=severity)


def _steps(tree: Node) -> Iterator[Node]:
    """Yield the keys of each step, with those of the file as defaults."""
    node = tree.get("steps")
    common = Node("map", tree.origin, items=tuple(i for i in tree.items if i[0].text != "steps"))
    for _, step in node.items if node is not None and node.kind == "map" else ():
        if step.kind == "map":
            yield overlay(common, step)


def _variables(tree: Node, machine: Facts) -> Iterator[LintFinding]:
    smoke, launcher = tree.get("smoke"), tree.get("launcher")
    nodes, hosts = tree.get("nodes"), tree.get("hosts")
    count = len(hosts.items) if hosts is not None and hosts.kind == "list" else None
    facts = machine._replace(
        launcher=launcher.text if launcher is not None else None,
        nodes=variables.parse_count(nodes.text) if nodes is not None else count,
    )
    yield from _check_mapping(tree.get("env"), facts)
    if smoke is not None:
        yield from _check_mapping(smoke.get("env"), facts)


def _check_mapping(env: Node | None, facts: Facts) -> Iterator[LintFinding]:
    """Yield findings about the variables of an `env` mapping; null removes a variable."""
    if env is None or env.kind != "map":
        return
    values: dict[str, str | None] = {}
    locations = {}
    for key, value in env.items:
        if not value.is_null:
            values[key.text] = value.text if value.kind == "scalar" else None
            origin = key.origin
            file = origin.source.replace(os.sep, "/")
            locations[key.text] = VariableLocation(file, origin.line, origin.column, key.plain)
    yield from variables.check_variables(values, locations, facts)


# -- stored facts of hosts -------------------------------------------------------------------------


def stored_facts(home: str, host: str) -> Facts | None:
    """Return the stored facts of a host, however old; None if there are none."""
    probe = _stored_probe(home, host)
    return None if probe is None else _facts(host, probe)


def _stored_probe(home: str, host: str) -> dict[str, object] | None:
    from safelaunch.hostfacts.saved import SavedFacts, with_age

    facts = SavedFacts(home).load(host)
    return None if facts is None else with_age(facts)


def _facts(host: str, probe: Mapping[str, object]) -> Facts:
    from safelaunch.lint.env.names import facts_from_probe
    from safelaunch.runtime.units import brief_duration

    age = probe.get("age")
    age_text = f"facts from {brief_duration(age)} ago" if isinstance(age, float) else "stored facts"
    return facts_from_probe(probe, f"{host} ({age_text})")


def _facts_of_hosts(tree: Node, home: str) -> Iterator[Facts]:
    """Yield the stored facts of the job's hosts that are about the job's interpreter."""
    node = tree.get("hosts")
    for item in node.items if node is not None and node.kind == "list" else ():
        is_name = item.kind == "scalar" and "\0" not in item.text
        probe = _stored_probe(home, item.text) if is_name else None
        if probe is not None and _matches_python(tree, probe.get("python")):
            yield _facts(item.text, probe)


def _matches_python(tree: Node, probed_python: object) -> bool:
    """Whether facts are about the interpreter that a job names; any if it names none."""
    if not isinstance(probed_python, dict):
        return False
    nodes = {key: tree.get(key) for key in ("python", "venv", "conda")}
    named = {key: node.text for key, node in nodes.items() if node is not None and not node.is_null}
    if not named:
        return True
    prefix = str(probed_python.get("prefix"))
    if "conda" in named:
        return os.path.basename(prefix) == named["conda"] or named["conda"] == "base"
    return named.get("python") == probed_python.get("executable") or named.get("venv") == prefix
