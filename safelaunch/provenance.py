"""Records what a run was made of: commit, changed files, package versions by metadata."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from safelaunch.errors import StartError
from safelaunch.runtime import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import NodePlan
    from safelaunch.transports import Transport

_LIMIT = 15.0  # seconds: a checkout on a slow network disk must not hold a start up
_MOST_FILES = 200


def record(
    machine: Transport, node: NodePlan, python: str, path: str, env: Mapping[str, str]
) -> threading.Thread:
    """Write the record beside the run, in a thread: the job does not wait for it."""
    thread = threading.Thread(
        target=_record, args=(machine, node, python, path, dict(env)), daemon=True
    )
    thread.start()
    return thread


def _record(
    machine: Transport, node: NodePlan, python: str, path: str, env: dict[str, str]
) -> None:
    found: dict[str, Any] = {"version": 1, "cwd": node.cwd, "interpreter": python}
    found["git"] = _git(machine, node.cwd, env)
    found.update(_packages(machine, python, env))
    try:
        machine.put(path, json.dumps(found, indent=1, ensure_ascii=False).encode(), 0o600)
    except (OSError, UnicodeEncodeError):
        return  # the run goes on; `show` says that there is no record


def _git(machine: Transport, folder: str, env: dict[str, str]) -> dict[str, Any] | None:
    quiet = {**env, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    git = ["git", "-C", folder]
    try:
        head = machine.run([*git, "rev-parse", "HEAD"], env=quiet, timeout=_LIMIT)
        if head.code != 0:
            return None
        changed = machine.run([*git, "status", "--porcelain"], env=quiet, timeout=_LIMIT)
    except StartError as e:
        return {"error": e.message}
    files = changed.out.splitlines()
    return {
        "commit": head.out.strip(),
        "changed": files[:_MOST_FILES],
        "more_changed": max(0, len(files) - _MOST_FILES),
    }


def _packages(machine: Transport, python: str, env: dict[str, str]) -> dict[str, Any]:
    program = os.path.join(FOLDER, "packages.py")
    try:
        result = machine.run([python, program], env=env, timeout=_LIMIT)
        packages: dict[str, Any] = json.loads(result.out)
    except (StartError, ValueError):
        return {"packages": None}
    return packages
