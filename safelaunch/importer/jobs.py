"""A launch of a script as the keys of a job file, through the reader of pasted lines."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from safelaunch.config.yaml_io.node import Node, mapping, overlay
from safelaunch.errors import ConfigError
from safelaunch.importer import differing
from safelaunch.importer.activities import SAFELAUNCH, USER
from safelaunch.importer.findings import Note, ScriptLaunch
from safelaunch.importer.state import CALLER_VALUE
from safelaunch.importer.variables import job_keys
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.plan.launch_line.parse import default_name
from safelaunch.plan.launch_line.read import read_line
from safelaunch.plan.launch_line.shell import Shell
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.importer.findings import Findings
    from safelaunch.importer.variables.marks import JobVariables
    from safelaunch.plan.launch_line.read import Line


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """A job that a script starts: its keys, without those that depend on where the file lies."""

    line: int
    keys: Node
    folder: str
    notes: tuple[Note, ...]

    @property
    def name(self) -> str:
        """The name of its script, module or program."""
        return default_name(self.keys)


def make_job(
    launch: ScriptLaunch,
    script: str,
    environ: Mapping[str, str],
    variables: JobVariables | None = None,
) -> ScriptJob:
    """Return the job of a launch. Raises ConfigError where its line cannot be one."""
    if variables is None or not any(why.is_caller_value for why in launch.different.values()):
        return _job(launch, script, environ)
    plain = job_keys.numbered(launch, variables).launch
    job = _job(plain, script, environ)
    try:
        keys = job_keys.with_variables(
            launch, variables, lambda item: _job(item, script, environ).keys
        )
    except ConfigError as e:
        raise ConfigError(e.message, where=f"{script}:{launch.line}", hint=e.hint) from None
    own = job_keys.notes(launch, keys, variables)
    return replace(job, keys=keys, notes=(*job.notes, *own))


def _job(launch: ScriptLaunch, script: str, environ: Mapping[str, str]) -> ScriptJob:
    item = differing.numbered(launch)
    line, prepended, extended = _environment(item.launch, environ)
    notes = [
        Note(launch.line, f"{name} extends yours, which is not set", "written without it")
        for name, value in launch.env.items()
        if value is not None and CALLER_VALUE in value and name not in environ
    ]
    try:
        read = _read(line, item.launch, environ)
    except ConfigError as e:
        raise ConfigError(e.message, where=f"{script}:{launch.line}", hint=e.hint) from None
    settled = differing.settle(read.tree, item)
    keys = settled.keys
    notes += settled.notes
    notes += [Note(launch.line, text, "as `safelaunch run -- LINE` does") for text in read.notes]
    notes += [
        Note(launch.line, f"{name} is a secret", "`env_from:`, from your environment")
        for name in read.secrets
    ]
    more: dict[str, Node] = {}
    setup = [*settled.setup, *extended]
    if setup:
        more["setup"] = Node("list", PASTED_LINE, items=tuple(_text(text) for text in setup))
    if prepended:
        env = {n: mapping({"prepend": _text(v)}, PASTED_LINE) for n, v in prepended.items()}
        more["env"] = mapping(env, PASTED_LINE)
    if keys.get("python") is None and keys.get("venv") is None:
        more |= {key: _text(value) for key, value in _interpreter(launch)}
    log = _log(launch)
    if log is not None:
        more["log"] = _text(log)
    notes += _notes(launch, keys, log)
    keys = overlay(keys, mapping(more, PASTED_LINE))
    return ScriptJob(launch.line, keys, launch.folder, tuple(notes))


def unfit_variables(findings: Findings, script: str, environ: Mapping[str, str]) -> set[str]:
    """Return the variables on whose values the jobs of a script depend."""
    own = findings.variables
    marked = [x for x in findings.launches if any(w.is_caller_value for w in x.different.values())]
    if own is None:
        return set()
    return job_keys.unfit(marked, own, lambda item: _job(item, script, environ).keys)


def is_settled(launch: ScriptLaunch, environ: Mapping[str, str]) -> bool:
    """Whether safelaunch chooses all that differs at each start in a launch."""
    item = differing.numbered(launch)
    try:
        tree = _read(_environment(item.launch, environ)[0], item.launch, environ).tree
    except ConfigError:
        return False
    return not differing.settle(tree, item).left


def ask_for_differing(findings: Findings, environ: Mapping[str, str]) -> None:
    """Make a problem of what differs at each start, where safelaunch cannot choose it."""
    launches, settled = list[ScriptLaunch](), list[differing.SettledLaunch]()
    own = findings.variables
    for script_launch in findings.launches:
        launch = script_launch
        if own is not None:
            launch = job_keys.numbered(launch, own).launch
        item = differing.numbered(launch)
        if not launch.different:
            continue
        try:
            tree = _read(_environment(item.launch, environ)[0], item.launch, environ).tree
        except ConfigError:  # it is raised again for the job, with the line
            continue
        launches.append(launch)
        settled.append(differing.settle(tree, item))
    left = [why for item in settled for why in item.left]
    for problem in (*left, *differing.shared(launches, settled)):
        findings.problem(problem)


def _read(words: Sequence[str], launch: ScriptLaunch, environ: Mapping[str, str]) -> Line:
    """Return the line of a launch, behind the words that set its variables."""
    line = [*words, *launch.words]
    if len(line) == 1:  # a single word would be read as a text
        line.insert(0, "exec")
    # of the caller's environment a job takes nothing: the script says what it exports
    return read_line(line, Shell(launch.folder, environ), is_remote=True)


def _environment(
    launch: ScriptLaunch, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the words before the launch, what is put before the caller's values, shell lines."""
    assigned, removed, extended = list[str](), list[str](), list[str]()
    prepended: dict[str, str] = {}
    for name, value in launch.env.items():
        if value is None:
            removed += ["-u", name]
        elif CALLER_VALUE not in value or name not in environ:
            assigned.append(f"{name}={value.replace(CALLER_VALUE, '')}")
        elif value.endswith(f":{CALLER_VALUE}") and value.count(CALLER_VALUE) == 1:
            prepended[name] = value.removesuffix(f":{CALLER_VALUE}")
        else:
            extended.append(f"export {name}={_extended(name, value)}")
    return [*(["env"] if removed else []), *removed, *assigned], prepended, extended


def _text(text: str) -> Node:
    return Node("scalar", PASTED_LINE, text=text)


def _extended(name: str, value: str) -> str:
    """Return shell text for a value with the caller's in it."""
    return f'"${{{name}-}}"'.join(quote(part) if part else "" for part in value.split(CALLER_VALUE))


def _interpreter(launch: ScriptLaunch) -> tuple[tuple[str, str], ...]:
    keys = dict(launch.interpreter)
    if set(keys) == {"conda_root"}:  # conda is made ready, and nothing is activated
        return ()
    return tuple(keys.items())


def _log(launch: ScriptLaunch) -> str | None:
    """Return the log of the script as that of the job: a new file at each start."""
    path = launch.redirection.log
    if path is None:
        return None
    inside = os.path.relpath(os.path.join(launch.folder, path), launch.folder)
    if inside.startswith(os.pardir) or any(c in inside for c in "{}"):
        return None
    stem, suffix = os.path.splitext(inside)
    return f"{stem}-{{time}}{suffix}"


def _notes(launch: ScriptLaunch, keys: Node, log: str | None) -> Iterator[Note]:
    line, redirection = launch.line, launch.redirection
    if log is not None:
        yield Note(line, f"writes the log `{redirection.log}`", f"`log: {log}`, a file of each run")
    elif redirection.log is not None:
        yield Note(
            line, f"writes the log `{redirection.log}`", "left out: `safelaunch logs` has it"
        )
    if redirection.reader is not None:
        yield Note(
            line, f"its output goes to {redirection.reader}", "left out: see `safelaunch logs`"
        )
    if launch.in_background:
        yield Note(line, "runs in the background", SAFELAUNCH)
    if launch.loop:
        yield Note(launch.loop, "a loop of launches", "a job for each round")
    script = keys.get("script")
    if script is not None and not os.path.exists(os.path.join(launch.folder, script.text)):
        yield Note(line, f"`{script.text}` is not there", f"{USER}: a start needs it")
