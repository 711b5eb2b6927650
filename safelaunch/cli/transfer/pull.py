"""`safelaunch pull`: fetches files of a run from its host."""

# ruff: noqa: PLC0415 - sync: `--help` does without

from __future__ import annotations

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.transfer.progress_bar import Bar
from safelaunch.errors import ConfigError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import store
from safelaunch.runtime.records import RunRecord


@click.command("pull")
@click.argument("files", metavar="RUN:GLOB", shell_complete=complete_run)
@click.argument("into", default=".", type=click.Path())
@click.option("--force", is_flag=True, help="Overwrite local files that differ.")
@click.option("--node", type=click.IntRange(0), default=0, metavar="N", help="Node to fetch from.")
def command(files: str, into: str, force: bool, node: int) -> int:
    """Fetch files of a run from its host, by a glob relative to the job's working directory.

    A pull that was interrupted continues where it stopped.

    \b
    safelaunch pull 'ppo:out/**/*.safetensors' results/
    """  # noqa: D301 - \b is click's mark
    name, _, glob = files.partition(":")
    if not glob:
        raise ConfigError(
            f"`{files}` names no files", hint="safelaunch pull 'RUN:out/*.json' results/"
        )
    run = catalog().find(name or None)
    node = store.node_number(run.record, node)
    record = RunRecord.read(store.node_dir(run.record, node)) or RunRecord()
    if not isinstance(run, RemoteRun):
        raise ConfigError(f"{run.id} ran on this machine", hint=f"its files are in {record.cwd}")
    from safelaunch.sync.pull import pull

    agent = run.session(node).agent
    with Bar() as bar:
        pulled = pull(agent, [glob], into, bar.show, root=record.cwd, force=force)
    for line in pulled.lines():
        say(line)
    return 0
