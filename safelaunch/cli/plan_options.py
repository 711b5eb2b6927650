"""What `run` and `remote` share: flags of a plan, a pasted line, printing without a start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from safelaunch import launchers
from safelaunch.cli.completion import complete_profile, complete_run
from safelaunch.cli.output import print_json, report, say
from safelaunch.cli.show_plan import print_explanation, print_plan, say_warnings
from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError, SafelaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


_PLANNING = (
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=complete_profile,
        help="Hardware profile, by name or path.",
    ),
    click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a job key (a.b=c)."
    ),
    click.option(
        "--hosts", "hosts_file", metavar="FILE", help="Hosts file; `localhost` is this machine."
    ),
    click.option(
        "--debug",
        is_flag=True,
        help="NCCL_DEBUG=INFO, TORCH_DISTRIBUTED_DEBUG=DETAIL, CUDA_LAUNCH_BLOCKING=1.",
    ),
    click.option("--no-workarounds", is_flag=True, help="Leave out the profile's workarounds."),
    click.option(
        "--nccl-ladder",
        "ladder",
        type=click.IntRange(0, 9),
        metavar="N",
        help="First N steps of the profile's ladder instead (0: none).",
    ),
    click.option("--smoke", is_flag=True, help="Lay the job's `smoke:` block over it."),
    click.option(
        "--resume",
        is_flag=True,
        help="Go on from the job's newest run, with `recovery: resume_args`.",
    ),
    click.option(
        "--resume-from", metavar="RUN", shell_complete=complete_run, help="Go on from that run."
    ),
    click.option(
        "--dry-run", is_flag=True, help="Print the final command; start and write nothing."
    ),
    click.option(
        "--explain", is_flag=True, help="Print each value with its origin and what it beat."
    ),
    click.option("--script", "script", is_flag=True, help="Print launch.sh."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print the plan, or what was started, as JSON."
    ),
)


def planning(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the flags of a plan."""
    for option in reversed(_PLANNING):
        command = option(command)
    return command


_STARTING = (
    click.option(
        "--follow",
        "-f",
        is_flag=True,
        help="Stream the log; exit 0/1 with the job. Ctrl-C leaves it running.",
    ),
    click.option("--no-check", is_flag=True, help="Start without the quick checks."),
)


def starting(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the flags of a start."""
    for option in reversed(_STARTING):
        command = option(command)
    return command


def flags_of(options: dict[str, Any]) -> Flags:
    """Return the flags of a plan. Raises ConfigError for those that exclude each other."""
    flags = Flags(
        profile=options["profile"],
        sets=options["sets"],
        hosts_file=options["hosts_file"],
        ladder=options["ladder"],
        workarounds=not options["no_workarounds"],
        debug=options["debug"],
        project_root=options.get("project_root"),
        smoke=options["smoke"],
    )
    if flags.ladder is not None and not flags.workarounds:
        raise ConfigError("`--nccl-ladder` and `--no-workarounds` together", hint="give one")
    return flags


def check_target(command: str, files: Sequence[str], line: Sequence[str]) -> None:
    """Refuse a command line without `--`, nothing to run, or two things. Raises ConfigError."""
    if files and _is_program(files[0]):
        raise ConfigError(
            "a command line without `--`", hint=f"safelaunch {command} -- {files[0]} ..."
        )
    if bool(files) == bool(line):
        raise ConfigError(
            f"{command} what?" if not files else "a job file and a line together",
            hint="give a job file, or `-- accelerate launch ...`",
        )


def _is_program(word: str) -> bool:
    """Whether a word is a program that people launch with; a file with a suffix never is."""
    if word in ("python", "python3"):
        return True
    # loading every launcher is left to words without a dot: a job file has one
    return re.fullmatch(r"[\w-]+", word) is not None and launchers.find_program([word]) is not None


def only_shows(options: dict[str, Any]) -> bool:
    """Whether a plan is to be printed and nothing started."""
    return bool(options["dry_run"] or options["explain"] or options["script"])


def resumes(options: dict[str, Any]) -> bool:
    """Whether the job goes on from an earlier run."""
    return options["resume"] or options["resume_from"] is not None


def show(
    targets: Sequence[str], plan_of: Callable[[str], tuple[Resolved, Plan]], options: dict[str, Any]
) -> int:
    """Print the plans of some targets; of several each bad one is reported, and makes exit 2."""
    if len(targets) == 1:
        resolved, plan = plan_of(targets[0])
        _print(resolved, plan, options)
        return 0
    plans, errors = [], []
    for target in targets:
        try:
            resolved, plan = plan_of(target)
        except SafelaunchError as e:
            errors.append((target, e))
            report(e)
            continue
        plans.append((target, plan))
        if not options["as_json"]:
            click.echo(f"# {target}")
            _print(resolved, plan, options)
    if options["as_json"]:
        _print_json(plans, errors)
    if errors:
        say(f"{len(errors)} of {len(targets)} job files are bad")
    return 2 if errors else 0


def _print(resolved: Resolved, plan: Plan, options: dict[str, Any]) -> None:
    if options["as_json"]:
        from safelaunch.plan.serialize import plan_json  # noqa: PLC0415

        print_json(plan_json(plan))
    elif options["script"]:
        from safelaunch.plan.serialize import script_of  # noqa: PLC0415

        for node in plan.nodes:
            click.echo(script_of(plan, node).encode(), nl=False)  # bytes: LF on Windows too
        say("note: a template; a start fills in its `<slots>` and keeps the script as launch.sh")
    elif options["explain"]:
        print_explanation(resolved, plan)
    else:
        print_plan(plan)
        return
    if not options["as_json"]:
        say_warnings(plan)


def _print_json(
    plans: Sequence[tuple[str, Plan]], errors: Sequence[tuple[str, SafelaunchError]]
) -> None:
    from safelaunch.plan.serialize import VERSION, plan_json  # noqa: PLC0415

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
