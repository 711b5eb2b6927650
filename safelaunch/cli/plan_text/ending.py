"""Prints what follows the end of a run, as a dry-run shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from safelaunch.model import Ending
from safelaunch.runtime.units import job_duration
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.model import Plan, Shutdown


def print_ending(plan: Plan) -> None:
    """Print what is run at the end of a job that says so."""
    ending = plan.supervision.ending or Ending()
    place = f", on {plan.nodes[0].host}" if len(plan.nodes) > 1 else ""
    click.echo(f"\nat its end{place}")
    for line in _lines(ending):
        click.echo(f"  {line}")


def command_text(words: tuple[str, ...]) -> str:
    """Return a command as it would be typed."""
    if words[:2] == ("bash", "-c") and len(words) == 3:  # noqa: PLR2004 - and its line
        return words[2]
    return " ".join(map(quote, words))


def _lines(ending: Ending) -> Iterator[str]:
    limit = job_duration(ending.timeout)
    for name in ("on_success", "on_failure", "on_end"):
        for words in getattr(ending, name):
            yield f"{name}: {command_text(words)}    (at most {limit})"
    if ending.upload is not None:
        upload = ending.upload
        files, most = ", ".join(upload.files), job_duration(upload.timeout)
        yield f"upload: {files} to {upload.to} by {upload.program}, compared    (at most {most})"
    if ending.pull:
        yield f"pull: {', '.join(ending.pull)}, by a client that waits for the run's end"
    if ending.shutdown is not None:
        yield from _shutdown(ending.shutdown, has_pull=bool(ending.pull))


def _shutdown(shutdown: Shutdown, *, has_pull: bool) -> Iterator[str]:
    yield f"shutdown: {command_text(shutdown.command)}"
    needs = ["all of this has succeeded"]
    if has_pull:
        wait = job_duration(shutdown.pull_wait)
        needs.append(f"`pull` was fetched, or {wait} have passed")
    is_alone = shutdown.others == "ignore"
    needs.append("no other run is live" + ("" if is_alone else ", and nobody else on the machine"))
    yield f"  once {', and '.join(needs)}; {job_duration(shutdown.grace)} later"
