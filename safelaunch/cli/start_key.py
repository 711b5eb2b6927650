"""`--id KEY` of a start: an earlier run of the key is shown instead of a new one."""

# ruff: noqa: PLC0415 - a start without a key does without

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.output import say
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from safelaunch.model import Plan
    from safelaunch.runs.access import RunAccess
    from safelaunch.start.conditions.once import StartKey


def earlier_run(plan: Plan, options: dict[str, Any]) -> RunAccess | None:
    """Return the run that the key of the options has started; None where it may start one.

    The key is locked then, until `release`.
    """
    if options["key"] is None:
        return None
    if options["resume"] or options.get("foreground"):
        option = "--resume" if options["resume"] else "--foreground"
        hint = "--resume-from RUN" if options["resume"] else "--follow"
        raise ConfigError(f"`--id` and `{option}` exclude each other", hint=hint)
    from safelaunch.cli.connections import catalog
    from safelaunch.runs import store
    from safelaunch.start.conditions.once import StartKey

    home, context = store.home(os.environ), click.get_current_context()
    key = StartKey(home, options["key"], say)
    context.meta[__name__] = key, plan
    context.call_on_close(key.release)
    return key.run_of(plan, home, catalog().open)


def record(run_id: str) -> None:
    """Record the run that is about to be started, if the start has a key."""
    pair: tuple[StartKey, Plan] | None = click.get_current_context().meta.get(__name__)
    if pair is not None:
        pair[0].record(run_id, pair[1])


def release() -> None:
    """Let a second start with the key go on: the run has been started."""
    pair: tuple[StartKey, Plan] | None = click.get_current_context().meta.get(__name__)
    if pair is not None:
        pair[0].release()
