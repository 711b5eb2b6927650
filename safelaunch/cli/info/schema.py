"""`safelaunch schema`: the JSON Schema of job, profile and hosts files, for editors."""

from __future__ import annotations

import json

import click

from safelaunch.config import json_schema
from safelaunch.errors import ConfigError, did_you_mean


def _complete(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    return [name for name in json_schema.NAMES if name.startswith(begun)]


@click.command("schema")
@click.argument("name", metavar="job|profile|hosts", shell_complete=_complete)
def command(name: str) -> int:
    """Print the JSON Schema (draft-07) of job, profile or hosts files, for your editor.

    safelaunch schema job > .safelaunch-job.schema.json, and as the first line of a job file beside
    it: # yaml-language-server: $schema=.safelaunch-job.schema.json
    """
    if name not in json_schema.NAMES:
        hint = did_you_mean(name, json_schema.NAMES) or "safelaunch schema job, profile or hosts"
        raise ConfigError(f"no file of safelaunch is called `{name}`", hint=hint)
    click.echo(json.dumps(json_schema.make(name), indent=2))
    return 0
