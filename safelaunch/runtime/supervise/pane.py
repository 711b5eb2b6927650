"""What a run's tmux pane shows: the log as it comes, and of a flood only samples.

tmux interprets each byte: to show all of a flood would take it a core, which the job needs. The
pane is slow or gone at times: then it loses lines, never the job time.
"""

from __future__ import annotations

import errno
import os
import time

from safelaunch.runtime import units

# tmux 3.3 interprets 24 MB in a second of a core: this is 2 % of one, and fifty full screens
# (200 x 50) a second, more than anybody reads
RATE = 1 << 19  # bytes a second
BURST = 1 << 18  # and at once: what a job says at its start, or when it fails, is shown whole
KEPT = 1 << 14  # bytes of a flood that are shown, its newest: a few screens


class Pane(object):
    """The terminal of the supervisor; `fd` is -1 where there is none."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = b""
        self.skipped = 0
        self.budget = float(BURST)
        self.last = time.monotonic()

    def show(self, data: bytes) -> None:
        """Show it, at once or later, or leave it out where there is too much."""
        if self.fd < 0:
            return
        if self.skipped:
            self.skipped += len(data)
            self.waiting = (self.waiting + data[-KEPT:])[-KEPT:]
            self.tick()
            return
        self.waiting += data
        self.tick()
        if len(self.waiting) > BURST:
            self.skipped = len(self.waiting)
            self.waiting = self.waiting[-KEPT:]

    def tick(self) -> None:
        """Show what waits, as far as it may be shown by now."""
        now = time.monotonic()
        self.budget = min(BURST, self.budget + (now - self.last) * RATE)
        self.last = now
        if not self.waiting or self.fd < 0 or (self.skipped and self.budget < KEPT + KEPT):
            return
        if self.skipped:
            begin = self.waiting.find(b"\n") + 1

            left_out = units.size(self.skipped - len(self.waiting) + begin)
            # the colour of a line that was cut must not go on
            said = "\x1b[m\r\n[safelaunch: %s not shown here; the log has it]\r\n" % left_out
            self.waiting = said.encode() + self.waiting[begin:]
            self.skipped = 0
        self._write()

    def finish(self) -> None:
        """Show what waits as far as the terminal takes it: no more will come."""
        self.budget = BURST
        self.tick()

    def _write(self) -> None:
        try:
            done = os.write(self.fd, self.waiting[: int(self.budget)])
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EINTR):
                os.close(self.fd)
                self.fd = -1
            return
        self.waiting = self.waiting[done:]
        self.budget -= done


def own() -> int:
    """Return a descriptor of stdout's terminal, non-blocking, or -1 where it is none."""
    if not os.isatty(1):
        return -1
    try:
        # a descriptor of our own: O_NONBLOCK belongs to the open file, not to the number
        return os.open(os.ttyname(1), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1
