"""Other versions of Python that this machine may have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def interpreter(version: str) -> str:
    """Return a Python of that version, or skip the test."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path.home() / ".pyenv" / "versions"
    if pyenv.is_dir():
        candidates += [str(p / "bin" / "python") for p in sorted(pyenv.glob(f"{version}.*"))]
    for path in reversed([c for c in candidates if c]):
        answer = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
        if f"Python {version}." in answer.stdout + answer.stderr:
            return path
    pytest.skip(f"no python{version} here")
