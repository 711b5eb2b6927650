"""`safelaunch push`: copies a file or folder to a host: a model, data, wheels."""

# ruff: noqa: PLC0415 - sync: `--help` does without

from __future__ import annotations

import contextlib
import os

import click

from safelaunch.cli.connections import host_pool
from safelaunch.cli.hosts.hosts import complete_host
from safelaunch.cli.output import say
from safelaunch.cli.transfer.progress_bar import Bar
from safelaunch.config.paths import ASSETS
from safelaunch.errors import ConfigError
from safelaunch.runs import store
from safelaunch.start import trust


@click.command("push")
@click.argument("path", type=click.Path())
@click.option(
    "--host", metavar="NAME", required=True, shell_complete=complete_host, help="Target host."
)
@click.option("--to", metavar="DIR", help=f"Folder on the host to copy into; default: {ASSETS}.")
@click.option("--force", is_flag=True, help="Overwrite files on the host that differ.")
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
def command(path: str, host: str, to: str | None, force: bool, hosts_path: str | None) -> int:
    """Copy a file or folder to a host. Files that are the same there are not sent again.

    A push that was interrupted continues where it stopped.

    \b
    safelaunch push models/Qwen2-7B --host gpu1
    safelaunch push wheels --host gpu1 --to /data
    """  # noqa: D301 - \b is click's mark
    if not os.path.exists(path):
        raise ConfigError(f"no such file or folder: {path}")
    from safelaunch.sync.push import push_file

    agent = host_pool(hosts_path).session(host).agent
    folder = to or ASSETS
    if folder == "~" or folder.startswith("~/"):
        folder = str(agent.call("start.look")["home"]) + folder[1:]
    if not folder.startswith("/"):
        raise ConfigError(
            f"`--to {to}` is not absolute", hint="for example /data, or ~/data in the host's home"
        )
    target = f"{folder.rstrip('/')}/{os.path.basename(os.path.abspath(path))}"
    home = store.home(os.environ)
    cache = os.path.join(home, "cache")
    with Bar() as bar:
        summary = push_file(agent, path, target, bar.show, force=force, report=say, cache=cache)
    real = os.path.realpath(path)
    with contextlib.suppress(OSError):  # then a job that needs it asks
        trust.Approvals(home).add(trust.on_hosts([host]), [trust.Reach("asset", real, real)])
    for line in summary.lines(host, removes=False):
        say(line)
    click.echo(target)
    return 0
