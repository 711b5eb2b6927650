"""Runs the command line as a user's shell would."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from support import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def safelaunch(folder: Path, *words: str, then: str = "", **env: str) -> Said:
    """Run safelaunch in a folder; `then` is appended to the command line in bash."""
    line = [sys.executable, "-m", "safelaunch", *words]
    command = ["bash", "-c", f'set -o pipefail; "$@" {then}', "bash", *line] if then else line
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, "PYTHONPATH": str(REPOSITORY), **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Said(done.returncode, done.stdout, done.stderr)
