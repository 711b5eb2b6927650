"""`safelaunch facts`: the hardware and software of machines, as the job's interpreter sees them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.connections import host_pool
from safelaunch.cli.info.show_facts import image_lines, lines
from safelaunch.cli.output import print_json, say, terminal_width, warn
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts
from safelaunch.remote.hosts.image_facts import image_facts, image_facts_of_hosts
from safelaunch.remote.hosts.probe_facts import facts_of_hosts, local_facts
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("facts")
@click.option("--host", "names", multiple=True, metavar="NAME", help="Host or group; repeatable.")
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--python", metavar="PATH", help="Interpreter, instead of the host entry's.")
@click.option("--container", "image", metavar="IMAGE", help="Look inside an image instead.")
@click.option("--deep", is_flag=True, help="Also import torch; show its versions and GPUs.")
@click.option("--refresh", is_flag=True, help="Probe again, even if the stored facts are recent.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    names: tuple[str, ...],
    hosts_path: str | None,
    python: str | None,
    image: str | None,
    deep: bool,
    refresh: bool,
    as_json: bool,
) -> int:
    """Show what this machine, or hosts, have: GPUs, memory, disks, network, Python, torch, NCCL.

    Nothing is changed on them. The facts of a host are reused for ten minutes; --refresh probes
    again. With --container docker or podman runs the image once: bash, Python, torch, NCCL. Exit
    code 4 if a host could not be probed, 3 if its engine does not run the image.
    """
    if image is not None:
        if deep or refresh:
            raise ConfigError("`--container` with --deep or --refresh", hint="leave one out")
        return show_image(names, hosts_path, image, python, as_json=as_json)
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


def show_image(
    names: Sequence[str], hosts_path: str | None, image: str, python: str | None, *, as_json: bool
) -> int:
    """Show what is in an image, here or on hosts; return the exit code. Raises ConfigError."""
    home = store.home(os.environ)
    if names:
        pool = host_pool(hosts_path)
        hosts: Sequence[str] = pool.expand(names)
        answers = image_facts_of_hosts(pool, hosts, image, python, home)
    else:
        hosts = (hosts_file.LOCAL,)
        answers = [image_facts(image, python, home, hosts_path, os.environ)]
    pairs = list(zip(hosts, answers, strict=True))
    if as_json:
        shown = [error_json(h, a) if isinstance(a, HostError) else a for h, a in pairs]
        print_json({"version": 1, "hosts": shown})
    for host, answer in pairs if not as_json else ():
        if isinstance(answer, HostError):
            warn_error(host, answer)
            continue
        for line in image_lines(answer, min(terminal_width(), 120)):
            click.echo(line)
    if any(isinstance(a, HostError) for a in answers):
        return HostError.exit_code
    return Refused.exit_code if any("error" in a for a in answers if isinstance(a, dict)) else 0


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
