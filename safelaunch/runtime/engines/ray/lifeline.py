"""Starts a program apart from the process that calls it, and ends it once a pipe from there closes.

    python -I -S -B lifeline.py LOG COMMAND...

Ray kills what an actor has started, but one level deep and with SIGKILL: a supervisor must not be
its child, and must end when the actor does, whatever has ended it. Standard input is that pipe;
standard output gets the exit code of the program.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # prctl(2)
LIFELINE, RESULT = 0, 1


def main(log: str, argv: Sequence[str]) -> int:
    """Start the program in a session of its own, and watch it; the caller returns at once."""
    if os.fork():
        return 0
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Ray ends the processes of a session by name of the actor's group only, and users by pid
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=lambda: libc.prctl(  # noqa: PLW1509 - there are no other threads
            PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0
        ),
    )
    os.dup2(output, 2)
    code = _watch(child, reader)
    try:
        os.write(RESULT, b"%d\n" % code)
    except OSError:
        pass  # the actor is gone
    return 0


def _watch(child: subprocess.Popen[bytes], wakeup: int) -> int:
    """Return the program's exit code; end it once the lifeline closes."""
    poll = select.poll()
    poll.register(LIFELINE, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while child.poll() is None:
        for fd, _ in poll.poll():
            if not os.read(fd, 4096) and fd == LIFELINE:
                poll.unregister(LIFELINE)
                child.terminate()
    return int(child.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
