"""TERM and INT to a supervisor, with who sent them: from a signalfd (man 2 signalfd).

A handler of Python does not see the sender. The signals stay blocked, also in what the supervisor
starts beside the job: that is ended by KILL. launch.py unblocks them for the job.
"""

from __future__ import annotations

import os
import select
import signal
import struct

from safelaunch.runtime import processes
from safelaunch.runtime.supervise import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGSET = 128  # bytes of sigset_t of glibc and musl
INFO = 128  # bytes of struct signalfd_siginfo: number, errno, code, pid, uid ...
SI_KERNEL = 0x80  # the terminal: Ctrl-C


class StopSignals:
    """The signals that have come; `fd` is -1 where the C library has no signalfd."""

    def __init__(self, client: int | None) -> None:
        self.client = client  # pid of `run --foreground`, whose end sends TERM (prctl(2))
        self.fd = -1
        mask = bytearray(SIGSET)
        for number in SIGNALS:
            mask[(number - 1) // 8] |= 1 << (number - 1) % 8
        make = getattr(launch.libc(), "signalfd", None)
        if make is not None:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            self.fd = make(-1, bytes(mask), os.O_CLOEXEC | os.O_NONBLOCK)
            if self.fd < 0:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def read(self) -> Iterator[tuple[str, str]]:
        """Yield name and sender of the signals since the last call; the sender as people say it."""
        while self.fd >= 0:
            try:
                info = os.read(self.fd, INFO)
            except OSError:
                return
            number, _, code, pid, uid = struct.unpack_from("=IiiII", info)
            name = signal.Signals(number).name
            if code == SI_KERNEL and number == signal.SIGINT:
                yield name, "Ctrl-C in its terminal"
            elif pid == self.client:
                yield name, "its client, `run --foreground`"
            else:
                yield name, f"{name} from {sender(pid, uid)}"


def sender(pid: int, uid: int) -> str:
    """Return `pid 812 (systemd, root)`: the name of its program only, words may be secret."""
    if not pid:
        return "a process of another pid namespace"
    names = []
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            names.append(file.read().strip())
    except OSError:
        names.append("which has ended")
    return f"pid {pid} ({', '.join([*names, processes.user_name(uid)])})"


def joined(*descriptors: int) -> int:
    """Return a descriptor that is readable while one of these is."""
    epoll = select.epoll()
    for fd in descriptors:
        epoll.register(fd, select.EPOLLIN)
    duplicate = os.dup(epoll.fileno())
    epoll.close()
    return duplicate
