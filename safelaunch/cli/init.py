"""`safelaunch init`: a pasted launch line as a job file."""

from __future__ import annotations

import os
import sys

import click

from safelaunch.cli import say
from safelaunch.cli.run import LineCommand, pasted_line
from safelaunch.config.write import job_yaml
from safelaunch.errors import ConfigError
from safelaunch.pasted import parse_line


@click.command("init", cls=LineCommand, options_metavar="[OPTIONS] -- LINE...")
@click.option(
    "--output", "-o", metavar="FILE", help="Write there; an existing file is never overwritten."
)
@click.option("--profile", metavar="NAME", help="Hardware profile to write into the job.")
def command(output: str | None, profile: str | None) -> int:
    """Write a pasted launch line as a job file; its dry-run gives the same words back.

    \b
    safelaunch init -- torchrun --nproc_per_node 4 train.py --lr 1e-3
    """  # noqa: D301 - \b is click's mark
    line = pasted_line()
    if not line:
        raise ConfigError("which line?", hint="safelaunch init -- accelerate launch ... train.py")
    text = job_yaml(parse_line(line), profile)
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        with open(output, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError("the file exists; it is not overwritten", where=output) from None
    except OSError as e:
        raise ConfigError(f"cannot write: {e.strerror}", where=output) from e
    say(f"wrote {output}; look: safelaunch run --dry-run {os.path.relpath(output)}")
    return 0
