"""`safelaunch lint`: what is wrong in job files, training configs and scripts, before a start."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from safelaunch.cli.lint.select_files import MOST, choose, is_ignored, read
from safelaunch.cli.output import print_json, say, wrap
from safelaunch.errors import ConfigError
from safelaunch.lint import file_text, secrets
from safelaunch.lint.file_kinds import Kind
from safelaunch.lint.finding import ERROR, NOTE, Finding
from safelaunch.lint.fix import difference, mended
from safelaunch.lint.run import check
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.lint.env.model import Facts

_WIDEST = 100


@click.command("lint", options_metavar="[OPTIONS]")
@click.argument("paths", nargs=-1, metavar="FILES|FOLDERS...")
@click.option("--fix", is_flag=True, help="Mend what is mechanical; the difference is shown first.")
@click.option("--yes", is_flag=True, help="With --fix: write without asking.")
@click.option(
    "--host", metavar="NAME", help="Judge variables by the libraries of a host, as last asked."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *, paths: tuple[str, ...], fix: bool, yes: bool, host: str | None, as_json: bool
) -> int:
    """Find what is wrong in job files, training configs and scripts, before a start.

    YAML that loaders read differently, broken shell scripts, secrets, environment variables that
    nothing reads. A job is judged with what it extends, and by what `safelaunch facts` kept of its
    hosts; none is asked. Exit code 1 if something was found. `# safelaunch: ignore` in a line, and
    .safelaunchlintignore, leave out what is meant.
    """
    if not paths:
        raise ConfigError("which files?", hint="safelaunch lint . looks at all below this folder")
    if yes and not fix:
        raise ConfigError("`--yes` without `--fix`", hint="give both")
    if fix and as_json and not yes:
        raise ConfigError("`--fix --json` cannot ask", hint="give --yes too")
    known = None if host is None else _known(host)
    chosen = choose(paths)
    _say_left_out(chosen.ignored, chosen.others)
    found = _all(chosen.files, known)
    own = {path: found[path] for path in chosen.files}
    if fix and _fix(own, ask=not yes, show=not as_json):
        found = _all(chosen.files, known)
    findings = [_printable(f) for per_file in found.values() for f in per_file]
    if as_json:
        listed = [f.as_json() for f in findings]
        print_json({"version": 1, "files": len(chosen.files), "findings": listed})
    else:
        _print(findings)
        _say_summary(findings, len(chosen.files), paths, fix=fix)
    return int(any(f.severity != NOTE for f in findings))


def _say_left_out(ignored: Sequence[str], others: Sequence[str]) -> None:
    for path in ignored:
        say(f"{path}: left out, an ignore file says so")
    for path in others:
        say(f"{path}: left out, there are no rules for such a file")


def _known(host: str) -> Facts:
    """Return what is kept of a host. Raises ConfigError where that is nothing: it is not asked."""
    from safelaunch.cli.lint import job_files  # noqa: PLC0415 - as above
    from safelaunch.runs import store  # noqa: PLC0415 - only for such files

    found = job_files.kept(store.home(os.environ), host)
    if found is None:
        hint = "safelaunch facts" + ("" if host == "localhost" else f" --host {host}")
        raise ConfigError(f"no facts of `{host}` are kept", hint=f"{hint} asks for them")
    return found


# -- all files -------------------------------------------------------------------------------------


def _all(files: Sequence[str], known: Facts | None) -> dict[str, list[Finding]]:
    """Return what is wrong in files and in those that they extend, each thing once.

    What a job says of a file that it extends counts: it knows the launcher, the file may not.
    """
    paths = {_whole(path): path for path in files}
    found: dict[str, dict[tuple[int, int, str], Finding]] = {path: {} for path in files}
    for path in files:
        for finding in _findings(path, known):
            file = _whole(finding.file)
            at = found.setdefault(paths.get(file, finding.file), {})
            key = (finding.line, finding.column, finding.id)
            if key not in at or file != _whole(path):
                at[key] = finding
    return {path: _ordered(each.values()) for path, each in found.items()}


def _whole(path: str) -> str:
    return os.path.normcase(os.path.abspath(path))


def _ordered(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (f.line, f.column, f.id))


# -- one file --------------------------------------------------------------------------------------


def _findings(path: str, known: Facts | None) -> Iterator[Finding]:
    """Yield what is wrong in a file; of a job also what is wrong in those that it extends."""
    shown = path.replace(os.sep, "/")
    try:
        data = read(path)
    except ConfigError as e:  # found in a folder; a named one was refused before
        yield Finding(shown, 1, 1, "unreadable", e.message, severity=ERROR)
        return
    if len(data) > MOST:
        message = "more than 1 MiB: not looked at"
        yield Finding(shown, 1, 1, "too-large", message, severity=NOTE)
        return
    checked = check(shown, data, known)
    if checked.kind is Kind.JOB:
        yield from _of_job(path, shown, checked.findings, known)
        return
    yield from checked.findings
    refused = _refused(checked.kind, path, shown)
    if refused is not None and not _is_ignored(refused):
        yield refused


def _of_job(
    path: str, shown: str, findings: Sequence[Finding], known: Facts | None
) -> Iterator[Finding]:
    from safelaunch.cli.lint import job_files  # noqa: PLC0415 - as above
    from safelaunch.runs import store  # noqa: PLC0415 - only for such files

    job = job_files.judge(path, shown, known, store.home(os.environ))
    alone = job.variables is None
    yield from (f for f in findings if alone or not f.id.startswith("env-"))
    yield from (f for f in job.variables or () if not _is_ignored(f))
    if job.refused is not None:
        file, line, column = _place(job.refused, shown)
        message, hint = job.refused.message, job.refused.hint
        refused = Finding(file, line, column, "job-file", message, hint, ERROR)
        if not _is_ignored(refused):
            yield refused


def _refused(kind: Kind | None, path: str, shown: str) -> Finding | None:
    """Return what the reader of profiles and hosts files refuses, as a finding."""
    try:
        _read_own(kind, path, shown)
    except ConfigError as e:
        file, line, column = _place(e, shown)
        rule = f"{kind.value if kind else 'job'}-file"
        if os.path.basename(file) == os.path.basename(shown):
            return Finding(shown, line, column, rule, e.message, e.hint, ERROR)
        return Finding(shown, 1, 1, rule, f"{e.where}: {e.message}", e.hint, ERROR)
    return None


def _read_own(kind: Kind | None, path: str, shown: str) -> None:
    if kind is Kind.PROFILE:
        from safelaunch.config import profiles  # noqa: PLC0415 - only for such files
        from safelaunch.model import Origin  # noqa: PLC0415 - as above

        whole = os.path.abspath(path)
        profiles.load(whole, Origin(shown), os.path.dirname(whole))
    elif kind is Kind.HOSTS:
        from safelaunch.config.hosts_file import reader  # noqa: PLC0415 - as above

        reader.load(path, shown, lambda said, _: said)


def _place(error: ConfigError, shown: str) -> tuple[str, int, int]:
    """Return file, line and column of an error; the beginning of the file where it says none."""
    file, *numbers = (error.where or "").rsplit(":", 2)
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):  # noqa: PLR2004 - line, column
        return shown, 1, 1
    return file.replace(os.sep, "/"), int(numbers[0]), int(numbers[1])


def _is_ignored(finding: Finding) -> bool:
    """Whether a comment or an ignore file asks to leave a finding out."""
    try:
        text = file_text.read(finding.file, read(finding.file))
    except ConfigError:
        return False
    return text is not None and (text.ignores(finding.line, finding.id) or is_ignored(finding.file))


# -- mending ---------------------------------------------------------------------------------------


def _fix(found: dict[str, list[Finding]], *, ask: bool, show: bool) -> list[str]:
    """Show what would change, ask, write; return the files that were written."""
    changes = {}
    for path, findings in found.items():
        if not any(f.is_mechanical for f in findings):
            continue
        old = read(path)
        new = mended(old, findings)
        if new != old:
            changes[path] = new
            if show:
                secret = {f.line for f in findings if f.id == secrets.ID}
                _show_difference(path, old, new, secret)
    if not changes:
        say("nothing here can be mended mechanically")
        return []
    if ask and not _agreed(len(changes)):
        return []
    for path, new in changes.items():
        _write(path, new)
    say(f"mended {_count(len(changes), 'file')}")
    return list(changes)


def _show_difference(path: str, old: bytes, new: bytes, hidden: set[int]) -> None:
    text = difference(path.replace(os.sep, "/"), old, new, hidden)
    click.echo("\n".join(printable(line, keep="\t") for line in text.split("\n")), nl=False)


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        say("not written: there is no terminal to ask on; --yes writes")
        return False
    return click.confirm(f"write {_count(count, 'file')}?", err=True)


def _write(path: str, data: bytes) -> None:
    """Replace a file as a whole, so that a full disk cannot leave half of it."""
    real = os.path.realpath(path)
    part = f"{real}.safelaunch-part"
    try:
        with open(part, "wb") as file:
            file.write(data)
        shutil.copymode(real, part)
        os.replace(part, real)
    except OSError as e:
        if os.path.exists(part):
            os.unlink(part)
        raise ConfigError(f"cannot write: {e.strerror}", where=path) from e


# -- what is printed -------------------------------------------------------------------------------


def _print(findings: Sequence[Finding]) -> None:
    width = max(40, min(shutil.get_terminal_size().columns, _WIDEST))
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
    findings: Sequence[Finding], files: int, paths: Sequence[str], *, fix: bool
) -> None:
    real = [f for f in findings if f.severity != NOTE]
    notes = len(findings) - len(real)
    said = f"{_count(len(real), 'finding') if real else 'no findings'} in {_count(files, 'file')}"
    if notes:
        said += f", {_count(notes, 'note')}"
    say(said)
    mechanical = sum(f.is_mechanical for f in findings)
    if mechanical and not fix:
        from safelaunch.script import quote  # noqa: PLC0415 - only for the hint

        say(f"{mechanical} can be mended: safelaunch lint --fix {' '.join(map(quote, paths))}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _printable(finding: Finding) -> Finding:
    fix = None if finding.fix is None else printable(finding.fix, keep="\t")
    return replace(
        finding,
        file=printable(finding.file, keep="\t"),
        message=printable(finding.message, keep="\t"),
        fix=fix,
    )
