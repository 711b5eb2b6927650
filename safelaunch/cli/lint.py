"""`safelaunch lint`: what is wrong in job files, training configs and scripts, before a start."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from safelaunch.cli import print_json, say
from safelaunch.cli.lint_files import MOST, choose, read
from safelaunch.errors import ConfigError
from safelaunch.lint import secrets, source
from safelaunch.lint.check import check
from safelaunch.lint.finding import ERROR, NOTE, Finding
from safelaunch.lint.kinds import Kind
from safelaunch.lint.mend import difference, mended

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDEST = 100


@click.command("lint", options_metavar="[OPTIONS]")
@click.argument("paths", nargs=-1, metavar="FILES|FOLDERS...")
@click.option("--fix", is_flag=True, help="Mend what is mechanical; the difference is shown first.")
@click.option("--yes", is_flag=True, help="With --fix: write without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[str, ...], fix: bool, yes: bool, as_json: bool) -> int:
    """Find what is wrong in job files, training configs and scripts, before a start.

    YAML that loaders read differently, broken shell scripts, secrets, environment variables that
    nothing reads. Exit code 1 if something was found. `# safelaunch: ignore` in a line, and
    .safelaunchlintignore, leave out what is meant.
    """
    if not paths:
        raise ConfigError("which files?", hint="safelaunch lint . looks at all below this folder")
    if yes and not fix:
        raise ConfigError("`--yes` without `--fix`", hint="give both")
    if fix and as_json and not yes:
        raise ConfigError("`--fix --json` cannot ask", hint="give --yes too")
    chosen = choose(paths)
    _say_left_out(chosen.ignored, chosen.others)
    found = {path: _findings(path) for path in chosen.files}
    if fix:
        wrote = _fix(found, ask=not yes, show=not as_json)
        found.update((path, _findings(path)) for path in wrote)
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


# -- one file --------------------------------------------------------------------------------------


def _findings(path: str) -> list[Finding]:
    shown = path.replace(os.sep, "/")
    try:
        data = read(path)
    except ConfigError as e:  # found in a folder; a named one was refused before
        return [Finding(shown, 1, 1, "unreadable", e.message, severity=ERROR)]
    if len(data) > MOST:
        message = "more than 1 MiB: not looked at"
        return [Finding(shown, 1, 1, "too-large", message, severity=NOTE)]
    checked = check(shown, data)
    found = list(checked.findings)
    refused = _refused(checked.kind, path, shown)
    if refused is not None and not _is_ignored(data, refused):
        found.append(refused)
    return sorted(found, key=lambda f: (f.line, f.column, f.id))


def _refused(kind: Kind | None, path: str, shown: str) -> Finding | None:
    """Return what the reader of our own files refuses, as a finding."""
    try:
        _read_own(kind, path, shown)
    except ConfigError as e:
        line, column, message = _place(e, shown)
        rule = f"{kind.value if kind else 'job'}-file"
        return Finding(shown, line, column, rule, message, e.hint, ERROR)
    return None


def _read_own(kind: Kind | None, path: str, shown: str) -> None:
    if kind is Kind.JOB:
        from safelaunch.config.load import read_file  # noqa: PLC0415 - only for such files
        from safelaunch.config.schema import JOB  # noqa: PLC0415 - as above

        JOB.read(read_file(path, shown))
    elif kind is Kind.PROFILE:
        from safelaunch.config import profiles  # noqa: PLC0415 - as above
        from safelaunch.model import Origin  # noqa: PLC0415 - as above

        whole = os.path.abspath(path)
        profiles.load(whole, Origin(shown), os.path.dirname(whole))
    elif kind is Kind.HOSTS:
        from safelaunch.config import hosts  # noqa: PLC0415 - as above

        hosts.load(path, shown, lambda said, _: said)


def _place(error: ConfigError, shown: str) -> tuple[int, int, str]:
    """Return line and column of an error, and its message, with the place where it is another."""
    where = error.where or ""
    file, _, numbers = where.partition(":") if where.count(":") == 2 else (where, "", "")  # noqa: PLR2004 - file:line:column
    line, _, column = numbers.partition(":")
    if not (line.isdecimal() and column.isdecimal()):
        return 1, 1, error.message
    is_here = os.path.basename(file) == os.path.basename(shown)
    message = error.message if is_here else f"{where}: {error.message}"
    return (int(line), int(column), message) if is_here else (1, 1, message)


def _is_ignored(data: bytes, finding: Finding) -> bool:
    text = source.read(finding.file, data)
    return text is not None and text.ignores(finding.line, finding.id)


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
    click.echo("\n".join(_visible(line) for line in text.split("\n")), nl=False)


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
    import textwrap  # noqa: PLC0415 - only where something was found

    width = max(40, min(shutil.get_terminal_size().columns, _WIDEST))
    wrapper = textwrap.TextWrapper(
        width, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * 6
    )
    file = None
    for finding in findings:
        if finding.file != file:
            file = finding.file
            click.echo(file)
        click.echo(f"  {finding.line}:{finding.column} {finding.severity} {finding.id}")
        wrapper.initial_indent = " " * 6
        click.echo(wrapper.fill(finding.message))
        if finding.fix:
            wrapper.initial_indent = "    > "
            click.echo(wrapper.fill(finding.fix))


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
    fix = None if finding.fix is None else _visible(finding.fix)
    return replace(finding, file=_visible(finding.file), message=_visible(finding.message), fix=fix)


def _visible(text: str) -> str:
    """Return text that a terminal shows as it is: no control characters, no lone surrogates."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )
