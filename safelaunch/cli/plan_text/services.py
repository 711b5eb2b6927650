"""Prints the services of a plan: what is started before the job, and when it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from safelaunch.runtime.units import job_duration
from safelaunch.script import paste_line, quote

if TYPE_CHECKING:
    from safelaunch.model import Plan, Ready


def print_services(plan: Plan) -> None:
    """Print the line of each service, in the order of need."""
    for service in plan.services:
        after = f", after {', '.join(service.needs)}" if service.needs else ""
        port = "a free port" if service.port is None else f"port {service.port}"
        where = f" on {service.plan.nodes[0].host}" if len(plan.nodes) > 1 else ""
        click.echo(f"# service {service.plan.name}{where}, {port}{after}; {_ready(service.ready)}")
        click.echo(paste_line(service.plan.nodes[0], service.plan.topology) + " &\n")


def _ready(ready: Ready) -> str:
    """Return when a service is ready, in words."""
    if ready.http is not None:
        values = "".join(f", {key} is {value}" for key, value in ready.json.items())
        what = f"GET {ready.http} answers {ready.status}{values}"
    elif ready.log is not None:
        what = f"a line of its log matches `{ready.log}`"
    elif ready.command:
        what = f"`{' '.join(map(quote, ready.command))}` ends with 0"
    else:
        what = "its port is open"
    return f"ready once {what}, within {job_duration(ready.limit)}"
