"""`safelaunch profiles`: hardware profiles, and why each variable is in them."""

# ruff: noqa: PLC0415 - what asks machines: no list of profiles pays for it

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_profile
from safelaunch.cli.output import print_json, say, warn
from safelaunch.config import profiles
from safelaunch.config.hosts_file.reader import LOCAL
from safelaunch.errors import ConfigError, HostError
from safelaunch.model import Origin
from safelaunch.runs import store

if TYPE_CHECKING:
    from safelaunch.hostfacts.profile_detection import ProfileMatch
    from safelaunch.model import Profile, ProfileVar

_UNREACHABLE = 4  # exit code


@click.command("profiles")
@click.argument("name", required=False, shell_complete=complete_profile)
@click.option("--detect", is_flag=True, help="Say which one is for the cards of this machine.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="With --detect: of a host or group."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    name: str | None,
    detect: bool,
    hosts: tuple[str, ...],
    hosts_path: str | None,
    as_json: bool,
) -> int:
    """List hardware profiles, or show one with every variable's reason, cost and source.

    With --detect the cards of this machine, or of hosts, are looked at: exit code 1 where no
    profile is for them, 4 where a host cannot be asked.
    """
    if detect:
        if name is not None:
            raise ConfigError("`--detect` and a profile's name", hint="leave the name out")
        return _detect(hosts, hosts_path, as_json=as_json)
    if hosts or hosts_path:
        raise ConfigError("profiles are the same on all hosts", hint="--detect asks a host")
    where = Origin("profiles")
    wanted = [name] if name else profiles.names()
    found = [profiles.load(n, where, os.getcwd()) for n in wanted]
    if as_json:
        print_json({"version": 1, "profiles": [_json(p) for p in found]})
    elif name:
        _show(found[0])
    else:
        for profile in found:
            click.echo(f"{profile.name:<10} {profile.description}")
    return 0


# -- detecting -------------------------------------------------------------------------------------


def _detect(hosts: tuple[str, ...], hosts_path: str | None, *, as_json: bool) -> int:
    """Print which profile fits, and the line that says it. Raises ConfigError, StartError."""
    from safelaunch.cli.connections import host_pool
    from safelaunch.hostfacts.profile_detection import match_profile
    from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts
    from safelaunch.remote.hosts.probe_facts import facts_of_hosts, local_facts

    saved, options = SavedFacts(store.home(os.environ), say), ProbeOptions()
    found: list[dict[str, Any] | HostError]
    names: tuple[str, ...]
    if hosts:
        pool = host_pool(hosts_path)
        names = pool.expand(hosts)
        found = facts_of_hosts(pool, saved, names, options, refresh=False)
    else:
        found, names = [local_facts(saved, options, os.environ)], (LOCAL,)
    shipped = [profiles.load(n, Origin("profiles"), os.getcwd()) for n in profiles.names()]
    fits = [one if isinstance(one, HostError) else match_profile(one, shipped) for one in found]
    if as_json:
        pairs = zip(names, fits, strict=True)
        print_json({"version": 1, "hosts": [_fit_json(host, fit) for host, fit in pairs]})
    else:
        for host, one, fit in zip(names, found, fits, strict=True):
            _say_fit(host, one, fit)
    if any(isinstance(fit, HostError) for fit in fits):
        return _UNREACHABLE
    return 0 if all(not isinstance(fit, HostError) and fit.profile for fit in fits) else 1


def _fit_json(host: str, fit: ProfileMatch | HostError) -> dict[str, Any]:
    if isinstance(fit, HostError):
        return {"host": host, "error": str(fit), "hint": fit.hint}
    return {
        "host": host,
        "profile": fit.profile,
        "cards": list(fit.names),
        "by_name": dict(fit.by_name),
        "why": fit.why,
    }


def _say_fit(host: str, facts: dict[str, Any] | HostError, fit: ProfileMatch | HostError) -> None:
    if isinstance(fit, HostError) or isinstance(facts, HostError):
        error = fit if isinstance(fit, HostError) else facts
        if isinstance(error, HostError):
            warn(f"{host}: {error.message}" + (f"; {error.hint}" if error.hint else ""))
        return
    cards = [str(card.get("name")) for card in facts["gpus"].get("cards") or ()]
    shown = ", ".join(f"{cards.count(name)} x {name}" for name in fit.names) or fit.why
    click.echo(f"{host}: {shown}")
    if fit.profile is not None:
        click.echo(f"  profile {fit.profile}: {_described(fit.profile)}")
        click.echo(f"  in the job file, or in the host's entry: profile: {fit.profile}")
        click.echo(f"  or at a start: safelaunch run --profile {fit.profile} JOB.yaml")
        return
    if fit.names:
        click.echo(f"  {fit.why}")
    for name, profile in fit.by_name.items():
        said = f"profile {profile}" if profile else "none: NCCL's own defaults apply"
        click.echo(f"  {name}: {said}")
    if len(set(fit.by_name.values())) > 1:
        click.echo("  `gpus: [...]` takes cards of one kind; give the job their profile")
    elif fit.names:
        click.echo("  a job runs without one; or write your own: docs/job-file.md, Profile")


def _described(name: str) -> str:
    return profiles.load(name, Origin("profiles"), os.getcwd()).description


# -- showing ---------------------------------------------------------------------------------------


def _json(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "description": profile.description,
        "accelerator": profile.accelerator,
        "facts": dict(profile.facts),
        "env": [_variable(v) for v in profile.env],
        "site": [_variable(v) for v in profile.site],
        "ladder": [dict(step) for step in profile.ladder],
        "files": list(profile.files),
    }


def _variable(entry: ProfileVar) -> dict[str, Any]:
    var = entry.var
    return {
        "name": var.name,
        "value": var.value,
        "why": var.why,
        "cost": var.cost,
        "source": var.source,
        "workaround": var.workaround,
        "when": {gate.key: gate.condition for gate in entry.gates},
        "example": entry.example,
    }


def _show(profile: Profile) -> None:
    click.echo(f"{profile.name}: {profile.description}")
    click.echo(f"  from {', '.join(profile.files)}")
    for key, value in profile.facts.items():
        click.echo(f"  {key}: {value}")
    if not profile.env:
        click.echo("\nno variables: the defaults of NCCL are right here")
    for entry in profile.env:
        mark = "  (workaround: --no-workarounds leaves it out)" if entry.var.workaround else ""
        click.echo(f"\n{entry.var.name}={entry.var.value}{mark}")
        _reasons(entry)
    for entry in profile.site:
        example = f", such as {entry.example}" if entry.example else ""
        click.echo(f"\n{entry.var.name} is the site's to set{example}")
        _reasons(entry)
    if profile.ladder:
        click.echo("\n--nccl-ladder N takes the first N of")
        for number, step in enumerate(profile.ladder, 1):
            click.echo(f"  {number}  " + " ".join(f"{k}={v}" for k, v in step))


def _reasons(entry: ProfileVar) -> None:
    if entry.gates:
        click.echo("  when    " + ", ".join(f"{g.key} {g.condition}" for g in entry.gates))
    for key in ("why", "cost", "source"):
        if getattr(entry.var, key):
            click.echo(f"  {key:<7} {getattr(entry.var, key)}")
