"""`safelaunch diagnose`: finds the root cause in a training log, or in the log of a run."""

# ruff: noqa: PLC0415 - the signature tables and the scanner take time to load: `--help` does without

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import TYPE_CHECKING

import click

from safelaunch.cli.connections import catalog
from safelaunch.cli.diagnose.show import format_diagnosis, to_json
from safelaunch.cli.output import print_json, say, terminal_width
from safelaunch.errors import ConfigError, RunNotFound
from safelaunch.runs.access import LogRequest, MissingLogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.diagnose.logs.sources import LogReader
    from safelaunch.runs.access import RunAccess
    from safelaunch.runtime.signatures.table import SignatureTable

_MAX_NOTES = 10  # shown on the screen


@click.command("diagnose", options_metavar="[OPTIONS]")
@click.argument("logs", nargs=-1, metavar="LOGS|RUN...")
@click.option("--all", "show_all", is_flag=True, help="List every finding, not only the cause.")
@click.option(
    "--signatures", multiple=True, metavar="PATH", help="Your own: a YAML file or folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *, logs: tuple[str, ...], show_all: bool, signatures: tuple[str, ...], as_json: bool
) -> int:
    """Find the root cause of a failure in logs: what happened, where, the evidence, what to do.

    LOGS are files of any size (also .gz), folders with the logs of all ranks or nodes, `-` for
    standard input, or one RUN of safelaunch. Ctrl-C stops reading, and diagnoses what was read.
    Exit code 0: no failure found, 1: a failure found, 2: nothing could be read, 130: Ctrl-C.
    """
    from safelaunch.diagnose.root_cause import diagnose

    table = _table(signatures)
    names = _names(logs)
    run = _run(names)
    failure = None if run is None else run.failure(run.status())
    diagnosis = diagnose(_readers(names, run), signatures=table)
    if run is not None and failure is not None:
        from safelaunch.diagnose import recorded_failure

        recorded_failure.put_first(diagnosis, failure, run.id)
    if names == ["-"] and not logs and not diagnosis.lines:
        raise ConfigError("standard input is empty", hint="name a log, a folder of logs, or a run")
    if diagnosis.unreadable == diagnosis.logs and not diagnosis.causes:
        hint = "name a text file with its output"
        hint = hint if diagnosis.logs == 1 else "none of the logs can be read"
        raise ConfigError("; ".join(diagnosis.notes[:_MAX_NOTES]), hint=hint)
    code = 130 if diagnosis.interrupted else int(diagnosis.failed)
    if as_json:
        print_json(to_json(diagnosis, show_all=show_all))
        return code
    for note in diagnosis.notes[:_MAX_NOTES]:
        say(f"note: {note}")
    if len(diagnosis.notes) > _MAX_NOTES:
        say(f"note: {len(diagnosis.notes) - _MAX_NOTES} more notes: --json lists them all")
    for line in format_diagnosis(diagnosis, terminal_width(), show_all=show_all):
        click.echo(line)
    return code


def _names(logs: tuple[str, ...]) -> list[str]:
    """Return the arguments, or `-` if there are none and standard input is a file or pipe."""
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
    from safelaunch.diagnose.logs.sources import ChunkStream, LogReader, LogSource, find_sources

    if run is not None:
        return [LogReader(LogSource(run.id), ChunkStream(_combined_log(run)))]

    def report_silence() -> None:
        say("standard input is silent; waiting for its end (Ctrl-C diagnoses what came so far)")

    return [
        LogReader(source, sys.stdin.buffer if source.path == "-" else None, report_silence)
        for source in find_sources(names)
    ]


def _run(names: list[str]) -> RunAccess | None:
    """Return the newest run without names, the named run, or None for paths."""
    if not names:
        return catalog().find()
    if len(names) > 1 or names[0] == "-" or os.path.exists(names[0]):
        return None
    with contextlib.suppress(RunNotFound):
        return catalog().find(names[0])
    return None  # then it is a path that does not exist


def _combined_log(run: RunAccess) -> Iterator[bytes]:
    with contextlib.suppress(MissingLogError):
        yield from run.log(LogRequest(max(run.attempts(), default=1)))


def _table(paths: tuple[str, ...]) -> SignatureTable | None:
    """Return the table with the user's own signatures before the built-in ones."""
    if not paths:
        return None
    from safelaunch.diagnose import signature_files
    from safelaunch.runtime.signatures import table

    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        names = [n for n in sorted(os.listdir(path)) if n.endswith((".yaml", ".yml"))]
        if not names:
            raise ConfigError(f"{path}: no signatures in this folder (*.yaml)", hint="name a file")
        files += [os.path.join(path, name) for name in names]
    try:
        own = list(signature_files.read_files(files))
    except signature_files.SignatureError as e:
        raise ConfigError(str(e), hint="docs/signatures.md describes a signature") from None
    return table.SignatureTable([*own, *table.records()])
