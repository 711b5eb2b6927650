"""What happens after a plan: the start, what is said about it, following it to its end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs.follow import follow, outcome
from safelaunch.cli.show_plan import say_warnings
from safelaunch.errors import ConfigError
from safelaunch.runs import store
from safelaunch.runs.access import LocalRun
from safelaunch.runtime import processes, run_state
from safelaunch.start import tmux
from safelaunch.start.caller import Caller, Started
from safelaunch.start.local import start as execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Plan

# what ends a command beside Ctrl-C; Windows has no SIGHUP
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def caller() -> Caller:
    """Return this process's environment, folder and clock for a start."""
    return Caller(
        environ=dict(os.environ),
        home=store.home(os.environ),
        random=os.urandom(2),
        utc=time.strftime("%Y%m%d-%H%M%S", time.gmtime()),
        local_time=time.strftime("%Y%m%d-%H%M%S"),
    )


def start(plan: Plan, options: dict[str, Any]) -> int:
    """Start the plan as the options say, and return the exit code of the command."""
    if options["follow"] and options["foreground"]:
        raise ConfigError("`--follow` and `--foreground` together", hint="give one")
    if options["as_json"] and (options["follow"] or options["foreground"]):
        raise ConfigError(
            "the log and `--json` together would be neither",
            hint="run --json, then safelaunch wait --json",
        )
    say_warnings(plan)
    if options["foreground"]:
        return _foreground(plan)
    with interruptible():
        started = execute(plan, caller())
    try:
        _notes(started)
        if options["as_json"]:
            print_json(start_json(started))
        if options["follow"]:
            say(f"started {started.run.id}; Ctrl-C leaves it running")
            run = LocalRun(started.run)
            return outcome(run, follow(run))
        if not options["as_json"]:
            _say_how_to_look(started)
    except KeyboardInterrupt:
        run_id = started.run.id
        say(
            f"\n{run_id} goes on\n  look again: safelaunch logs -f {run_id}\n"
            f"  end it:     safelaunch stop {run_id}"
        )
        return 130
    return 0


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let TERM and HUP end a start as Ctrl-C does: cleaned up, not half made."""

    def interrupt(signum: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(signum).name)

    before = {n: signal.signal(n, interrupt) for n in _ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _notes(started: Started) -> None:
    for note in started.notes:
        say(f"note: {note}")


def start_json(started: Started) -> dict[str, Any]:
    """Return what `run --json` prints."""
    return {
        "version": 1,
        "id": started.run.id,
        "state": run_state.judge(started.run.node_dir).get("state"),
        "host": "localhost",
        "run_dir": started.run.node_dir,
        "attach": tmux.attach_command(started.socket) if started.socket else None,
    }


def _say_how_to_look(started: Started) -> None:
    run_id = started.run.id
    click.echo(f"started {run_id}" + (" in tmux" if started.socket else " (no tmux)"))
    click.echo(f"  follow   safelaunch logs -f {run_id}")
    if started.socket:
        attach = tmux.attach_command(started.socket)
        click.echo(f"  attach   safelaunch attach {run_id}")
        click.echo(f"           or: {attach}")
    click.echo(f"  stop     safelaunch stop {run_id}")
    click.echo(f"  files    {shlex.quote(started.run.node_dir)}")


def _foreground(plan: Plan) -> int:
    """For CI: the job ends with this process; TERM and INT stop it."""
    told: list[int] = []
    supervisors: list[tuple[int, int]] = []

    def stop(signum: int, _frame: object) -> None:
        told.append(signum)
        for pid, begun in supervisors:
            processes.ask(pid, begun)

    for signum in (signal.SIGINT, *_ENDING):
        signal.signal(signum, stop)
    started = execute(plan, caller(), foreground=True)
    if started.supervisor is not None:
        supervisors.append(started.supervisor)
        if told:  # it came while the job was being started
            processes.ask(*started.supervisor)
    _notes(started)
    say(f"started {started.run.id} in the foreground")
    run = LocalRun(started.run)
    code = outcome(run, follow(run))
    _settle(started)
    return 130 if told and told[0] == signal.SIGINT else code


def _settle(started: Started) -> None:
    """Wait until nothing of ours writes any more: what follows in CI may remove the directory."""
    deadline = time.monotonic() + 5
    for who in (started.supervisor, started.recorder):
        while who and processes.start_time(who[0]) == who[1] and time.monotonic() < deadline:
            time.sleep(0.01)
