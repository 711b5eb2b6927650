"""`safelaunch remote`: start a job on other machines, over SSH."""

# ruff: noqa: PLC0415 - targets.remote: a dry-run does without

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import plan_options as shared
from safelaunch.cli.output import say
from safelaunch.cli.plan_text.dry_run import print_plans, print_steps
from safelaunch.cli.plan_text.plan import resolve_target
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.resolve import SeveralJobs, resolve_steps
from safelaunch.errors import ConfigError
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.config.resolve import Flags

DEFAULT = "safelaunch.yaml"  # the job file, where none is named


@click.command("remote", cls=shared.LineCommand)
@click.argument("job", nargs=-1, type=click.Path(), metavar="[JOB.yaml] [-- LINE...]")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Where; several times for several nodes."
)
@click.option(
    "--group", metavar="NAME", help="With --queue: the host of this group that has room first."
)
@shared.plan_options
@shared.start_options
@shared.engine_option
@click.option("--no-sync", is_flag=True, help="Use the project as it lies on the host.")
@click.option(
    "--delete", is_flag=True, help="Remove there what earlier syncs copied, and is gone here."
)
@click.option("--force", is_flag=True, help="Overwrite files that were changed or are used there.")
@click.option(
    "--yes", is_flag=True, help="Ask nothing: sync over 500 MB, send what the job names elsewhere."
)
def command(job: tuple[str, ...], **options: Any) -> int:
    """Sync the project to a host and start a job there, in tmux where it is installed.

    NAME is a host of the hosts file, of ~/.ssh/config, or user@address; one with a `slurm` or `ray`
    block is a login node, which submits the job. Without a job file it is safelaunch.yaml, or the
    only job file of the folder.

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
    if options["group"] is not None:
        flags = _on_host_of_group(flags, files, line, options)
    if shared.is_print_only(options):
        try:
            return print_plans(("",), lambda _: resolve_target(files, line, flags), options)
        except SeveralJobs:
            return print_steps(*resolve_steps(files[0], flags, os.getcwd()), options)
    try:
        resolved = resolve_target(files, line, flags)
    except SeveralJobs:
        from safelaunch.cli.start.targets.steps import remote_steps

        name, steps = resolve_steps(files[0], flags, os.getcwd())
        return remote_steps(name, steps, flags, files[0], options)
    from safelaunch.cli.start.targets.remote import start

    return start(resolved, options)


def _on_host_of_group(
    flags: Flags, files: Sequence[str], line: Sequence[str], options: dict[str, Any]
) -> Flags:
    """Return the flags with the host of the group on which the run begins first."""
    group = options["group"]
    if flags.hosts:
        raise ConfigError("`--group` and `--host` together", hint="give one")
    listed = (
        None
        if flags.hosts_file is None
        else hosts_file.load_file(flags.hosts_file, flags.hosts_file)
    )
    members = () if listed is None else listed.groups.get(group, ())
    if not members:
        hint = f"`groups: {{{group}: [gpu1, gpu2]}}` in the hosts file; one host: --host {group}"
        raise ConfigError(f"no group `{group}` in the hosts file", where="--group", hint=hint)
    resolved = resolve_target(files, line, flags._replace(hosts=members[:1]))
    if resolved.job.queue is None:
        raise ConfigError("`--group` without `--queue`", hint="add --queue; or --host NAME")
    if shared.is_print_only(options):  # which asks no host
        say(f"note: as for the first host of {group}; a start takes the one that has room first")
        return flags._replace(hosts=members[:1])
    from safelaunch.cli.start.targets.group import choose

    path = os.path.abspath(options["hosts_file"]) if options["hosts_file"] else None
    return flags._replace(hosts=(choose(group, path, resolved.queued_cards),))


def _only_job() -> str:
    """Return the job file of the folder where none is named. Raises ConfigError."""
    if os.path.isfile(DEFAULT):
        return DEFAULT
    names = [name for name in sorted(os.listdir()) if name.endswith((".yaml", ".yml"))]
    jobs = [name for name in names if _is_job(name)]
    if len(jobs) == 1:
        return jobs[0]
    hint = f"name one: {', '.join(jobs[:4])}" if jobs else "safelaunch remote --host NAME JOB.yaml"
    raise ConfigError("which job?" if jobs else "no job file here", hint=hint)


def _is_job(path: str) -> bool:
    """Whether a YAML file has `launcher`, as every job has, or `extends` one that has it."""
    key = r"(?m)(^|^\s*\{|,)\s*[\"']?(launcher|extends)[\"']?\s*:"
    try:
        with open(path, encoding="utf-8") as file:
            return re.search(key, file.read()) is not None
    except (OSError, UnicodeDecodeError):
        return False
