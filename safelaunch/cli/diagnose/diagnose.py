"""`safelaunch diagnose`: the root cause in any training log, or in a run's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.diagnose.show import screen, to_json
from safelaunch.cli.output import print_json, say
from safelaunch.errors import ConfigError, RunNotFound
from safelaunch.runs.access import LogRequest, MissingLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.diagnose.log_sources import LogReader
    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.signatures.table import Table

_FEW = 10  # notes that are shown


@click.command("diagnose", options_metavar="[OPTIONS]")
@click.argument("logs", nargs=-1, metavar="LOGS|RUN...")
@click.option("--all", "show_all", is_flag=True, help="List every finding, not only the cause.")
@click.option(
    "--signatures",
    multiple=True,
    metavar="PATH",
    help="Signatures of your own: a YAML file or a folder of them. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *, logs: tuple[str, ...], show_all: bool, signatures: tuple[str, ...], as_json: bool
) -> int:
    """Name the root cause in logs: what happened, where, the proof, what to do.

    LOGS are files of any size (also .gz), folders with the logs of all ranks or nodes, `-` for
    standard input, or one RUN of safelaunch's own. Ctrl-C ends the reading: what was read so far
    is judged. Exit code 0: no failure found, 1: one found, 2: nothing could be read, 130: Ctrl-C.
    """
    from safelaunch.diagnose.root_cause import diagnose  # noqa: PLC0415 - the tables take time to read

    table = _table(signatures)
    names = _names(logs)
    run = _run(names)
    failure = None if run is None else run.failure(run.status())
    told = diagnose(_readers(names, run), signatures=table)
    if run is not None and failure is not None:
        from safelaunch.diagnose import recorded_failure  # noqa: PLC0415 - as the engine

        recorded_failure.put_first(told, failure, run.id)
    if names == ["-"] and not logs and not told.lines:
        raise ConfigError("standard input is empty", hint="name a log, a folder of logs, or a run")
    if told.unreadable == told.logs and not told.causes:
        raise ConfigError("; ".join(told.notes[:_FEW]), hint=_hint(told.logs))
    code = 130 if told.interrupted else int(told.failed)
    if as_json:
        print_json(to_json(told, show_all=show_all))
        return code
    for note in told.notes[:_FEW]:
        say(f"note: {note}")
    if len(told.notes) > _FEW:
        say(f"note: {len(told.notes) - _FEW} more logs of which not all was read: --json has them")
    width = shutil.get_terminal_size().columns
    for line in screen(told, width, show_all=show_all):
        click.echo(line)
    return code


def _hint(logs: int) -> str:
    return "name a text file with its output" if logs == 1 else "none of the logs can be read"


def _names(logs: tuple[str, ...]) -> list[str]:
    """Return what is named; standard input where nothing is and something may come from there."""
    names = list(logs)
    if sys.stdin is None:  # `<&-`
        if "-" in names:
            raise ConfigError("standard input is closed", hint="name a log")
        return names
    if not names and not stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
        return ["-"]  # neither a terminal nor /dev/null: those mean the newest run
    if "-" in names and sys.stdin.isatty():
        say("paste the log; Ctrl-D on a line of its own ends it")
    return names


def _readers(names: list[str], run: RunAccess | None) -> list[LogReader]:
    from safelaunch.diagnose import log_sources  # noqa: PLC0415 - as the engine

    if run is not None:
        return [
            log_sources.LogReader(
                log_sources.LogSource(run.id), log_sources.ChunkStream(_log_of(run))
            )
        ]
    found = log_sources.find_sources(names)
    return [
        log_sources.LogReader(one, sys.stdin.buffer if one.path == "-" else None, _waiting)
        for one in found
    ]


def _waiting() -> None:
    say("standard input is silent; waiting for its end (Ctrl-C tells what came so far)")


def _run(names: list[str]) -> RunAccess | None:
    """Return the run that is meant: the newest where nothing is named, else one that is no path."""
    if not names:
        return catalog().find()
    if len(names) > 1 or names[0] == "-" or os.path.exists(names[0]):
        return None
    try:
        return catalog().find(names[0])
    except RunNotFound:
        return None  # then it is a path that is not there


def _log_of(run: RunAccess) -> Iterator[bytes]:
    with contextlib.suppress(MissingLogError):
        yield from run.log(LogRequest(max(run.attempts(), default=1)))


def _table(paths: tuple[str, ...]) -> Table | None:
    """Return the table with the user's own signatures before ours. Raises ConfigError."""
    if not paths:
        return None
    from safelaunch.diagnose import signature_files  # noqa: PLC0415 - only own signatures pay for it
    from safelaunch.runtime.signatures import table  # noqa: PLC0415 - as the engine

    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        names = [n for n in sorted(os.listdir(path)) if n.endswith((".yaml", ".yml"))]
        if not names:
            raise ConfigError(f"{path}: no signatures in there (*.yaml)", hint="name the file")
        files += [os.path.join(path, name) for name in names]
    try:
        own = list(signature_files.read_files(files))
    except signature_files.SignatureError as e:
        raise ConfigError(str(e), hint="docs/signatures.md describes a signature") from None
    return table.Table([*own, *table.records()])
