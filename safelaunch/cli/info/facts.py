"""`safelaunch facts`: the hardware and software of machines, as the job's interpreter sees them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.connections import host_pool
from safelaunch.cli.info.show_facts import lines
from safelaunch.cli.output import print_json, say, terminal_width, warn
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import HostError
from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts
from safelaunch.remote.hosts.probe_facts import facts_of_hosts, local_facts
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("facts")
@click.option("--host", "names", multiple=True, metavar="NAME", help="Host or group; repeatable.")
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--python", metavar="PATH", help="Interpreter, instead of the host entry's.")
@click.option("--deep", is_flag=True, help="Also import torch; show its versions and GPUs.")
@click.option("--refresh", is_flag=True, help="Probe again, even if the stored facts are recent.")
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
    """Show what this machine, or hosts, have: GPUs, memory, disks, network, Python, torch, NCCL.

    Nothing is changed on them. The facts of a host are reused for ten minutes; --refresh probes
    again. Exit code 4 if a host could not be probed.
    """
    hosts, answers = probe(names, hosts_path, ProbeOptions(python, deep), refresh=refresh)
    if as_json:
        pairs = zip(hosts, answers, strict=True)
        shown = [error_json(h, a) if isinstance(a, HostError) else a for h, a in pairs]
        print_json({"version": 1, "hosts": shown})
    else:
        _show(hosts, answers)
    return HostError.exit_code if any(isinstance(a, HostError) for a in answers) else 0


def probe(
    names: Sequence[str], hosts_path: str | None, options: ProbeOptions, *, refresh: bool
) -> tuple[Sequence[str], list[dict[str, Any] | HostError]]:
    """Return hosts, and the facts of each or an error; without names those of this machine.

    Raises ConfigError, StartError.
    """
    saved = SavedFacts(store.home(os.environ), say)
    if not names:
        return (hosts_file.LOCAL,), [local_facts(saved, options, os.environ)]
    pool = host_pool(hosts_path)
    hosts = pool.expand(names)
    return hosts, facts_of_hosts(pool, saved, hosts, options, refresh=refresh)


def error_json(host: str, error: HostError) -> dict[str, Any]:
    """Return what --json has of a host that could not be probed."""
    return {"host": host, "error": str(error), "hint": error.hint}


def warn_error(host: str, error: HostError) -> None:
    """Print why a host could not be probed."""
    warn(f"{host}: {error.message}" + (f"; {error.hint}" if error.hint else ""))


def _show(hosts: Sequence[str], answers: Sequence[dict[str, Any] | HostError]) -> None:
    width = min(terminal_width(), 120)
    is_first = True
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, HostError):
            warn_error(host, answer)
            continue
        if not is_first:
            click.echo()
        is_first = False
        for line in lines(answer, width):
            click.echo(line)
