"""What a supervisor imports late, after its run directory was removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from safelaunch import runtime

LATE = """
import shutil, sys
sys.path.insert(0, sys.argv[1])
from safelaunch.runtime.supervise import own_files
own_files.hold()
shutil.rmtree(sys.argv[1])
from safelaunch.runtime.start import start_probe
from safelaunch.runtime.failure import analyse
from safelaunch.runtime.signatures import table
from safelaunch.runtime.supervise import outcome
print(outcome.determine.__module__, len(table.load().signatures) > 100)
"""


def test_late_imports_survive_the_removal_of_the_run_directory(tmp_path: Path) -> None:
    for folder in runtime.folders():
        (tmp_path / folder).mkdir()
    for path, file in runtime.files().items():
        (tmp_path / path).write_bytes(Path(file).read_bytes())
    words = [sys.executable, "-I", "-S", "-B", "-c", LATE, str(tmp_path / "runtime")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "safelaunch.runtime.supervise.outcome True\n", done.stderr
