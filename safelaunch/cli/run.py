"""`safelaunch run`: start a job here, or print what would be started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import print_json, report, say
from safelaunch.cli.complete import complete_profile, complete_run
from safelaunch.cli.planning import (
    Flags,
    make_plan,
    print_explanation,
    print_plan,
    resolve_target,
    say_warnings,
)
from safelaunch.errors import ConfigError, SafelaunchError
from safelaunch.plan import resume

if TYPE_CHECKING:
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan


class LineCommand(click.Command):
    """A command that takes a literal line behind `--`; click would mix it with the arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what stands behind the first `--` for `pasted_line`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_LINE] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


_LINE = "safelaunch.line"


def pasted_line() -> tuple[str, ...]:
    """Return the words behind `--`, none if there is no `--`."""
    line: tuple[str, ...] = click.get_current_context().meta.get(_LINE, ())
    return line


@click.command("run", cls=LineCommand)
@click.argument("job", nargs=-1, type=click.Path(), metavar="[JOB.yaml...] [-- LINE...]")
@click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="Hardware profile, by name or path.",
)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a job key (a.b=c)."
)
@click.option(
    "--hosts", "hosts_file", metavar="FILE", help="Hosts file; `localhost` is this machine."
)
@click.option(
    "--debug",
    is_flag=True,
    help="NCCL_DEBUG=INFO, TORCH_DISTRIBUTED_DEBUG=DETAIL, CUDA_LAUNCH_BLOCKING=1.",
)
@click.option("--no-workarounds", is_flag=True, help="Leave out the profile's workarounds.")
@click.option(
    "--nccl-ladder",
    "ladder",
    type=click.IntRange(0, 9),
    metavar="N",
    help="First N steps of the profile's ladder instead (0: none).",
)
@click.option("--smoke", is_flag=True, help="Lay the job's `smoke:` block over it.")
@click.option(
    "--resume", is_flag=True, help="Go on from the job's newest run, with `recovery: resume_args`."
)
@click.option(
    "--resume-from", metavar="RUN", shell_complete=complete_run, help="Go on from that run."
)
@click.option("--dry-run", is_flag=True, help="Print the final command; start and write nothing.")
@click.option("--explain", is_flag=True, help="Print each value with its origin and what it beat.")
@click.option("--script", "script", is_flag=True, help="Print launch.sh.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the plan, or what was started, as JSON."
)
@click.option("--project-root", metavar="PATH", help="Print the plan as if the project lay there.")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Stream the log; exit 0/1 with the job. Ctrl-C leaves it running.",
)
@click.option("--foreground", is_flag=True, help="For CI: stay, and stop the job when stopped.")
def command(job: tuple[str, ...], **options: Any) -> int:
    """Start a job on this machine, under tmux where there is one.

    \b
    safelaunch run --profile rtx5090 train.yaml
    safelaunch run --dry-run *.yaml
    safelaunch run -- NCCL_P2P_DISABLE=1 accelerate launch --num_processes 4 t.py
    """  # noqa: D301 - \b is click's mark
    files, line = job, pasted_line()
    flags = Flags(
        profile=options["profile"],
        sets=options["sets"],
        hosts_file=options["hosts_file"],
        ladder=options["ladder"],
        workarounds=not options["no_workarounds"],
        debug=options["debug"],
        project_root=options["project_root"],
        smoke=options["smoke"],
    )
    if flags.ladder is not None and not flags.workarounds:
        raise ConfigError("`--nccl-ladder` and `--no-workarounds` together", hint="give one")
    if files and files[0] in ("accelerate", "torchrun", "python", "python3"):
        raise ConfigError("a command line without `--`", hint=f"safelaunch run -- {files[0]} ...")
    if bool(files) == bool(line):
        raise ConfigError(
            "run what?" if not files else "a job file and a line together",
            hint="give a job file, or `-- accelerate launch ...`",
        )
    if options["dry_run"] or options["explain"] or options["script"]:
        return _dry_run(files, line, flags, options)
    if options["project_root"]:
        raise ConfigError("`--project-root` is for a dry-run", hint="add --dry-run")
    if len(files) > 1:
        raise ConfigError(f"{len(files)} job files: several at once only with --dry-run")
    from safelaunch.cli.start import start  # noqa: PLC0415 - a dry-run must not pay for it
    from safelaunch.runs import home  # noqa: PLC0415

    plan = make_plan(resolve_target(files, line, flags))
    if options["resume"] or options["resume_from"] is not None:
        from safelaunch.execute.resume import of_run  # noqa: PLC0415 - as above

        plan = of_run(plan, home(os.environ), options["resume_from"])
    return start(plan, options)


def _dry_run(
    files: tuple[str, ...], line: tuple[str, ...], flags: Flags, options: dict[str, Any]
) -> int:
    if len(files) > 1:
        return _several(files, flags, options)
    resolved = resolve_target(files, line, flags)
    _print(resolved, _planned(resolved, options), options)
    return 0


def _planned(resolved: Resolved, options: dict[str, Any]) -> Plan:
    """Return the plan; of a resume without a look at the run that it goes on from."""
    plan = make_plan(resolved)
    resumes = options["resume"] or options["resume_from"] is not None
    return resume(plan) if resumes else plan


def _print(resolved: Resolved, plan: Plan, options: dict[str, Any]) -> None:
    if options["as_json"]:
        from safelaunch.serial import plan_json  # noqa: PLC0415

        print_json(plan_json(plan))
    elif options["script"]:
        from safelaunch.serial import script_of  # noqa: PLC0415

        for node in plan.nodes:
            click.echo(script_of(plan, node), nl=False)
        say("note: a template; a start fills in its `<slots>` and keeps the script as launch.sh")
    elif options["explain"]:
        print_explanation(resolved, plan)
    else:
        print_plan(plan)
        return
    if not options["as_json"]:
        say_warnings(plan)


def _several(files: tuple[str, ...], flags: Flags, options: dict[str, Any]) -> int:
    """Plan several files; every one is reported, and one that is bad makes exit 2."""
    plans, errors = [], []
    for file in files:
        try:
            resolved = resolve_target((file,), (), flags)
            plan = _planned(resolved, options)
        except SafelaunchError as e:
            errors.append((file, e))
            report(e)
            continue
        plans.append((file, plan))
        if not options["as_json"]:
            click.echo(f"# {file}")
            _print(resolved, plan, options)
    if options["as_json"]:
        from safelaunch.serial import VERSION, plan_json  # noqa: PLC0415

        print_json(
            {
                "version": VERSION,
                "plans": [{"file": file, **plan_json(plan)} for file, plan in plans],
                "errors": [
                    {"file": file, "message": e.message, "where": e.where, "hint": e.hint}
                    for file, e in errors
                ],
            }
        )
    if errors:
        say(f"{len(errors)} of {len(files)} job files are bad")
    return 2 if errors else 0
