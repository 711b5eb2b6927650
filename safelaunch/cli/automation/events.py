"""`safelaunch events`: what happens to runs, a line for each change."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import escape, print_json_line, report, say, terminal_text
from safelaunch.cli.runs import groups
from safelaunch.remote.runs import follow_events
from safelaunch.runtime.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_TEXT = 200  # characters of a line for people


@click.command("events")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--follow", "-f", is_flag=True, help="Go on until the run is over; of all runs, on.")
@click.option("--since", metavar="CURSOR", help="Go on behind the line that had this `cursor`.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2),
    default=follow_events.PROGRESS,
    show_default=True,
    metavar="SECONDS",
    help="Time between two lines with the steps of a run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each line as one JSON object.")
def command(
    run: str | None, follow: bool, since: str | None, interval: float, as_json: bool
) -> int:
    """Print what happens to a run, or to all: states, attempts, steps, warnings, failures, ends.

    RUN may be the group of a file with steps. Without RUN: of all runs that have not ended, and
    with --follow of those that start later. With --since nothing comes twice, and nothing is left
    out, however long ago the line was printed.
    Exit code 4: a host does not answer.
    """
    runs = catalog()
    events = follow_events.EventFollower(runs, since, follows=follow, interval=interval)
    group = groups.find_group(run)
    if group is not None:
        lines = events.of_group(group)
    else:
        lines = events.of_all() if run is None else events.of_run(runs.find(run).record)
    write = print_json_line if as_json else _print_text
    try:
        for event in lines:
            write(event.data)
    except KeyboardInterrupt:
        say("")
        return 130
    for error in events.errors:
        report(error)
    return max((error.exit_code for error in events.errors), default=0)


def _print_text(data: dict[str, Any]) -> None:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(data["time"]))
    text = " ".join(_SENTENCES[data["event"]](data).split())
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 3] + "..."
    line = f"{moment}  {data['run'] or data['host']}  {data['event']:<8}  {text}"
    click.echo(terminal_text(escape(line)))
    sys.stdout.flush()


def _state(data: dict[str, Any]) -> str:
    before = f", was {data['before']}" if data["before"] else ""
    reason = f": {data['reason']}" if data.get("reason") else ""
    return f"{data['state']}{before}{reason}"


def _attempt(data: dict[str, Any]) -> str:
    text = f"{data['attempt']} {data['state']}"
    if data.get("exit_code") is not None:
        text += f", exit code {data['exit_code']}"
    if data.get("resume_checkpoint"):
        text += f" from {data['resume_checkpoint']}"
    return text + _time_and_cause(data)


def _time_and_cause(data: dict[str, Any]) -> str:
    """Return after which time an attempt or a part has ended, and why it has failed."""
    text = "" if data.get("elapsed") is None else f" after {duration(data['elapsed'])}"
    what = [str(data[key]) for key in ("class", "what") if data.get(key)]
    return f"{text}; {': '.join(what)}" if what else text


def _part(data: dict[str, Any]) -> str:
    values = "".join(f", {name} {value}" for name, value in data.get("values", {}).items())
    text = f"{data['part']} {data['state']}{values}"
    if data.get("exit_code"):
        text += f", exit code {data['exit_code']}"
    return text + _time_and_cause(data)


def _progress(data: dict[str, Any]) -> str:
    parts = []
    if data.get("step") is not None:
        total = f"/{data['total']}" if data.get("total") is not None else ""
        parts.append(f"step {data['step']}{total}")
    if data.get("epoch") is not None:
        parts.append(f"epoch {data['epoch']:g}")
    if data.get("loss") is not None:
        parts.append(f"loss {data['loss']}")
    if data.get("eta") is not None:
        parts.append(f"{duration(data['eta'])} left")
    return ", ".join(parts)


def _notice(data: dict[str, Any]) -> str:
    details = ", ".join(f"{key} {value}" for key, value in data["details"].items())
    return f"{data['name']}: {details}" if details else str(data["name"])


def _failure(data: dict[str, Any]) -> str:
    what = [str(data[key]) for key in ("class", "what") if data.get(key)]
    return ": ".join(what) + (f" ({data['frame']})" if data.get("frame") else "")


def _end(data: dict[str, Any]) -> str:
    text = str(data["state"])
    if data["exit_code"] is not None:
        text += f", exit code {data['exit_code']}"
    if data.get("reason"):
        text += f", {data['reason']}"
    if data.get("elapsed") is not None:
        text += f", ran {duration(data['elapsed'])}"
    return text


def _host(data: dict[str, Any]) -> str:
    return "answers again" if data["answers"] else f"does not answer: {data['reason']}"


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "state": _state,
    "attempt": _attempt,
    "part": _part,
    "progress": _progress,
    "warning": lambda data: str(data["message"]),
    "notice": _notice,
    "failure": _failure,
    "end": _end,
    "host": _host,
}
