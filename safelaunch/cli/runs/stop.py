"""`safelaunch stop`: ends a run, and verifies that no process of it is left."""

from __future__ import annotations

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json
from safelaunch.cli.runs import groups
from safelaunch.cli.runs.follow import headline
from safelaunch.errors import RunError
from safelaunch.runs import store

_LEFT = "no process is left"
# the run had no cgroup of its own
_UNPROVED = "no process that can be recognised is left (not proved: its supervisor was killed)"


@click.command("stop")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="RUN is on this host, of any client."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between TERM and KILL.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    run: str | None, hosts: tuple[str, ...], hosts_path: str | None, grace: float, as_json: bool
) -> int:
    """Stop a run: send TERM, after the grace period KILL, and verify that no process is left.

    Without RUN, or with a job's name, only one such run may be running, with `--host` there.
    """
    group = groups.find_group(run)
    if group is not None:
        return groups.stop(group, grace, as_json=as_json)
    access = catalog().find_live(run, unique=True, hosts=hosts, hosts_path=hosts_path)
    status, had_ended = access.stop(grace)
    if as_json:
        print_json(
            store.show(access.record, status, access.ranks(), access.failure(status)).to_json()
        )
    if status.state == "unknown":
        raise RunError(str(status.reason), where=access.id, hint="stop it on its host")
    if status.alive:
        raise RunError(
            f"{status.alive} processes of {access.id} cannot be killed (blocked in the kernel)"
        )
    if not as_json:
        left = _LEFT if status.proof else _UNPROVED
        if status.has_live_end:
            left = ""
        before = "had already ended: " if had_ended else ""
        click.echo(headline(access, status, before, f"; {left}" if left else ""))
    return 0
