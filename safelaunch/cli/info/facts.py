"""`safelaunch facts`: what a host has, as the job's interpreter sees it there."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.connections import host_pool
from safelaunch.cli.info.show_facts import lines
from safelaunch.cli.output import print_json, say, warn
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import HostError
from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts
from safelaunch.remote.hosts.probe_facts import facts_of_hosts, local_facts
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNREACHABLE = 4  # exit code


@click.command("facts")
@click.option(
    "--host", "names", multiple=True, metavar="NAME", help="A host or group (again for more)."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option(
    "--python", metavar="PATH", help="The job's interpreter there, instead of the host entry's."
)
@click.option(
    "--deep", is_flag=True, help="Import torch as well, and ask it for its versions and GPUs."
)
@click.option("--refresh", is_flag=True, help="Ask now, also where it was asked lately.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    names: tuple[str, ...],
    hosts_path: str | None,
    python: str | None,
    deep: bool,
    refresh: bool,
    as_json: bool,
) -> int:
    """Show what this machine, or hosts, have: cards, memory, disks, network, Python, torch, NCCL.

    Nothing is changed there. What is asked of a host is kept for ten minutes; --refresh asks anew.
    """
    home = store.home(os.environ)
    options, saved = ProbeOptions(python, deep), SavedFacts(home, say)
    if not names:
        found: list[dict[str, Any] | HostError] = [local_facts(saved, options, os.environ)]
        hosts: Sequence[str] = (hosts_file.LOCAL,)
    else:
        pool = host_pool(hosts_path)
        hosts = pool.expand(names)
        found = facts_of_hosts(pool, saved, hosts, options, refresh=refresh)
    if as_json:
        pairs = zip(hosts, found, strict=True)
        print_json({"version": 1, "hosts": [_json(host, one) for host, one in pairs]})
    else:
        _show(hosts, found)
    return _UNREACHABLE if any(isinstance(one, HostError) for one in found) else 0


def _json(host: str, found: dict[str, Any] | HostError) -> dict[str, Any]:
    if isinstance(found, HostError):
        return {"host": host, "error": str(found), "hint": found.hint}
    return found


def _show(hosts: Sequence[str], found: Sequence[dict[str, Any] | HostError]) -> None:
    width = min(shutil.get_terminal_size((80, 24)).columns, 120)
    is_first = True
    for host, one in zip(hosts, found, strict=True):
        if isinstance(one, HostError):
            warn(f"{host}: {one.message}" + (f"; {one.hint}" if one.hint else ""))
            continue
        if not is_first:
            click.echo()
        is_first = False
        for line in lines(one, width):
            click.echo(line)
