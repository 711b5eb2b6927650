"""What is printed after a start, wherever the run is; and following the run to its end."""

# ruff: noqa: PLC0415 - what follows a run is imported beside its start

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli import start_key
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, say
from safelaunch.errors import ConfigError
from safelaunch.runs import store
from safelaunch.runtime import backends

if TYPE_CHECKING:
    from safelaunch.runs.access import RunAccess
    from safelaunch.start.caller import Started


def check_output(options: dict[str, Any], command: str) -> None:
    """Raise ConfigError for options that would print two things at once."""
    if options["as_json"] and (options["follow"] or options.get("foreground")):
        raise ConfigError(
            "the log and `--json` cannot be printed together",
            hint=f"{command} --json, then safelaunch wait --json",
        )


def show_started(started: Started, options: dict[str, Any]) -> int:
    """Print what was started, or follow it, as the options say; return the exit code."""
    run_id = started.run.id
    start_key.release()
    try:
        run = catalog().open(started.run)
        say_notes(started)
        if options["as_json"]:
            print_json(start_json(started, run))
        elif options["follow"]:
            where = f": {_job(started)}" if started.job else _hosts(run)
            say(f"started {run_id}{where}; Ctrl-C leaves it running")
            from safelaunch.cli.runs.follow import follow, outcome

            return outcome(run, follow(run))
        else:
            _say_how_to_look(started, run)
    except KeyboardInterrupt:
        return keeps_running(run_id)
    return 0


def show_earlier(run: RunAccess, options: dict[str, Any], command: str) -> int:
    """Print the run that an earlier start with the same key has started, or follow it."""
    check_output(options, command)
    start_key.release()
    if options["as_json"]:
        print_json(earlier_json(run))
        return 0
    say(f"{run.id} was started with this key before")
    if options["follow"]:
        from safelaunch.cli.runs.follow import follow, outcome

        try:
            return outcome(run, follow(run))
        except KeyboardInterrupt:
            return keeps_running(run.id)
    from safelaunch.cli.runs.follow import headline

    click.echo(headline(run, run.last_status()))
    return 0


def earlier_json(run: RunAccess) -> dict[str, Any]:
    """Return what `run --json` prints of a run that was started before."""
    status, places = run.last_status(), run.places()
    shown = store.show(run.record, status, {})
    backend, handle = backends.from_record(status)
    attach = shlex.join(backend.attach(handle)) or None
    earlier = {
        "version": 1,
        "id": run.id,
        "state": status.state,
        "host": shown.host,
        "run_dir": shown.run_dir,
        "attach": f"safelaunch attach {run.id}" if places and attach else attach,
        "is_new": False,
    }
    return {**earlier, "nodes": [place.to_json() for place in places]} if places else earlier


def keeps_running(run_id: str) -> int:
    """Print that a signal has not ended a run; return the exit code."""
    say(
        f"\n{run_id} keeps running\n  follow   safelaunch logs -f {run_id}\n"
        f"  stop     safelaunch stop {run_id}"
    )
    return 130


def say_notes(started: Started) -> None:
    """Print what the user should know of the start."""
    for note in started.notes:
        say(f"note: {note}")


def _job(started: Started) -> str:
    """Return what an engine calls a run, and where it was submitted."""
    login = _login_node(started)
    return f"job {started.job} of {started.engine}" + (f" on {login}" if login else "")


def _login_node(started: Started) -> str:
    """Return the host on which a run was submitted, "" for this machine."""
    return store.mirror_record(started.run).host


def _hosts(run: RunAccess) -> str:
    names = ", ".join(place.host for place in run.places())
    return f" on {names}" if names else ""


def start_json(started: Started, run: RunAccess) -> dict[str, Any]:
    """Return what `run --json` and `remote --json` print."""
    first = started.places[0]
    shown = {
        "version": 1,
        "id": run.id,
        "state": run.last_status().state,
        "host": first.host,
        "run_dir": first.run_dir,
        "attach": shlex.join(started.attach) or None,
        "is_new": True,
    }
    if started.job:
        shown["job"] = started.job
    if run.places():
        shown["attach"] = f"safelaunch attach {run.id}" if started.attach else None
        shown["nodes"] = [place.to_json() for place in started.places]
    return shown


def _say_how_to_look(started: Started, run: RunAccess) -> None:
    run_id, is_remote = run.id, bool(run.places())
    if started.job:
        click.echo(f"submitted {run_id}: {_job(started)}")
    else:
        how = " in tmux" if started.attach else " (no tmux)"
        click.echo(f"started {run_id}{_hosts(run)}{how}")
    click.echo(f"  follow   safelaunch logs -f {run_id}")
    if started.attach:
        click.echo(f"  attach   safelaunch attach {run_id}")
        if not is_remote:
            click.echo(f"           or: {shlex.join(started.attach)}")
    click.echo(f"  stop     safelaunch stop {run_id}")
    for place in started.places:
        host = f"{place.host}:" if is_remote else ""
        if started.job:  # its nodes have no name yet
            host = f"{login}:" if (login := _login_node(started)) else ""
        click.echo(f"  files    {host}{shlex.quote(place.run_dir)}")
    if started.network:
        click.echo(f"  network  {', '.join(started.network)}")
