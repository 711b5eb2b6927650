"""`safelaunch import`: a shell script as job files."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from safelaunch.cli.output import print_json, report, say, style
from safelaunch.cli.plan_options import LineCommand, pasted_line
from safelaunch.config.write_job import job_yaml, relocated
from safelaunch.errors import ConfigError, SafelaunchError
from safelaunch.importer.findings import MissingFolder
from safelaunch.importer.jobs import make_job
from safelaunch.importer.shell.interpreter import follow
from safelaunch.importer.state import NAME, ScriptCaller
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.importer.findings import Findings, Note, Unresolved
    from safelaunch.importer.jobs import ScriptJob

VERSION = 1


class _JobFile(NamedTuple):
    """A job file to be written; `path` is None for stdout."""

    path: str | None
    text: str
    job: ScriptJob


@click.command("import", cls=LineCommand, options_metavar="[OPTIONS] SCRIPT [-- ARG...]")
@click.argument("script", metavar="")
@click.option(
    "--output",
    "-o",
    metavar="FILE|DIR",
    help="Write there, several jobs into a folder or numbered files; nothing is overwritten.",
)
@click.option(
    "--set", "sets", multiple=True, metavar="NAME=VALUE", help="A variable that the caller knows."
)
@click.option("--profile", metavar="NAME", help="Hardware profile to write into the jobs.")
@click.option(
    "--record",
    "records",
    is_flag=True,
    help="Run the script with stubs for launchers, isolated, instead of reading it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print jobs and notes as JSON.")
def command(  # noqa: PLR0917 - click passes the options by name
    script: str,
    output: str | None,
    sets: Sequence[str],
    profile: str | None,
    records: bool,
    as_json: bool,
) -> int:
    """Write the launches of a shell script as job files, and say what else it does.

    \b
    safelaunch import train.sh -o train.yaml
    safelaunch import train.sh --set DATA=/data/c4 -- qwen 8   # ./train.sh qwen 8
    """  # noqa: D301 - \b is click's mark
    caller = ScriptCaller(os.environ, os.getcwd(), pasted_line(), _answers(sets))
    findings = _record(script, caller) if records else follow(script, caller, has_variables=True)
    files: list[_JobFile] = []
    error = _refusal(script, findings, caller, records=records)
    if error is None:
        try:
            jobs = [
                make_job(launch, script, os.environ, findings.variables)
                for launch in findings.launches
            ]
            files = _files(jobs, script, output, profile)
        except ConfigError as e:
            error = e
    if as_json:
        print_json(_as_json(script, findings, files, error, records=records))
    if error is not None:
        if not as_json:
            _print_notes(script, findings.notes)
        report(error)
        return error.exit_code
    if output is not None:
        _write(files)
    elif not as_json:
        sys.stdout.write("\n".join(_titled(file, script, len(files)) for file in files))
    if not as_json:
        notes = [*findings.notes, *(note for file in files for note in file.job.notes)]
        _print_notes(script, notes)
        _say_next(files)
    return 0


def _answers(sets: Sequence[str]) -> dict[str, str]:
    answers = {}
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals or not NAME.fullmatch(name):
            raise ConfigError(f"`--set {text}` is not NAME=VALUE")
        answers[name] = value
    return answers


def _record(script: str, caller: ScriptCaller) -> Findings:
    from safelaunch.importer.record.record import record  # noqa: PLC0415 - only with --record

    return record(script, caller)


def _refusal(
    script: str, findings: Findings, caller: ScriptCaller, *, records: bool
) -> SafelaunchError | None:
    """Return why no job can be made, with what to do next; None where all is clear."""
    stop, problems = findings.stop, findings.problems
    again = None if records else f"safelaunch import --record {shlex.quote(script)}"
    questions = {p.name: p for p in problems if p.name is not None}
    others = [p for p in problems if p.name is None]
    if questions:
        names = "; ".join(f"{_at(p)}: {p.reason}" for p in questions.values())
        what = f"it needs values that only its caller has: {names}"
        return ConfigError(
            what, where=script, hint=_command_with(script, findings, caller, records)
        )
    if others:
        where = f"{script}:{others[0].line}"
        if isinstance(others[0], MissingFolder):
            again = f"mkdir -p {shlex.quote(others[0].target)}, or import it where that folder is"
        return ConfigError(f"a launch depends on {others[0].reason}", where=where, hint=again)
    if stop is not None:
        hint = stop.hint or again
        return ConfigError(f"not followed: {stop.reason}", where=f"{script}:{stop.line}", hint=hint)
    if not findings.launches:
        hint = "safelaunch init -- LINE takes a launch line"
        return ConfigError("it starts no training", where=script, hint=again or hint)
    return None


def _at(problem: Unresolved) -> str:
    return f"line {problem.line}"


def _command_with(script: str, findings: Findings, caller: ScriptCaller, records: bool) -> str:
    """Return the command that answers the questions."""
    names = dict.fromkeys(p.name for p in findings.problems if p.name is not None)
    words = ["safelaunch import --record" if records else "safelaunch import", shlex.quote(script)]
    for name, text in caller.answers.items():
        value = "VALUE" if is_secret_name(name) else shlex.quote(text)
        words.append(f"--set {name}={value}")
    words += [f"--set {name}=VALUE" for name in names if name[0] != "$"]
    numbers = [int(name[1:]) for name in names if name[0] == "$"]
    if numbers or caller.arguments:
        shown = [shlex.quote(word) for word in caller.arguments]
        placeholders = (*findings.placeholders, *["ARG"] * max(numbers, default=0))
        count = len(findings.placeholders) if findings.has_example else max(numbers, default=0)
        words += ["--", *shown, *map(shlex.quote, placeholders[len(shown) : count])]
        words += ["  # as a comment of it does"] * findings.has_example
    return " ".join(words)


def _files(
    jobs: Sequence[ScriptJob], script: str, output: str | None, profile: str | None
) -> list[_JobFile]:
    paths = _paths(jobs, output)
    files = []
    for job, path in zip(jobs, paths, strict=True):
        folder = os.path.dirname(os.path.abspath(path)) if path is not None else os.getcwd()
        try:
            text = job_yaml(relocated(job.keys, job.folder, folder), profile)
        except ConfigError as e:
            where = f"{script}:{job.line}"
            raise ConfigError(e.message, where=where, hint=e.hint) from None
        files.append(_JobFile(path, text, job))
    return files


def _paths(jobs: Sequence[ScriptJob], output: str | None) -> list[str | None]:
    """Return where each job is written: in a folder, or as numbered files."""
    if output is None:
        return [None] * len(jobs)
    is_folder = os.path.isdir(output) or output.endswith(("/", os.sep))
    if len(jobs) == 1 and not is_folder:
        return [output]
    stem, suffix = os.path.splitext(output)
    names = [job.name for job in jobs]
    paths: list[str | None] = []
    for number, name in enumerate(names, 1):
        ending = "" if names.count(name) == 1 else f"-{number}"
        in_folder = os.path.join(output, f"{name}{ending}.yaml")
        paths.append(in_folder if is_folder else f"{stem}-{number}{suffix or '.yaml'}")
    return paths


def _write(files: Sequence[_JobFile]) -> None:
    """Write all files or none; none is overwritten."""
    paths = [file.path for file in files if file.path is not None]
    existing = next((path for path in paths if os.path.lexists(path)), None)
    if existing is not None:
        raise ConfigError("the file exists; it is not overwritten", where=existing)
    for file in files:
        if file.path is None:
            continue
        try:
            os.makedirs(os.path.dirname(os.path.abspath(file.path)), exist_ok=True)
            with open(file.path, "x", encoding="utf-8", newline="\n") as target:
                target.write(file.text)
        except OSError as e:
            raise ConfigError(f"cannot write: {e.strerror}", where=file.path) from e


def _titled(file: _JobFile, script: str, count: int) -> str:
    if count == 1:
        return file.text
    return f"# {script}:{file.job.line}: {file.job.name}\n{file.text}"


def _print_notes(script: str, notes: Sequence[Note]) -> None:
    for note in sorted(set(notes)):
        say(f"{style('note:', 'cyan')} {script}:{note.line}: {note.text}: {note.outcome}")


def _say_next(files: Sequence[_JobFile]) -> None:
    paths = [shlex.quote(file.path) for file in files if file.path is not None]
    if paths:
        say(f"wrote {', '.join(paths)}; next: safelaunch run --dry-run {' '.join(paths)}")


def _as_json(
    script: str,
    findings: Findings,
    files: Sequence[_JobFile],
    error: SafelaunchError | None,
    *,
    records: bool,
) -> dict[str, object]:
    notes = sorted({*findings.notes, *(note for file in files for note in file.job.notes)})
    return {
        "version": VERSION,
        "script": script,
        "recorded": records,
        "jobs": [
            {
                "line": file.job.line,
                "name": file.job.name,
                "file": file.path,
                "cwd": file.job.folder,
                "yaml": file.text,
            }
            for file in files
        ],
        "notes": [note._asdict() for note in notes],
        "questions": [
            {"name": p.name, "line": p.line, "reason": p.reason}
            for p in findings.problems
            if p.name is not None
        ],
        "error": None
        if error is None
        else {"message": error.message, "where": error.where, "hint": error.hint},
    }
