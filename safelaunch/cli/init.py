"""`safelaunch init`: a pasted launch line as a job file."""

from __future__ import annotations

import os
import sys

import click

from safelaunch.cli import say
from safelaunch.cli.run import split_line
from safelaunch.config.write import job_yaml
from safelaunch.errors import ConfigError
from safelaunch.pasted import parse_line


@click.command("init")
@click.argument("words", nargs=-1, metavar="-- LINE...")
@click.option(
    "--output", "-o", metavar="FILE", help="Write there; an existing file is never overwritten."
)
@click.option("--profile", metavar="NAME", help="Hardware profile to write into the job.")
def command(words: tuple[str, ...], output: str | None, profile: str | None) -> int:
    """Write a pasted launch line as a job file; its dry-run gives the same words back.

    \b
    safelaunch init -- NCCL_P2P_DISABLE=1 accelerate launch --num_processes 4 train.py --lr 1e-3
    """  # noqa: D301 - \b is click's mark
    before, line = split_line(words)
    if before or not line:
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
