"""Proof by the kernel alone that nothing of a job is left: a pipe, and what /proc shows.

Nothing of safelaunch is used here: no mark, no record, no control group, no parent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PIPE = "life"
QUIET = "quiet"  # a copy of sleep
# For a rank: it holds the pipe, as does whatever inherits it. What it then starts, with the word
# `detach`, has left the session, has no environment, another name, and a working directory that
# says nothing. That of an even rank keeps the pipe, that of an odd one closes it and is a program
# of the case's folder.
HOLD_PIPE = f"""
import os, sys
life = os.open({PIPE!r}, os.O_WRONLY)
os.set_inheritable(life, True)
is_even = int(os.environ["RANK"]) % 2 == 0
program = "/bin/sleep" if is_even else os.path.abspath({QUIET!r})
if "detach" in sys.argv and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        os.closerange(0, life if is_even else 256)
        os.execve(program, ["kworker/u8:1", "12345"], {{}})
    os._exit(0)
"""


class LifePipe:
    """A named pipe in a folder, without an end of file while a process holds its other end."""

    def __init__(self, folder: Path) -> None:
        shutil.copy("/bin/sleep", folder / QUIET)
        os.mkfifo(folder / PIPE)
        self.fd = os.open(folder / PIPE, os.O_RDONLY | os.O_NONBLOCK)

    def is_held(self) -> bool:
        """Whether a process has it open for writing: nobody ever writes."""
        try:
            return os.read(self.fd, 1) != b""
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Close our end."""
        os.close(self.fd)


def processes_in(folder: Path) -> dict[int, str]:
    """Return {pid: what shows it} of the processes that have to do with a folder.

    Their program, their working directory, or a descriptor lies there.
    """
    result = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        if int(name) != os.getpid():
            for link in ("exe", "cwd", *_descriptors(name)):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{name}/{link}")
                    if target.startswith(f"{folder}/"):
                        result[int(name)] = f"{link} {target}"
                        break
    return result


def programs_of(folder: Path) -> dict[int, str]:
    """Return {pid: path} of the processes whose program lies in a folder."""
    shown = processes_in(folder)
    return {pid: link[4:] for pid, link in shown.items() if link.startswith("exe ")}


def kill(folder: Path) -> None:
    """End what a failed case has left."""
    for pid in processes_in(folder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _descriptors(pid: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [f"fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    return []
