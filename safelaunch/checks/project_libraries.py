"""Where the packages of the job's interpreter are on this machine, for what reads their text."""

# ruff: noqa: PLC0415 - what finds packages is imported for programs that take options from them

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from safelaunch.environ import is_removed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.analysis.python.libraries import LibraryPaths
    from safelaunch.checks.context import CheckContext, HostContext

# packages with the options of programs: the interpreter itself is asked where it finds them
PACKAGES = ("transformers", "trl", "accelerate")


def library_paths(context: CheckContext) -> LibraryPaths:
    """Return the folders that the job's interpreter imports packages from.

    It has none where the job runs on a host. What the interpreter has answered comes first: only
    the quick checks before a start run without its answer.
    """
    from safelaunch.analysis.python.libraries import LibraryPaths
    from safelaunch.analysis.python.site_packages import site_folders

    if not context.is_local or not context.hosts:
        return LibraryPaths()
    host = context.hosts[0]
    python = host.interpreter or _active_python(context)
    if python is None:
        return LibraryPaths()
    folders = (*_inherited(context, host), *site_folders(python, context.environ))
    return LibraryPaths(folders, dict(_answered(host)))


def _active_python(context: CheckContext) -> str | None:
    """Return the interpreter that a start chooses where the job names none."""
    prefix = context.environ.get("VIRTUAL_ENV") or context.environ.get("CONDA_PREFIX")
    candidate = os.path.join(prefix, "bin", "python") if prefix else None
    if candidate and os.access(candidate, os.X_OK):
        return candidate
    return shutil.which("python3", path=context.environ.get("PATH"))


def _inherited(context: CheckContext, host: HostContext) -> Iterator[str]:
    """Yield the folders of the PYTHONPATH that the job inherits."""
    if not is_removed("PYTHONPATH", host.plan.unset, host.plan.requested):
        for folder in context.environ.get("PYTHONPATH", "").split(os.pathsep):
            if os.path.isabs(folder):
                yield folder


def _answered(host: HostContext) -> Iterator[tuple[str, str]]:
    """Yield packages with the folders above them, where the interpreter said where they are."""
    for name in PACKAGES:
        answer = host.answers.get(("module", name), {}).get("value")
        where = str((answer or {}).get("where") or "")
        if os.path.basename(where) == "__init__.py":
            yield name, os.path.dirname(os.path.dirname(where))
