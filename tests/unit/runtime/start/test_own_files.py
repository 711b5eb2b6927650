"""What a supervisor imports late, after its run directory was removed."""

from __future__ import annotations

import py_compile
import subprocess
import sys
from typing import TYPE_CHECKING

from safelaunch.runtime import processes
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
from safelaunch.runtime.supervise import outcome
print(outcome.determine.__module__, len(table.load().signatures) > 100)
"""


def test_a_supervisor_does_not_compile_what_its_client_had_compiled(tmp_path: Path) -> None:
    py_compile.compile(processes.__file__)
    run_dir.fill(str(tmp_path), RunRecord(), [])
    program = "import sys; sys.path.insert(0, sys.argv[1]); import safelaunch.runtime.processes"
    words = [sys.executable, "-I", "-S", "-B", "-v", "-c", program, str(tmp_path / "runtime")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    folder = tmp_path / "runtime" / "safelaunch" / "runtime" / "__pycache__"
    assert f"code object from '{folder}/processes." in done.stderr


def test_late_imports_survive_the_removal_of_the_run_directory(tmp_path: Path) -> None:
    run_dir.fill(str(tmp_path), RunRecord(), [])
    words = [sys.executable, "-I", "-S", "-B", "-c", LATE, str(tmp_path / "runtime")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "safelaunch.runtime.supervise.outcome True\n", done.stderr
