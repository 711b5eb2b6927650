"""`safelaunch lint`: finds problems in job files, training configs and scripts before a start."""

# ruff: noqa: PLC0415 - what job files, profiles, hosts files and hints need is imported for these

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from safelaunch.cli.lint.select_files import IGNORE_FILE, MAX_BYTES, is_ignored, read, select_files
from safelaunch.cli.output import print_json, say, terminal_width, wrap
from safelaunch.errors import ConfigError
from safelaunch.lint import secrets, text_file
from safelaunch.lint.finding import ERROR, NOTE, LintFinding
from safelaunch.lint.fix import apply_edits, unified_diff
from safelaunch.lint.kinds import FileKind
from safelaunch.lint.run import check
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.lint.env.model import Facts

_MAX_WIDTH = 100


@click.command("lint", options_metavar="[OPTIONS]")
@click.argument("paths", nargs=-1, metavar="FILES|FOLDERS...")
@click.option("--fix", is_flag=True, help="Fix what can be fixed; shows the diff first.")
@click.option("--yes", is_flag=True, help="With --fix: write without confirmation.")
@click.option("--host", metavar="NAME", help="Check variables against the stored facts of a host.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *, paths: tuple[str, ...], fix: bool, yes: bool, host: str | None, as_json: bool
) -> int:
    """Find problems in job files, training configs and scripts before a start.

    Finds YAML that loaders read differently, broken shell scripts, secrets, and environment
    variables that nothing reads. A job is checked with the files that it extends, and with the
    facts of its hosts that `safelaunch facts` stored; no host is contacted. Exit code 1 if there
    are findings. A comment `# safelaunch: ignore` excludes a line, and a file .safelaunchlintignore
    excludes other files.
    """
    if not paths:
        raise ConfigError(
            "no files given", hint="`safelaunch lint .` checks all files in this folder"
        )
    if yes and not fix:
        raise ConfigError("`--yes` without `--fix`", hint="add `--fix`")
    if fix and as_json and not yes:
        raise ConfigError("`--fix --json` cannot ask for confirmation", hint="add `--yes`")
    facts = None if host is None else _host_facts(host)
    selection = select_files(paths)
    for path in selection.ignored:
        say(f"{path}: skipped, excluded by {IGNORE_FILE}")
    for path in selection.unsupported:
        say(f"{path}: skipped, lint has no rules for this type of file")
    findings_by_file = _lint_files(selection.files, facts)
    selected = {path: findings_by_file[path] for path in selection.files}
    if fix and _fix(selected, ask=not yes, show=not as_json):
        findings_by_file = _lint_files(selection.files, facts)
    findings = [_printable(f) for per_file in findings_by_file.values() for f in per_file]
    if as_json:
        json_findings = [f.as_json() for f in findings]
        print_json({"version": 1, "files": len(selection.files), "findings": json_findings})
    else:
        _print(findings)
        _say_summary(findings, len(selection.files), paths, fix=fix)
    return int(any(f.severity != NOTE for f in findings))


def _host_facts(host: str) -> Facts:
    """Return the stored facts of a host. Raises ConfigError if there are none."""
    from safelaunch.cli.lint import job_files
    from safelaunch.runs import store

    facts = job_files.stored_facts(store.home(os.environ), host)
    if facts is None:
        hint = "safelaunch facts" + ("" if host == "localhost" else f" --host {host}")
        raise ConfigError(f"no stored facts of `{host}`", hint=f"collect them first: {hint}")
    return facts


# -- all files -------------------------------------------------------------------------------------


def _lint_files(files: Sequence[str], facts: Facts | None) -> dict[str, list[LintFinding]]:
    """Return the findings in files and in those that they extend, each once.

    For an extended file the findings of the job take precedence: it knows the launcher.
    """
    paths = {_normalized_path(path): path for path in files}
    findings: dict[str, dict[tuple[int, int, str], LintFinding]] = {path: {} for path in files}
    for path in files:
        for finding in _findings(path, facts):
            file = _normalized_path(finding.file)
            in_file = findings.setdefault(paths.get(file, finding.file), {})
            key = (finding.line, finding.column, finding.id)
            if key not in in_file or file != _normalized_path(path):
                in_file[key] = finding
    return {
        path: sorted(by_key.values(), key=lambda f: (f.line, f.column, f.id))
        for path, by_key in findings.items()
    }


def _normalized_path(path: str) -> str:
    return os.path.normcase(os.path.abspath(path))


# -- one file --------------------------------------------------------------------------------------


def _findings(path: str, facts: Facts | None) -> Iterator[LintFinding]:
    """Yield the findings in a file; for a job also those in the files that it extends."""
    shown = path.replace(os.sep, "/")
    try:
        data = read(path)
    except ConfigError as error:  # a file of a folder: `select_files` has read the named ones
        yield LintFinding(shown, 1, 1, "unreadable", error.message, severity=ERROR)
        return
    if len(data) > MAX_BYTES:
        message = "larger than 1 MiB: not checked"
        yield LintFinding(shown, 1, 1, "too-large", message, severity=NOTE)
        return
    checked = check(shown, data, facts)
    if checked.kind is FileKind.JOB:
        yield from _job_findings(path, shown, checked.findings, facts)
        return
    if checked.kind is FileKind.SHELL:
        yield from _shell_findings(path, data, checked.findings)
    else:
        yield from checked.findings
    rejection = _rejection(checked.kind, path, shown)
    if rejection is not None and not _is_ignored(rejection):
        yield rejection


def _shell_findings(
    path: str, data: bytes, findings: Sequence[LintFinding]
) -> Sequence[LintFinding]:
    """Return findings without variables that programs of the script read themselves."""
    if not any(finding.id.startswith("env-") for finding in findings):
        return findings
    from safelaunch.cli.lint import programs

    text = data.decode("utf-8", "replace")
    return programs.without_own_variables(findings, programs.of_script(text, os.path.dirname(path)))


def _job_findings(
    path: str, shown: str, findings: Sequence[LintFinding], facts: Facts | None
) -> Iterator[LintFinding]:
    from safelaunch.cli.lint import job_files
    from safelaunch.runs import store

    job = job_files.check_job(path, shown, facts, store.home(os.environ))
    is_unresolved = job.variables is None
    yield from (f for f in findings if is_unresolved or not f.id.startswith("env-"))
    yield from (f for f in job.variables or () if not _is_ignored(f))
    if job.error is not None:
        file, line, column = _location(job.error, shown)
        message, hint = job.error.message, job.error.hint
        refused = LintFinding(file, line, column, "job-file", message, hint, ERROR)
        if not _is_ignored(refused):
            yield refused


def _rejection(kind: FileKind | None, path: str, shown: str) -> LintFinding | None:
    """Return the error of the profile or hosts file reader as a finding."""
    try:
        if kind is FileKind.PROFILE:
            from safelaunch.config import profiles
            from safelaunch.model import Origin

            whole = os.path.abspath(path)
            profiles.load(whole, Origin(shown), os.path.dirname(whole))
        elif kind is FileKind.HOSTS:
            from safelaunch.config.hosts_file import reader

            reader.load(path, shown, lambda note, _: note)
    except ConfigError as error:
        file, line, column = _location(error, shown)
        rule = f"{kind.value if kind else 'job'}-file"
        if os.path.basename(file) == os.path.basename(shown):
            return LintFinding(shown, line, column, rule, error.message, error.hint, ERROR)
        return LintFinding(shown, 1, 1, rule, f"{error.where}: {error.message}", error.hint, ERROR)
    return None


def _location(error: ConfigError, shown: str) -> tuple[str, int, int]:
    """Return file, line and column of an error; the start of the file if it has no line."""
    file, *numbers = (error.where or "").rsplit(":", 2)
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):  # noqa: PLR2004 - line, column
        return shown, 1, 1
    return file.replace(os.sep, "/"), int(numbers[0]), int(numbers[1])


def _is_ignored(finding: LintFinding) -> bool:
    """Whether a comment or an ignore file excludes a finding."""
    try:
        text = text_file.decode(finding.file, read(finding.file))
    except ConfigError:
        return False
    return text is not None and (
        text.is_ignored(finding.line, finding.id) or is_ignored(finding.file)
    )


# -- fixing ----------------------------------------------------------------------------------------


def _fix(findings_by_file: dict[str, list[LintFinding]], *, ask: bool, show: bool) -> list[str]:
    """Show the changes, ask for confirmation, write; return the written files."""
    changes = {}
    for path, findings in findings_by_file.items():
        if not any(f.is_fixable for f in findings):
            continue
        old = read(path)
        new = apply_edits(old, findings)
        if new != old:
            changes[path] = new
            if show:
                secret = {f.line for f in findings if f.id == secrets.ID}
                diff = unified_diff(path.replace(os.sep, "/"), old, new, secret)
                text = "\n".join(printable(line, keep="\t") for line in diff.split("\n"))
                click.echo(text, nl=False)
    if not changes:
        say("nothing can be fixed automatically")
        return []
    files = quantity(len(changes), "file")
    if ask and not sys.stdin.isatty():
        say("not written: no terminal to ask for confirmation; add `--yes`")
        return []
    if ask and not click.confirm(f"write {files}?", err=True):
        return []
    for path, new in changes.items():
        _write(path, new)
    say(f"fixed {files}")
    return list(changes)


def _write(path: str, data: bytes) -> None:
    """Replace a file atomically, so that a full disk cannot leave half of it."""
    real = os.path.realpath(path)
    part = f"{real}.safelaunch-part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        shutil.copymode(real, part)
        os.replace(part, real)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        raise ConfigError(f"cannot write: {error.strerror}", where=path) from error


# -- output ----------------------------------------------------------------------------------------


def _print(findings: Sequence[LintFinding]) -> None:
    width = max(40, min(terminal_width(), _MAX_WIDTH))
    indent = " " * 6
    file = None
    for finding in findings:
        if finding.file != file:
            file = finding.file
            click.echo(file)
        click.echo(f"  {finding.line}:{finding.column} {finding.severity} {finding.id}")
        lines = wrap(finding.message, width, indent, indent)
        if finding.fix:
            lines += wrap(finding.fix, width, "    > ", indent)
        click.echo("\n".join(lines))


def _say_summary(
    findings: Sequence[LintFinding], files: int, paths: Sequence[str], *, fix: bool
) -> None:
    notes = sum(f.severity == NOTE for f in findings)
    count = len(findings) - notes
    summary = quantity(count, "finding") if count else "no findings"
    summary += f" in {quantity(files, 'file')}"
    say(summary + (f", {quantity(notes, 'note')}" if notes else ""))
    fixable = sum(f.is_fixable for f in findings)
    if fixable and not fix:
        from safelaunch.script import quote

        say(f"{fixable} can be fixed: safelaunch lint --fix {' '.join(map(quote, paths))}")


def _printable(finding: LintFinding) -> LintFinding:
    file, message = (printable(text, keep="\t") for text in (finding.file, finding.message))
    fix = None if finding.fix is None else printable(finding.fix, keep="\t")
    return replace(finding, file=file, message=message, fix=fix)
