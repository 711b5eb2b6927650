"""Names that the shell completes: of runs and profiles."""

# ruff: noqa: PLC0415 - store: `run --dry-run` imports this module too

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.config import profiles
from safelaunch.errors import SafelaunchError

if TYPE_CHECKING:
    import click


def complete_run(_context: click.Context, _argument: click.Parameter, prefix: str) -> list[str]:
    """Return run ids, the newest first."""
    from safelaunch.runs import store

    try:
        runs = store.all_runs(store.home(os.environ))
    except SafelaunchError:
        return []
    return [run.id for run in reversed(runs) if run.id.startswith(prefix)]


def complete_profile(_context: click.Context, _argument: click.Parameter, prefix: str) -> list[str]:
    """Return the names of the built-in profiles."""
    return [name for name in profiles.names() if name.startswith(prefix)]
