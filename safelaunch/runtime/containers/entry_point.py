"""Becomes the supervisor of a node inside of its container.

    python -I -S -B entry_point.py NODE_DIR

Variables with secrets come from a file that only the user may read, and that is removed here: a
command line and an environment of the engine would show them in `ps` and in `inspect`.
"""

from __future__ import annotations

import os
import sys

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import PLACE, json_files
from safelaunch.runtime.records import JobEnvironment


def main(node_dir: str) -> None:
    """Replace this process by the supervisor. Raises OSError."""
    saved = JobEnvironment.read(node_dir) or JobEnvironment()
    json_files.remove(os.path.join(node_dir, JobEnvironment.FILE))
    if saved.umask is not None:
        os.umask(saved.umask)
    program = os.path.join(node_dir, PLACE, "supervise", "supervisor.py")
    python = sys.executable or "/proc/self/exe"
    argv = [python, "-I", "-S", "-B", program, node_dir]
    os.execve(python, argv, {**os.environ, **saved.variables})  # noqa: S606 - no shell


if __name__ == "__main__":
    main(sys.argv[1])
