"""What `run` and `remote` share: options, and the pasted line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from safelaunch import engines
from safelaunch.cli.completion import complete_profile, complete_run
from safelaunch.cli.line_arguments import Words, read_line
from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Decorator = Callable[[Callable[..., int]], Callable[..., int]]

_LINE = "safelaunch.line"


class LineCommand(click.Command):
    """A command with a literal line after `--`; click would mix it with the arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the words after the first `--`, or from the program on, for `pasted_line`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_LINE] = tuple(args[at + 1 :])
            args = args[:at]
        elif not ctx.resilient_parsing and (rest := self._from_first_argument(ctx, args)):
            own = args[: len(args) - len(rest)]
            params = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
            options = {name: not param.is_flag for param in params for name in param.opts}
            words = Words(self.name or "", tuple(own), rest)
            if line := read_line(words, options):
                ctx.meta[_LINE], args = line, own
        return super().parse_args(ctx, args)

    def _from_first_argument(self, ctx: click.Context, args: list[str]) -> tuple[str, ...]:
        """Return the words from the first that is no option or its value; empty after an error."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            values, _, _ = parser.parse_args(list(args))
        except click.UsageError:  # click reports it
            return ()
        arguments = (p.name for p in self.get_params(ctx) if isinstance(p, click.Argument))
        words = next((values.get(name) for name in arguments), None)
        return tuple(words) if isinstance(words, (tuple, list)) else ()


def pasted_line() -> tuple[str, ...]:
    """Return the words after `--`; empty without `--`."""
    line: tuple[str, ...] = click.get_current_context().meta.get(_LINE, ())
    return line


profile_option = click.option(
    "--profile", metavar="NAME", shell_complete=complete_profile, help="Hardware profile or path."
)
set_option = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a job key (a.b=c)."
)


def _decorator(*options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


plan_options = _decorator(
    profile_option,
    set_option,
    click.option(
        "--hosts",
        "hosts_file",
        metavar="FILE",
        help="Hosts file; `run` uses its entry `localhost`.",
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
        help="Use the first N steps of the profile's ladder (0: none).",
    ),
    click.option(
        "--direct", is_flag=True, help="Start the ranks without the launcher (`start: direct`)."
    ),
    click.option("--queue", is_flag=True, help="Wait until so many cards of the machine are free."),
    click.option(
        "--container", metavar="IMAGE", help="Run in a container of this image; `off`: in none."
    ),
    click.option("--smoke", is_flag=True, help="Apply the job's `smoke:` block."),
    click.option("--resume", is_flag=True, help="Continue the job's newest run (`resume_args`)."),
    click.option(
        "--resume-from", metavar="RUN", shell_complete=complete_run, help="Continue this run."
    ),
    click.option("--dry-run", is_flag=True, help="Print the command; start and write nothing."),
    click.option(
        "--explain", is_flag=True, help="Print each value, its origin, what it overrides."
    ),
    click.option("--script", is_flag=True, help="Print launch.sh."),
    click.option("--json", "as_json", is_flag=True, help="Print plan or started run as JSON."),
)
engine_option = click.option(
    "--on",
    "engine",
    type=click.Choice(tuple(engines.NAMES)),
    help="What chooses the machines: submit to Slurm or Ray, or print for Kubernetes.",
)
after_options = _decorator(
    click.option(
        "--after",
        metavar="RUN",
        multiple=True,
        shell_complete=complete_run,
        help="Begin once this run has succeeded; may be repeated.",
    ),
    click.option(
        "--after-any",
        metavar="RUN",
        multiple=True,
        shell_complete=complete_run,
        help="Begin once this run has ended.",
    ),
)
start_options = _decorator(
    click.option(
        "--follow",
        "-f",
        is_flag=True,
        help="Stream the log; exit 0/1 with the job. Ctrl-C leaves it running.",
    ),
    click.option("--no-check", is_flag=True, help="Start without the quick checks."),
    after_options,
    click.option(
        "--id",
        "key",
        metavar="KEY",
        help="Start once for this key: a second start shows the run of the first.",
    ),
)


def read_flags(options: dict[str, Any]) -> Flags:
    """Return the flags of a plan. Raises ConfigError if they exclude each other."""
    flags = Flags(
        profile=options["profile"],
        sets=options["sets"],
        hosts_file=options["hosts_file"],
        ladder=options["ladder"],
        workarounds=not options["no_workarounds"],
        debug=options["debug"],
        project_root=options.get("project_root"),
        smoke=options["smoke"],
        direct=options["direct"],
        queue=options["queue"],
        engine=options.get("engine"),
        container=options["container"],
    )
    if flags.ladder is not None and not flags.workarounds:
        raise ConfigError(
            "`--nccl-ladder` and `--no-workarounds` exclude each other", hint="remove one of them"
        )
    return flags


def check_target(command: str, files: Sequence[str], line: Sequence[str]) -> None:
    """Raise ConfigError unless there is either a job file, or a line after `--`."""
    if files and line:
        raise ConfigError("a job file and a command line at once", hint="remove one of them")
    if not files and not line:
        hint = "name a job file, or add `-- accelerate launch ...`"
        raise ConfigError(f"no job to {'start' if command == 'remote' else command}", hint=hint)


def is_print_only(options: dict[str, Any]) -> bool:
    """Whether plans are printed and nothing is started."""
    return bool(options["dry_run"] or options["explain"] or options["script"])


def wants_resume(options: dict[str, Any]) -> bool:
    """Whether the job continues an earlier run."""
    return options["resume"] or options["resume_from"] is not None


def earlier_names(options: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the runs of `--after` and `--after-any`, each once, and whether any end will do."""
    names = [(name, False) for name in options.get("after") or ()]
    names += [(name, True) for name in options.get("after_any") or ()]
    return list(dict.fromkeys(names))
