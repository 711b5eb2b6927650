"""Ends what a test process started, when that process is killed before it could do so itself.

A process of its own that reads, over a pipe, what must not outlive the test process: a line when it
is made and a line when it is gone. The end of the pipe is the end of the test process, however it
came; what is still registered then is ended, the newest first. Nothing is looked up by name.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = itertools.count()
_process: subprocess.Popen[str] | None = None


def sweep(kind: str, *words: str) -> Callable[[], None]:
    """Register what must end with this process; return what to call once it has ended."""
    number = next(_NUMBERS)
    _write([number, kind, *words])
    return lambda: _write([number])


def start_of(pid: int) -> str:
    """Return when a process started, which tells it from a later one with its number."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[19]


def _write(line: list[object]) -> None:
    process = _sweeper()
    assert process.stdin is not None
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()


def _sweeper() -> subprocess.Popen[str]:
    global _process  # noqa: PLW0603 - one for each process
    if _process is None:
        _process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # a signal to the group of the tests is not for it
        )
        atexit.register(_end)
    return _process


def _end() -> None:
    if _process is not None:
        _process.communicate()


# -- the process that sweeps -----------------------------------------------------------------------


def _group(pid: str, start: str) -> None:
    """End the process group that a process leads."""
    with contextlib.suppress(OSError):
        if start_of(int(pid)) == start:
            os.killpg(int(pid), signal.SIGKILL)


def _command(*words: str) -> None:
    """Run a command, such as one that removes a network namespace."""
    subprocess.run(words, check=False, stdin=subprocess.DEVNULL, timeout=60)


def _runs(home: str) -> None:
    """Stop all runs of a safelaunch home, each as `safelaunch stop` does."""
    for run in os.listdir(os.path.join(home, "runs")):
        subprocess.run(
            [sys.executable, "-m", "safelaunch", "stop", "--grace", "0.5", run],
            env={**os.environ, "SAFELAUNCH_HOME": home},
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )


def _folder(path: str) -> None:
    """Remove a folder."""
    shutil.rmtree(path, ignore_errors=True)


KINDS: dict[str, Callable[..., None]] = {
    "group": _group,
    "runs": _runs,
    "command": _command,
    "folder": _folder,
}


def main() -> None:
    """Read until the end of the test process, and end what it left."""
    left: dict[int, list[str]] = {}
    for line in sys.stdin:
        number, *words = json.loads(line)
        if words:
            left[number] = words
        else:
            left.pop(number, None)
    for kind, *words in reversed(left.values()):
        with contextlib.suppress(Exception):  # the others are to be ended all the same
            KINDS[kind](*words)


if __name__ == "__main__":
    main()
