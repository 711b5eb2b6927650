"""A program that is started apart from its parent, and ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.workspace import wait_for

from safelaunch.runtime.engines.ray import lifeline

PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(os.getpid(), os.getppid(), os.getsid(0), flush=True)
time.sleep(float(sys.argv[1]))
"""


class Line:
    """A program behind a lifeline, whose other end is here."""

    def __init__(self, log: Path, seconds: str) -> None:
        reader, self.end = os.pipe()
        self.result, writer = os.pipe()
        script = str(Path(lifeline.__file__))
        argv = [sys.executable, "-I", "-S", "-B", script, str(log)]
        argv += [sys.executable, "-I", "-S", "-c", PROGRAM, seconds]
        subprocess.run(argv, stdin=reader, stdout=writer, check=True, timeout=60)
        os.close(reader)
        os.close(writer)
        words = wait_for(lambda: log.exists() and log.read_text().split(), "the program's pids")
        self.pid, self.parent, self.session = map(int, words)

    def code(self) -> str:
        """Return what comes of it."""
        with open(self.result, encoding="ascii") as file:
            return file.read()


def test_a_program_ends_by_term_once_the_lifeline_closes(tmp_path: Path) -> None:
    line = Line(tmp_path / "log", "600")
    assert line.session == line.parent != os.getsid(0)
    os.close(line.end)
    assert line.code() == "7\n"


def test_the_exit_code_of_a_program_comes_back(tmp_path: Path) -> None:
    line = Line(tmp_path / "log", "0")
    assert line.code() == "0\n"
    os.close(line.end)


def test_a_program_ends_with_what_watches_it(tmp_path: Path) -> None:
    line = Line(tmp_path / "log", "600")
    os.kill(line.parent, 9)
    assert line.code() == ""
    wait_for(lambda: not Path(f"/proc/{line.pid}/exe").exists(), "end of the program")
    os.close(line.end)
