"""`safelaunch run`: start a job on this machine, or print what would be started."""

# ruff: noqa: PLC0415 - what starts a run is not imported for a dry-run

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import plan_options as shared
from safelaunch.cli import start_key
from safelaunch.cli.plan_text.dry_run import print_plans, print_steps
from safelaunch.cli.plan_text.plan import resolve_target
from safelaunch.config.resolve import SeveralJobs, resolve_steps
from safelaunch.errors import ConfigError
from safelaunch.plan.build import make_plan

if TYPE_CHECKING:
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.runtime.records import EarlierRun


@click.command("run", cls=shared.LineCommand)
@click.argument("job", nargs=-1, type=click.Path(), metavar="[JOB.yaml...] [-- LINE...]")
@shared.plan_options
@click.option("--project-root", metavar="PATH", help="Print the plan as if the project lay there.")
@shared.engine_option
@shared.start_options
@click.option(
    "--foreground", is_flag=True, help="For CI: stay, and end the job when this command is stopped."
)
def command(job: tuple[str, ...], **options: Any) -> int:
    """Start a job on this machine, in tmux where it is installed.

    \b
    safelaunch run --profile rtx5090 train.yaml
    safelaunch run --dry-run *.yaml
    safelaunch run --profile cpu bash train.sh
    safelaunch run -- NCCL_P2P_DISABLE=1 accelerate launch --num_processes 4 t.py
    """  # noqa: D301 - \b is click's mark
    files, line = job, shared.pasted_line()
    flags = shared.read_flags(options)
    shared.check_target("run", files, line)
    if shared.is_print_only(options):
        targets = files or ("",)
        try:
            return print_plans(targets, lambda f: resolve_target((f,), line, flags), options)
        except SeveralJobs:
            return print_steps(*resolve_steps(files[0], flags, os.getcwd()), options)
    if options["project_root"]:
        raise ConfigError("`--project-root` is for a dry-run", hint="add --dry-run")
    if len(files) > 1:
        raise ConfigError(f"{len(files)} job files: several at once only with --dry-run")
    try:
        resolved = resolve_target(files, line, flags)
    except SeveralJobs:
        from safelaunch.cli.start.targets.steps import run_steps

        return run_steps(*resolve_steps(files[0], flags, os.getcwd()), options)
    return _start(resolved, options)


def _start(resolved: Resolved, options: dict[str, Any]) -> int:
    """Start a job, unless its key has started it before; return the exit code."""
    plan = make_plan(resolved)
    earlier = start_key.earlier_run(plan, options)
    if earlier is not None:
        from safelaunch.cli.start.targets.after_start import show_earlier

        return show_earlier(earlier, options, "run")
    from safelaunch.cli.start.targets.earlier_runs import waiting_plan

    plan, after = waiting_plan(plan, options)
    if plan.engine is not None:
        return _submit(resolved, plan, options, after)
    checks = None
    if not options["no_check"]:
        from safelaunch.checks import quick
        from safelaunch.remote.hosts.probe_facts import active_python

        checks = quick.start(resolved, plan, os.environ, active_python(os.environ))
    probe = None
    if sys.platform.startswith("linux") and len(plan.nodes) == 1:
        from safelaunch.start.local_probe import LocalProbe

        probe = LocalProbe(plan.nodes[0], os.environ)
    # imported while the machine answers the checks, and reports itself
    from safelaunch.cli.start.targets.local import start

    if shared.wants_resume(options):
        from safelaunch.runs.store import home
        from safelaunch.start.resume import resume_run

        plan = resume_run(plan, home(os.environ), options["resume_from"])
    check = None
    if checks is not None:
        from safelaunch.cli.check.quick import report

        check = checks.finish(report)
    return start(plan, options, check=check, probe=probe, after=after)


def _submit(
    resolved: Resolved,
    plan: Plan,
    options: dict[str, Any],
    after: tuple[tuple[EarlierRun, ...], ...],
) -> int:
    """Submit a plan to the engine that chooses its machines; return the exit code."""
    from safelaunch.cli.check.cluster import before_start
    from safelaunch.cli.start.targets.engine import start

    if not options["no_check"]:
        before_start(resolved, plan)
    if shared.wants_resume(options):
        from safelaunch.runs.store import home
        from safelaunch.start.resume import resume_run

        plan = resume_run(plan, home(os.environ), options["resume_from"])
    return start(plan, options, after=after)
