"""Submits a plan to an engine for `run --on` and `rerun`."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from safelaunch.cli import start_key
from safelaunch.cli.plan_text.plan import print_warnings
from safelaunch.cli.start.targets.after_start import check_output, show_started
from safelaunch.cli.start.targets.local import interruptible
from safelaunch.errors import ConfigError
from safelaunch.start import engine
from safelaunch.start.caller import caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import Plan
    from safelaunch.runtime.records import EarlierRun


def start(
    plan: Plan,
    options: dict[str, Any],
    files: Mapping[str, bytes] = MappingProxyType({}),
    after: tuple[tuple[EarlierRun, ...], ...] = (),
) -> int:
    """Submit the plan as the options say, with further `files`; return the command's exit code.

    `after` are runs that must have ended before it begins.
    """
    target = engine.submitting_engine(plan)  # before anything is printed
    if options["foreground"]:
        raise ConfigError(
            f"`--foreground` and {target.TITLE}: the job runs on other machines", hint="--follow"
        )
    check_output(options, "run")
    print_warnings(plan, is_start=True)
    by = caller(os.environ)._replace(after=after)
    start_key.record(by.run_id(plan.name))
    with interruptible():
        started = engine.submit(plan, by, files)
    return show_started(started, options)
