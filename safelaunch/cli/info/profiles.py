"""`safelaunch profiles`: hardware profiles, and why each variable is in them."""

# ruff: noqa: PLC0415 - what probes machines is imported for --detect only

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli.completion import complete_profile
from safelaunch.cli.output import print_json
from safelaunch.config import profiles
from safelaunch.errors import ConfigError, HostError
from safelaunch.model import Origin

if TYPE_CHECKING:
    from safelaunch.hostfacts.profile_detection import ProfileMatch
    from safelaunch.model import Profile, ProfileVar


@click.command("profiles")
@click.argument("name", required=False, shell_complete=complete_profile)
@click.option("--detect", is_flag=True, help="Name the profile for the GPUs of this machine.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Probe this host or group.")
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--sources", is_flag=True, help="Print what each value rests on, with its date.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    name: str | None,
    detect: bool,
    hosts: tuple[str, ...],
    hosts_path: str | None,
    sources: bool,
    as_json: bool,
) -> int:
    """List hardware profiles, or show one with every variable's reason, cost and source.

    --detect probes the GPUs of this machine, or of hosts: exit code 1 if one of them has no
    profile, 4 if a host could not be probed.
    """
    if detect:
        if name is not None or sources:
            what = "the name of a profile" if name is not None else "`--sources`"
            raise ConfigError(f"`--detect` with {what}", hint="leave one of them out")
        return _detect(hosts, hosts_path, as_json=as_json)
    if hosts or hosts_path:
        raise ConfigError("profiles are the same on all hosts", hint="add --detect to probe a host")
    loaded = [_load(n) for n in ([name] if name else profiles.names())]
    if as_json:
        print_json({"version": 1, "profiles": [_json(p) for p in loaded]})
    elif sources:
        for profile in loaded:
            _show_sources(profile)
    elif name:
        _show(loaded[0])
    else:
        width = max(len(profile.name) for profile in loaded)
        for profile in loaded:
            click.echo(f"{profile.name:<{width}}  {profile.description}")
    return 0


def _load(name: str) -> Profile:
    return profiles.load(name, Origin("profiles"), os.getcwd())


# -- detecting -------------------------------------------------------------------------------------


def _detect(names: tuple[str, ...], hosts_path: str | None, *, as_json: bool) -> int:
    """Print the profile that matches each host. Raises ConfigError, StartError."""
    from safelaunch.cli.info import facts
    from safelaunch.hostfacts.profile_detection import match_profile
    from safelaunch.hostfacts.saved import ProbeOptions

    hosts, answers = facts.probe(names, hosts_path, ProbeOptions(), refresh=False)
    builtin = [_load(n) for n in profiles.names()]
    has_all, listed = True, []
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, HostError):
            listed.append(facts.error_json(host, answer))
            if not as_json:
                facts.warn_error(host, answer)
            continue
        match = match_profile(answer, builtin)
        of_cards = match.by_name.values()
        has_all = has_all and (match.profile is not None or (bool(of_cards) and all(of_cards)))
        listed.append(
            {
                "host": host,
                "profile": match.profile,
                "cards": list(match.names),
                "by_name": dict(match.by_name),
                "why": match.why,
            }
        )
        if not as_json:
            _show_match(host, answer, match)
    if as_json:
        print_json({"version": 1, "hosts": listed})
    if any(isinstance(answer, HostError) for answer in answers):
        return HostError.exit_code
    return 0 if has_all else 1


def _show_match(host: str, facts: dict[str, Any], match: ProfileMatch) -> None:
    cards = facts["gpus"].get("cards") or facts["gpus"].get("others") or ()
    gpus = [str(gpu.get("name")) for gpu in cards]
    shown = ", ".join(f"{gpus.count(name)} x {name}" for name in match.names) or match.why
    click.echo(f"{host}: {shown}")
    if match.profile is not None:
        click.echo(f"  profile {match.profile}: {_load(match.profile).description}")
        click.echo(f"  in the job file, or in the host's entry: profile: {match.profile}")
        click.echo(f"  or at a start: safelaunch run --profile {match.profile} JOB.yaml")
        return
    if match.names:
        click.echo(f"  {match.why}")
    for name, profile in match.by_name.items():
        text = f"profile {profile}" if profile else "no profile: NCCL's own defaults apply"
        click.echo(f"  {name}: {text}")
    if len(set(match.by_name.values())) > 1:
        click.echo("  select GPUs of one model with `gpus: [...]`, and use the profile for them")
    elif match.names:
        click.echo("  a job runs without a profile; to write your own: docs/job-file.md, Profile")


# -- showing ---------------------------------------------------------------------------------------


def _json(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "description": profile.description,
        "accelerator": profile.accelerator,
        "facts": {name: fact.value for name, fact in profile.facts.items()},
        "sources": [source._asdict() for source in _sources(profile)],
        "env": [_variable(v) for v in profile.env],
        "site": [_variable(v) for v in profile.site],
        "ladder": [{e.var.name: str(e.var.value) for e in step} for step in profile.ladder],
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
    for key, fact in profile.facts.items():
        click.echo(f"  {key}: {fact.value}")
    if not profile.env:
        click.echo("\nno variables: NCCL's own defaults are right for these GPUs")
    for entry in profile.env:
        mark = "  (workaround: --no-workarounds leaves it out)" if entry.var.workaround else ""
        click.echo(f"\n{entry.var.name}={entry.var.value}{mark}")
        _show_reasons(entry)
    for entry in profile.site:
        example = f", for example {entry.example}" if entry.example else ""
        click.echo(f"\n{entry.var.name} depends on the site: set it yourself{example}")
        _show_reasons(entry)
    if profile.ladder:
        click.echo("\nladder: --nccl-ladder N sets the first N of these steps")
        for number, step in enumerate(profile.ladder, 1):
            click.echo(f"  {number}  " + " ".join(f"{e.var.name}={e.var.value}" for e in step))
            for entry in step:
                _show_reasons(entry, "     ")


class StatedSource(NamedTuple):
    """What a fact or variable of a profile rests on, and when that was last read."""

    name: str
    value: str
    source: str
    checked: str


def _sources(profile: Profile) -> list[StatedSource]:
    """Return the sources of a profile: those of its facts, then of its variables and ladder."""
    facts = [(name, fact.value, fact.source, fact.origin) for name, fact in profile.facts.items()]
    steps = [entry for step in profile.ladder for entry in step if entry.var.source]
    variables = [
        (entry.var.name, str(entry.var.value or ""), entry.var.source, entry.var.origin)
        for entry in (*profile.env, *profile.site, *steps)
    ]
    return [
        StatedSource(name, value, source, profile.checked.get(origin.source, ""))
        for name, value, source, origin in (*facts, *variables)
    ]


def _show_sources(profile: Profile) -> None:
    click.echo(f"{profile.name}: {profile.description}")
    for entry in _sources(profile):
        click.echo(f"  {entry.name}: {entry.value}" if entry.value else f"  {entry.name}")
        date = f" (read {entry.checked})" if entry.checked else ""
        click.echo(f"      {entry.source}{date}" if entry.source else "      no source")
    for source in profile.sources:
        click.echo(f"  also read: {source}")


def _show_reasons(entry: ProfileVar, indent: str = "  ") -> None:
    if entry.gates:
        gates = ", ".join(f"{g.key} {g.condition}" for g in entry.gates)
        click.echo(f"{indent}when    {gates}")
    for key in ("why", "cost", "source"):
        if getattr(entry.var, key):
            click.echo(f"{indent}{key:<7} {getattr(entry.var, key)}")
