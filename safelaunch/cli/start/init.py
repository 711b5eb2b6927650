"""`safelaunch init`: a pasted launch line as a job file."""

from __future__ import annotations

import os
import shlex
import sys

import click

from safelaunch.cli.output import say
from safelaunch.cli.plan_options import LineCommand, pasted_line
from safelaunch.config.resolve import read_job
from safelaunch.config.write_job import job_yaml, relocated
from safelaunch.errors import ConfigError
from safelaunch.plan.launch_line.read import read_line
from safelaunch.plan.launch_line.shell import Shell


@click.command("init", cls=LineCommand)
@click.argument("file", nargs=-1, metavar="-- LINE...")
@click.option(
    "--output", "-o", metavar="FILE", help="Write there; an existing file is never overwritten."
)
@click.option("--profile", metavar="NAME", help="Hardware profile to write into the job.")
def command(file: tuple[str, ...], output: str | None, profile: str | None) -> int:
    """Write a pasted launch line as a job file; its dry-run gives the same words back.

    \b
    safelaunch init -- torchrun --nproc_per_node 4 train.py --lr 1e-3
    """  # noqa: D301 - \b is click's mark
    line = pasted_line()
    if file and not line:
        read_job(os.path.abspath(file[0]), file[0], None, ())
        raise ConfigError("this is a job file already", where=file[0])
    if file:
        raise ConfigError(f"`{file[0]}` before `--`", hint="the whole line stands behind `--`")
    if not line:
        raise ConfigError("which line?", hint="safelaunch init -- accelerate launch ... train.py")
    read = read_line(line, Shell(os.getcwd(), os.environ))
    for note in read.notes:
        say(f"note: {note}")
    folder = os.path.dirname(os.path.abspath(output)) if output is not None else os.getcwd()
    text = job_yaml(relocated(read.tree, os.getcwd(), folder), profile)
    if output is None:
        sys.stdout.write(text)
        return 0
    try:
        with open(output, "x", encoding="utf-8", newline="\n") as job:
            job.write(text)
    except FileExistsError:
        raise ConfigError("the file exists; it is not overwritten", where=output) from None
    except OSError as e:
        raise ConfigError(f"cannot write: {e.strerror}", where=output) from e
    say(f"wrote {output}; next: safelaunch run --dry-run {shlex.quote(output)}")
    return 0
