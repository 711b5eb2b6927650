"""The command line. Only `main` turns errors into messages and exit codes."""

# ruff: noqa: PLC0415 - traceback: only after a fault of safelaunch

# ruff: noqa: ARG002 - click's signatures

from __future__ import annotations

import atexit
import codecs
import contextlib
import io
import os
import sys
from typing import NoReturn

import click

from safelaunch import __version__
from safelaunch.cli.output import print_error, report_end, terminal_text
from safelaunch.errors import ConfigError, SafelaunchError, UsageError, did_you_mean

# name: (module, help); a module is imported only when its command is used
COMMANDS = {
    "run": ("start.run", "Start a job on this machine, or print what would be started."),
    "remote": ("start.remote", "Sync the project to a host and start a job there, over SSH."),
    "ps": ("runs.ps", "List runs."),
    "show": ("runs.show", "Show one run: state, exit code, processes, progress, failure."),
    "logs": ("runs.logs", "Print or follow a run's log."),
    "events": ("automation.events", "Print what happens to runs, for programs."),
    "mcp": ("automation.mcp", "Serve the commands to coding assistants as tools (MCP)."),
    "attach": ("runs.attach", "Attach this terminal to a run's tmux pane."),
    "wait": ("runs.wait", "Wait until a run has ended; exit 0 if it succeeded."),
    "stop": ("runs.stop", "Stop a run, and verify that no process of it is left."),
    "clean": ("runs.clean", "Remove the copies of projects that ended runs have on hosts."),
    "rerun": ("start.rerun", "Start the plan of an earlier run again."),
    "report": ("diagnose.report", "Write a bug report of a run: one .zip without secrets."),
    "diff": ("diagnose.diff", "Show how two runs differ: code, command, variables, versions."),
    "push": ("transfer.push", "Copy a file or folder to a host."),
    "pull": ("transfer.pull", "Fetch files of a run from its host."),
    "diagnose": ("diagnose.diagnose", "Find the root cause of a failure in training logs."),
    "check": ("check.check", "Find what would prevent a job from running, before a start."),
    "lint": ("lint.lint", "Find mistakes in job files, configs and scripts."),
    "init": ("start.init", "Turn a pasted launch line into a job file."),
    "import": ("start.import_script", "Turn the launches of a shell script into job files."),
    "hosts": ("hosts.hosts", "List, test and add the machines that jobs can run on."),
    "facts": ("info.facts", "Show hardware and software of this machine or of hosts."),
    "gpus": ("info.gpus", "Show the cards of this machine or of hosts, who has them, who waits."),
    "profiles": ("info.profiles", "List hardware profiles, or show one with the reasons."),
    "launchers": ("info.launchers", "List launchers."),
    "schema": ("info.schema", "Print a JSON Schema of job, profile or hosts files."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module = __import__(f"safelaunch.cli.{COMMANDS[cmd_name][0]}", fromlist=["command"])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; a misspelt one and a job file raise ConfigError with a hint."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = did_you_mean(name, COMMANDS) or "safelaunch --help lists them"
            if name.endswith((".yaml", ".yml", ".json", ".sh", ".py")):
                hint = f"safelaunch run {name}"
            raise ConfigError(f"no command `{name}`", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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


def _unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write bytes of file names as they are, and what the terminal's encoding lacks as an escape.

    Redirected output of Windows has the system's code page; half an emoji (a lone surrogate, usual
    in token data) has no encoding at all.
    """
    with contextlib.suppress(UnicodeError):
        return codecs.lookup_error("surrogateescape")(error)
    return codecs.backslashreplace_errors(error)


def _write_without_controls(stream: io.TextIOWrapper) -> None:
    """Let no text on this stream change the terminal, whichever command writes it."""
    write = stream.write
    stream.write = lambda text: write(terminal_text(text))  # type: ignore[method-assign]


_ERRORS = "safelaunch"
codecs.register_error(_ERRORS, _unencodable)


def program() -> NoReturn:
    """Run the command line as a whole process, and end that at once.

    Python would take apart all that was imported: a sixth of the time of a start on a host.
    """
    code: object = 0
    try:
        main()
    except SystemExit as e:
        code = e.code
    atexit._run_exitfuncs()  # noqa: SLF001 - Python's own end; all threads of ours are daemons
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):  # None after `>&-`
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    """Run the command line and exit.

    0 success, 1 not succeeded, 2 usage, 3 refused, 4 a host, 5 internal, 130 Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
            _write_without_controls(stream)
    code = _run()
    try:
        if sys.stdout is not None:  # `>&-`
            sys.stdout.flush()
    except OSError:  # a full disk behind `>`: reported already, Python must not report it again
        _discard_stdout()
    sys.exit(code)


def _run() -> int:  # noqa: PLR0911 - one return for each kind of end
    """Run the command line, print its error, and return the exit code."""
    stdout, as_json = sys.stdout, _wants_json(sys.argv[1:])
    try:
        code = cli.main(standalone_mode=False)
        if stdout is not None:
            stdout.flush()
    except SafelaunchError as e:
        return _report_end(e, as_json=as_json)
    except click.ClickException as e:
        return _report_end(_usage_error(e), as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return _report_interrupt(as_json=as_json)
    except BrokenPipeError:  # `| head` is no failure
        _discard_stdout()
        return 0
    except SystemExit as e:
        # click catches EPIPE itself, wraps stdout and exits with 1
        if sys.stdout is not stdout:
            _discard_stdout()
            return 0
        return e.code if isinstance(e.code, int) else 1
    except Exception as e:  # noqa: BLE001 - a bug of ours: reported with its traceback in a file
        import traceback

        error = SafelaunchError(f"unexpected {type(e).__name__}: {' '.join(str(e).split())[:200]}")
        error.details = "".join(traceback.format_exception(e))
        error.exit_code = 5
        return _report_end(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def _discard_stdout() -> None:
    """Discard what is still buffered: Python flushes at its end, and would report an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _wants_json(words: list[str]) -> bool:
    """Whether the command was asked for JSON, also where its options cannot be read."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _report_end(error: SafelaunchError, *, as_json: bool) -> int:
    """Print the error that ends the command; return the exit code."""
    report_end(error, as_json=as_json)
    return error.exit_code


def _report_interrupt(*, as_json: bool) -> int:
    """Print that a signal has ended the command; return the exit code."""
    click.echo("interrupted", err=True)
    error = SafelaunchError("interrupted")
    error.code, error.exit_code = "interrupted", 130
    if as_json:
        print_error(error)
    return error.exit_code


def _usage_error(error: click.ClickException) -> SafelaunchError:
    message, context = error.format_message(), getattr(error, "ctx", None)
    return UsageError(
        f"{message[:1].lower()}{message[1:].rstrip('.')}",
        hint=None if context is None else f"see {context.command_path} --help",
    )
