"""`safelaunch profiles`: hardware profiles, and why each variable is in them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import print_json
from safelaunch.cli.complete import complete_profile
from safelaunch.config import profiles
from safelaunch.model import Origin

if TYPE_CHECKING:
    from safelaunch.model import Profile, ProfileVar


@click.command("profiles")
@click.argument("name", required=False, shell_complete=complete_profile)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> int:
    """List hardware profiles, or show one with every variable's reason, cost and source."""
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
