"""`safelaunch pull`: files that a run made on its host. Goes on where it was cut."""

from __future__ import annotations

import os

import click

from safelaunch import runs
from safelaunch.cli import looking, say
from safelaunch.cli.bar import Bar
from safelaunch.cli.complete import complete_run
from safelaunch.errors import ConfigError
from safelaunch.remote import mirror
from safelaunch.runtime import state


@click.command("pull")
@click.argument("what", metavar="RUN:GLOB", shell_complete=complete_run)
@click.argument("into", default=".", type=click.Path())
@click.option("--force", is_flag=True, help="Overwrite other files of that name here.")
@click.option("--node", type=click.IntRange(0), default=0, metavar="N", help="Of which host.")
def command(what: str, into: str, force: bool, node: int) -> int:
    """Fetch files of a run from its host, by a glob relative to the job's working directory.

    \b
    safelaunch pull 'ppo:out/**/*.safetensors' results/
    """  # noqa: D301 - \b is click's mark
    name, colon, glob = what.partition(":")
    if not colon or not glob:
        raise ConfigError(
            f"`{what}` names no files", hint="safelaunch pull 'RUN:out/*.json' results/"
        )
    run = runs.find(runs.home(os.environ), name or None)
    at = mirror.pointer(run) if looking.is_remote(run) else None
    node = runs.node_number(run, node)
    spec = state.read_json(os.path.join(run.folder, f"node-{node}", "run.json")) or {}
    if at is None:
        raise ConfigError(
            f"{run.id} ran on this machine", hint=f"its files are in {spec.get('cwd')}"
        )
    from safelaunch.sync import pull  # noqa: PLC0415 - --help does without

    agent = looking.looker(at.hosts_file).session(at.of(node).host).agent
    with Bar() as bar:
        pulled = pull(agent, [glob], into, bar.show, root=str(spec.get("cwd")), force=force)
    for line in pulled.lines():
        say(line)
    return 0
