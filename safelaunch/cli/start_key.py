"""`--id KEY` of a start: an earlier run of the key is shown instead of a new one."""

# ruff: noqa: PLC0415 - a start without a key does without

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.output import say
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Plan
    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.groups import RunGroup
    from safelaunch.start.conditions.once import StartKey


def earlier_run(plan: Plan, options: dict[str, Any]) -> RunAccess | None:
    """Return the run that the key of the options has started; None where it may start one.

    The key is locked then, until `release`.
    """
    if options["key"] is None:
        return None
    from safelaunch.cli.connections import catalog

    key = _locked(options, plan)
    return key.run_of(plan, _home(), catalog().open)


def earlier_group(plans: Mapping[str, Plan], options: dict[str, Any]) -> RunGroup | None:
    """Return the group of steps that the key has started; None where it may start one."""
    return None if options["key"] is None else _locked(options, plans).group_of(plans, _home())


def _home() -> str:
    from safelaunch.runs import store

    return store.home(os.environ)


def _locked(options: dict[str, Any], plan: Plan | Mapping[str, Plan]) -> StartKey:
    """Return the key of the options, which is locked until `release`. Raises ConfigError."""
    if options["resume"] or options.get("foreground"):
        option = "--resume" if options["resume"] else "--foreground"
        hint = "--resume-from RUN" if options["resume"] else "--follow"
        raise ConfigError(f"`--id` and `{option}` exclude each other", hint=hint)
    from safelaunch.start.conditions.once import StartKey

    context = click.get_current_context()
    key = StartKey(_home(), options["key"], say)
    context.meta[__name__] = key, plan
    context.call_on_close(key.release)
    return key


def record(name: str) -> None:
    """Record the run or group that is about to be started, if the start has a key."""
    pair = _pair()
    if pair is not None:
        pair[0].record(name, pair[1])


def forget() -> None:
    """Let the key start anew: nothing is left of its start."""
    pair = _pair()
    if pair is not None:
        pair[0].forget()


def release() -> None:
    """Let a second start with the key go on: the run has been started."""
    pair = _pair()
    if pair is not None:
        pair[0].release()


def _pair() -> tuple[StartKey, Plan | Mapping[str, Plan]] | None:
    pair: tuple[StartKey, Plan | Mapping[str, Plan]] | None
    pair = click.get_current_context().meta.get(__name__)
    return pair
