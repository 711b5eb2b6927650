"""`safelaunch pull`: fetches files of a run from its host, or gives its code back."""

# ruff: noqa: PLC0415 - sync: `--help` does without

from __future__ import annotations

import fnmatch
import glob as glob_module
import os
from typing import TYPE_CHECKING

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.transfer.results import fetch_files
from safelaunch.errors import ConfigError, RunError, SafelaunchError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess


@click.command("pull")
@click.argument("files", metavar="RUN:GLOB", shell_complete=complete_run)
@click.argument("into", required=False, type=click.Path())
@click.option("--code", is_flag=True, help="Give back the code that RUN was launched with.")
@click.option("--force", is_flag=True, help="Overwrite local files that differ.")
@click.option("--node", type=click.IntRange(0), default=0, metavar="N", help="Node to fetch from.")
def command(files: str, into: str | None, code: bool, force: bool, node: int) -> int:
    """Fetch files of a run from its host, by a glob relative to the job's working directory.

    A pull that was interrupted continues where it stopped.

    \b
    safelaunch pull 'ppo:out/**/*.safetensors' results/
    safelaunch pull --code ppo ppo-code/
    """  # noqa: D301 - \b is click's mark
    name, _, glob = files.partition(":")
    if code:
        if glob:
            raise ConfigError(
                "`--code` gives back all files", hint=f"safelaunch pull --code {name}"
            )
        return _pull_code(catalog().find(name or None), into)
    if not glob:
        raise ConfigError(
            f"`{files}` names no files", hint="safelaunch pull 'RUN:out/*.json' results/"
        )
    run = catalog().find(name or None)
    node = store.node_number(run.record, node)
    record = RunRecord.read(store.node_dir(run.record, node)) or RunRecord()
    if not isinstance(run, RemoteRun):
        raise ConfigError(f"{run.id} ran on this machine", hint=f"its files are in {record.cwd}")
    if len(run.places()) > 1:
        from safelaunch.cli.transfer.results import merge_parts
        from safelaunch.remote.runs.part_outputs import merge_of, merged_name

        run.status()  # updates which parts have ended
        merge = merge_of(run.record)
        if merge is not None and fnmatch.fnmatchcase(merged_name(run.record, merge), glob):
            return 0 if merge_parts(run, into or ".") else 1
    fetch_files(run, node, [glob], into or ".", force=force)
    return 0


def _pull_code(run: RunAccess, into: str | None) -> int:
    """Write the tree that a run was launched with; what cannot be had is an error at the end."""
    from safelaunch.start.code.code_tree import missing_text, run_code

    code = run_code(run.record, store.home(os.environ))
    folder = into or f"{run.id}-code"
    notes: list[str] = []

    def fetch(paths: list[str], target: str) -> None:
        if not isinstance(run, RemoteRun) or code.record.target is None:
            return
        from safelaunch.sync.download.pull import pull

        patterns = [glob_module.escape(path) for path in paths]
        try:
            agent = run.session(store.node_number(run.record, None)).agent
            pull(agent, patterns, target, root=code.record.target)
        except SafelaunchError as e:  # it is one of several sources
            notes.append(f"{e}")

    missing = code.restore(folder, fetch)
    total = code.record.files
    say(f"{quantity(total - len(missing), 'file')} of {run.id} in {folder}, verified by hash")
    if missing:
        for note in notes:
            say(f"note: {note}")
        raise RunError(missing_text(missing, total), where=folder)
    return 0
