"""`safelaunch schema`: the JSON Schema of job, profile and hosts files, for editors."""

from __future__ import annotations

import json

import click

from safelaunch.config import json_schema
from safelaunch.errors import ConfigError, did_you_mean


def _complete(_context: click.Context, _argument: click.Parameter, prefix: str) -> list[str]:
    return [name for name in json_schema.NAMES if name.startswith(prefix)]


@click.command("schema")
@click.argument("name", metavar="job|profile|hosts", shell_complete=_complete)
def command(name: str) -> int:
    """Print the JSON Schema (draft-07) of job, profile or hosts files, for your editor.

    Write it beside a job file, and name it in the job file's first line:

    \b
    safelaunch schema job > .safelaunch-job.schema.json
    # yaml-language-server: $schema=.safelaunch-job.schema.json
    """  # noqa: D301 - \b is click's mark
    if name not in json_schema.NAMES:
        hint = did_you_mean(name, json_schema.NAMES) or "safelaunch schema job, profile or hosts"
        raise ConfigError(f"there is no schema `{name}`", hint=hint)
    click.echo(json.dumps(json_schema.make(name), indent=2))
    return 0
