"""`--after RUN` and `--after-any RUN`: the runs that must have ended before another begins."""

# ruff: noqa: PLC0415 - a start without them does without

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safelaunch.runtime.records import EarlierRun


def earlier_runs(options: dict[str, Any]) -> tuple[EarlierRun, ...]:
    """Return the runs of this machine that the options name. Raises ConfigError."""
    names = {False: options.get("after") or (), True: options.get("after_any") or ()}
    if not any(names.values()):
        return ()
    from safelaunch.runs import store
    from safelaunch.runtime.records import EarlierRun

    home = store.home(os.environ)
    return tuple(
        EarlierRun(run=store.find(home, name).id, is_any_end=is_any_end)
        for is_any_end, group in names.items()
        for name in group
    )
