"""The command line. `main` is the one place where errors become text and exit codes."""

from __future__ import annotations

import io
import os
import sys

import click

from safelaunch import __version__
from safelaunch.cli.output import _style, report
from safelaunch.errors import ConfigError, SafelaunchError, did_you_mean

# name -> (module, one line of help): a command's module is imported when it is used
COMMANDS = {
    "run": ("start.run", "Start a job on this machine, or print what would be started."),
    "remote": ("start.remote", "Sync the project to a host and start a job there, over SSH."),
    "ps": ("runs.ps", "List runs."),
    "show": ("runs.show", "Show one run: state, exit code, processes, progress, failure."),
    "logs": ("runs.logs", "Print or follow a run's log."),
    "attach": ("runs.attach", "Attach this terminal to a run's tmux pane."),
    "wait": ("runs.wait", "Wait until a run has ended; exit 0 if it succeeded."),
    "stop": ("runs.stop", "Stop a run, and check that no process of it is left."),
    "rerun": ("start.rerun", "Start a recorded run's plan again."),
    "report": ("diagnose.report", "Pack a run for a bug report: one .zip without secrets."),
    "diff": ("diagnose.diff", "Show how two runs differ: code, command, variables, versions."),
    "push": ("transfer.push", "Copy a file or folder to a host."),
    "pull": ("transfer.pull", "Fetch files that a run made on its host."),
    "diagnose": ("diagnose.diagnose", "Find the root cause in any training log, and what to do."),
    "check": ("check.check", "Find what would keep a job from starting, before it starts."),
    "lint": ("lint.lint", "Find mistakes in job files, configs and scripts."),
    "init": ("start.init", "Turn a pasted launch line into a job file."),
    "hosts": ("hosts.hosts", "List, test and add the machines that jobs can run on."),
    "facts": (
        "info.facts",
        "Show what this machine or hosts have: GPUs, memory, disks, torch, NCCL.",
    ),
    "profiles": ("info.profiles", "List hardware profiles, or show one with its reasons."),
    "launchers": ("info.launchers", "List launchers."),
    "schema": ("info.schema", "Print the JSON Schema of job, profile or hosts files, for editors."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module = __import__(f"safelaunch.cli.{COMMANDS[cmd_name][0]}", fromlist=["command"])
        found: click.Command = module.command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; a near miss and a job file get a hint."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = did_you_mean(name, COMMANDS) or "safelaunch --help lists them"
            if name.endswith((".yaml", ".yml")):
                hint = f"safelaunch run {name}"
            raise ConfigError(f"no command `{name}`", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", prog_name="safelaunch")
@click.pass_context
def cli(context: click.Context) -> None:
    """Start multi-GPU training jobs with the right settings, and learn how they ended.

    RUN is a run's id, an unambiguous prefix of it, a job's name (its newest run), or nothing
    (the newest run).
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run the command line and exit.

    0 done, 1 not succeeded, 2 usage, 3 refused, 4 a host, 5 internal, 130 Ctrl-C.
    """
    if sys.platform == "win32":
        _say_anything()
    code = _guarded()
    try:
        if sys.stdout is not None:  # `>&-`
            sys.stdout.flush()
    except OSError:  # a full disk behind `>`: it has been reported, Python's own end must not again
        _drop_stdout()
    sys.exit(code)


def _say_anything() -> None:
    """Let no character end a command: behind `>` Windows has the system's code page."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _guarded() -> int:  # noqa: PLR0911 - one way out for each kind of end
    stdout = sys.stdout
    try:
        code = cli.main(standalone_mode=False)
        if stdout is not None:
            stdout.flush()
    except SafelaunchError as e:
        report(e)
        return e.exit_code
    except click.ClickException as e:
        return _usage(e)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as e:
        # click catches EPIPE itself, wraps stdout and exits with 1
        if sys.stdout is not stdout:
            return _reader_gone()
        return e.code if isinstance(e.code, int) else 1
    except Exception as e:  # noqa: BLE001 - the one place where the unexpected ends
        return _unexpected(e)
    return code if isinstance(code, int) else 0


def _reader_gone() -> int:
    """A closed stdout (`| head`) is no failure."""
    _drop_stdout()
    return 0


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere: Python flushes at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage(error: click.ClickException) -> int:
    message = error.format_message()
    message = message[:1].lower() + message[1:].rstrip(".")
    context = getattr(error, "ctx", None)
    click.echo(_style("error:", "red") + f" {message}", err=True)
    if context is not None:
        click.echo(_style("hint:", "cyan") + f" see {context.command_path} --help", err=True)
    return 2


def _unexpected(error: Exception) -> int:
    import traceback  # noqa: PLC0415 - only the unexpected pays for it

    summary = " ".join(str(error).split())[:200]
    told = SafelaunchError(f"unexpected {type(error).__name__}: {summary}")
    told.details = "".join(traceback.format_exception(error))
    report(told)
    return 5
