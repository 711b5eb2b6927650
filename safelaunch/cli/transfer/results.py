"""Fetches files of a run from its host: by `pull`, and those of the job's own `pull` at its end."""

# ruff: noqa: PLC0415 - sync: `--help` does without

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.cli.output import report, say
from safelaunch.cli.transfer.progress_bar import Bar
from safelaunch.errors import ConfigError, SafelaunchError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runs.access import RunAccess


def fetch_files(
    run: RemoteRun, node: int, patterns: Sequence[str], into: str, *, force: bool = False
) -> int:
    """Fetch files that match, and print how many; return that. Raises SafelaunchError."""
    from safelaunch.sync.download.pull import pull

    record = RunRecord.read(store.node_dir(run.record, node)) or RunRecord()
    agent = run.session(node).agent
    with Bar() as bar:
        # the run's own copy of the project may be gone: what it made is in the project's folder
        in_place = f"{record.place}{record.cwd[len(record.tree) :]}" if record.tree else None
        pulled = pull(
            agent, patterns, into, bar.show, root=record.cwd, fallback=in_place, force=force
        )
    for line in pulled.lines():
        say(line)
    return len(pulled.files)


def fetch_results(run: RunAccess, patterns: Sequence[str]) -> bool:
    """Fetch what the job of a run on a host wants here; whether that has succeeded.

    Its host learns of it: only then, or after a time, is a rented machine turned off.
    """
    if not isinstance(run, RemoteRun):
        return True
    from safelaunch.ssh.config.local_user import current_user

    try:
        node = store.node_number(run.record, 0)
        try:
            count = fetch_files(run, node, patterns, run.id)
        except ConfigError as e:  # there is nothing to fetch
            say(f"note: pull: {e.message}")
            count = 0
        place, label = run.place(node), current_user(os.environ).label
        run.pool.call(place.host, "runs.pulled", id=run.id, node=node, client=label, files=count)
    except SafelaunchError as e:
        report(e)
        say(f"  again     safelaunch wait {run.id}")
        return False
    return True


def merge_parts(run: RunAccess, into: str) -> bool:
    """Merge the outputs of parts that several hosts share; whether nothing has failed.

    `into` is the folder in which the file has the name that the job says.
    """
    if not isinstance(run, RemoteRun) or len(run.places()) == 1:
        return True
    from safelaunch.remote.runs import part_outputs

    merge = part_outputs.merge_of(run.record)
    if merge is None:
        return True
    path = os.path.join(into, part_outputs.merged_name(run.record, merge))
    try:
        with Bar() as bar:
            count = part_outputs.merge_outputs(run, merge, path, bar.show)
    except SafelaunchError as e:
        report(e)
        return False
    hosts = ", ".join(place.host for place in run.places())
    say(f"the outputs of {quantity(count, 'part')} from {hosts} are merged in {path}")
    return True
