"""What a supervisor imports late, after its run directory was removed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.start import run_dir

if TYPE_CHECKING:
    from pathlib import Path

LATE = """
import shutil, sys
sys.path.insert(0, sys.argv[1])
from safelaunch.runtime.start import own_files
own_files.load()
shutil.rmtree(sys.argv[1])
from safelaunch.runtime.start import start_probe
from safelaunch.runtime.failure import analyse
from safelaunch.runtime.signatures import table
from safelaunch.runtime.supervise.attempts import outcome
print(outcome.determine.__module__, len(table.load().signatures) > 100)
"""


def fill(home: Path) -> Path:
    """Make the run directory of a node, and return its `runtime`."""
    node = home / "node-0"
    node.mkdir()
    run_dir.fill(str(node), RunRecord(), [], str(home))
    return node / "runtime"


def test_a_supervisor_compiles_nothing(tmp_path: Path) -> None:
    runtime = fill(tmp_path)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import safelaunch.runtime.processes"
    words = [sys.executable, "-I", "-S", "-B", "-v", "-c", program, str(runtime)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    folder = runtime / "safelaunch" / "runtime" / "__pycache__"
    assert f"code object from '{folder}/processes." in done.stderr


def test_late_imports_survive_the_removal_of_the_run_directory(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-B", "-c", LATE, str(fill(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "safelaunch.runtime.supervise.attempts.outcome True\n", done.stderr
