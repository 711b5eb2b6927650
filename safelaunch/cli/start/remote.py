"""`safelaunch remote`: start a job on other machines, over SSH."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import plan_options as shared
from safelaunch.cli.show_plan import resolve_target
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError
from safelaunch.plan.build import make_plan, resume
from safelaunch.runs import store

if TYPE_CHECKING:
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan

DEFAULT = "safelaunch.yaml"  # the job, where none is named


@click.command("remote", cls=shared.LineCommand)
@click.argument("job", nargs=-1, type=click.Path(), metavar="[JOB.yaml] [-- LINE...]")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Where; several times for several nodes."
)
@shared.plan_options
@shared.start_options
@click.option("--no-sync", is_flag=True, help="Take the project as it lies on the host.")
@click.option(
    "--delete", is_flag=True, help="Remove there what earlier syncs brought, and is gone."
)
@click.option("--force", is_flag=True, help="Overwrite files that were changed on the host.")
@click.option("--yes", is_flag=True, help="Sync more than 500 MB without a question.")
def command(job: tuple[str, ...], **options: Any) -> int:
    """Sync the project to a host and start a job there, under tmux where it has one.

    NAME is a host of the hosts file, of ~/.ssh/config, or user@address. Without a job file it is
    safelaunch.yaml, or the only job file of the folder.

    \b
    safelaunch remote --host gpu1 train.yaml
    safelaunch remote --host gpu1 --dry-run train.yaml
    """  # noqa: D301 - \b is click's mark
    if options["no_sync"] and options["delete"]:
        raise ConfigError("`--delete` removes nothing without a sync", hint="leave one of them out")
    line = shared.pasted_line()
    files = job or (() if line else (_only_job(),))
    shared.check_target("remote", files, line)
    if len(files) > 1:
        raise ConfigError(f"{len(files)} job files", hint="start them one after another")
    home = store.home(os.environ)
    own = hosts_file.default_path(home)
    flags = shared.read_flags(options)
    flags = flags._replace(remote=True, hosts=options["hosts"], hosts_file=flags.hosts_file or own)
    if shared.is_print_only(options):

        def plan_of(_: str) -> tuple[Resolved, Plan]:
            resolved = resolve_target(files, line, flags)
            plan = make_plan(resolved)
            return resolved, resume(plan) if shared.wants_resume(options) else plan

        return shared.print_plans(("",), plan_of, options)
    from safelaunch.cli.start.start_remote import start  # noqa: PLC0415 - a dry-run must not pay for it

    return start(resolve_target(files, line, flags), options)


def _only_job() -> str:
    """Return the job that is meant where none is named. Raises ConfigError."""
    if os.path.isfile(DEFAULT):
        return DEFAULT
    found = [name for name in sorted(os.listdir()) if name.endswith((".yaml", ".yml"))]
    jobs = [name for name in found if _is_job(name)]
    if len(jobs) == 1:
        return jobs[0]
    hint = f"name one: {', '.join(jobs[:4])}" if jobs else "safelaunch remote --host NAME JOB.yaml"
    raise ConfigError("which job?" if jobs else "no job file here", hint=hint)


def _is_job(path: str) -> bool:
    """Whether a YAML file has the key that every job has, unless it `extends` one that has it."""
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(r"(?m)(^|^\s*\{|,)\s*[\"']?(launcher|extends)[\"']?\s*:", file.read())
    except (OSError, UnicodeDecodeError):
        return False
    return found is not None
