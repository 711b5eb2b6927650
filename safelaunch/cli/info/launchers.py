"""`safelaunch launchers`: the programs that can start a job."""

from __future__ import annotations

import click

from safelaunch import launchers
from safelaunch.cli.output import print_json


@click.command("launchers")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """List launchers: what each runs, and the versions that it supports."""
    modules = {name: launchers.load(name) for name in launchers.NAMES}
    if as_json:
        shown = [
            {"name": n, "summary": m.SUMMARY, "runs": list(m.TARGETS), "versions": list(m.VERSIONS)}
            for n, m in modules.items()
        ]
        print_json({"version": 1, "launchers": shown})
        return 0
    width = max(map(len, modules))
    for name, module in modules.items():
        click.echo(f"{name:<{width}} {module.SUMMARY}")
        click.echo(f"{'':<{width}} runs {' or '.join(module.TARGETS)}")
    return 0
