"""`safelaunch rerun`: a recorded plan again, whatever the job file says now."""

# ruff: noqa: PLC0415 - targets.remote: for hosts only

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import say
from safelaunch.cli.plan_options import after_options
from safelaunch.cli.start.targets.earlier_runs import waiting_plan
from safelaunch.cli.start.targets.local import start
from safelaunch.cli.start.targets.recorded_steps import recorded_plan, rerun_group, step_inputs
from safelaunch.errors import ConfigError
from safelaunch.remote.runs.remote_run import RemoteRun
from safelaunch.runs import groups, store
from safelaunch.start.code import rerun_code
from safelaunch.start.resume import resume_run


@click.command("rerun")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--resume", is_flag=True, help="Resume from its end, with `recovery: resume_args`.")
@click.option("--follow", "-f", is_flag=True, help="Stream the log; exit 0/1 with the job.")
@click.option(
    "--foreground", is_flag=True, help="For CI: stay, and end the job when this command is stopped."
)
@after_options
@click.option("--current", is_flag=True, help="Run the project as it is now.")
@click.option("--force", is_flag=True, help="Overwrite files that were changed on the host.")
@click.option(
    "--without",
    multiple=True,
    metavar="HOST",
    help="Of parts on several hosts: HOST is gone for good; others run its parts.",
)
@click.option("--yes", is_flag=True, help="Send what the job names to a host without a question.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, **options: Any) -> int:
    """Start a recorded run's plan again: same code, command and variables, fresh id and port.

    Of a file with steps RUN may be the group: the steps that have not succeeded run again. Later
    changes of the job file do not count; for those use `safelaunch run`.
    """
    group = groups.find(store.home(os.environ), run)
    if group is not None:
        return rerun_group(group, options)
    earlier = catalog().find(run)
    # what that run has waited for is over
    plan = replace(recorded_plan(earlier), after=())
    places = earlier.places()  # of a run on hosts
    if options["without"] and (plan.fan_out is None or len(places) <= 1):
        raise ConfigError("`--without` is for parts that several hosts share")
    if plan.fan_out is not None and len(places) > 1:
        from safelaunch.cli.start.targets.parts_again import parts_again

        plan, places = parts_again(plan, earlier, options["without"])
    elif plan.fan_out is not None:
        node_dir = places[0].run_dir if places else earlier.record.node_dir
        plan = replace(plan, fan_out=replace(plan.fan_out, earlier=node_dir))
    home = store.home(os.environ)
    if options["resume"]:
        plan = resume_run(plan, home, earlier.id)
    if not isinstance(earlier, RemoteRun):
        if options["current"]:
            code = rerun_code.code_of_today(plan, earlier.record)
        else:
            code = rerun_code.code_of_launch(plan, earlier.record, home)
        say(code.note)
        plan, after = waiting_plan(code.plan, options, inputs=step_inputs(earlier))
        if plan.engine is not None:
            from safelaunch.cli.start.targets.engine import start as submit

            return submit(plan, options, code.files, after)
        return start(plan, options, code.files, after=after)
    if options["foreground"]:
        raise ConfigError("`--foreground` is for a run of this machine", hint="--follow")
    from safelaunch.cli.start.targets.remote import again

    pointer = earlier.pointer.copy()
    pointer.places = places
    return again(plan, earlier.record, pointer, options, step_inputs(earlier))
