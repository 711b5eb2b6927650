"""What a run's tmux pane shows: the log as it comes, and of a flood only samples.

tmux interprets each byte: to show all of a flood would take it a core, which the job needs. The
pane may be slow or closed: then it loses lines, never the job time.
"""

from __future__ import annotations

import errno
import os
import time

from safelaunch.runtime import units

# tmux 3.3 interprets 24 MB in a second of a core: this is 2 % of one, and fifty full screens
# (200 x 50) a second, more than anybody reads
RATE = 1 << 19  # bytes a second
BURST = 1 << 18  # and at once: the output of a start, or of a failure, is shown whole
SAMPLE = 1 << 14  # bytes of a flood that are shown, its newest: a few screens


class Pane:
    """The terminal of the supervisor; `fd` is -1 where there is none."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = b""
        self.skipped = 0
        self.budget = float(BURST)
        self.last = time.monotonic()

    def show(self, data: bytes) -> None:
        """Show output at once or later, or leave it out where there is too much."""
        if self.fd < 0:
            return
        if self.skipped:
            self.skipped += len(data)
            # only the supervisor's next turn shows some: it would cost as much as to merge the rest
            self.waiting = (self.waiting + data if len(data) < SAMPLE else data)[-SAMPLE:]
            return
        self.waiting += data
        self.tick()
        if len(self.waiting) > BURST:
            self.skipped = len(self.waiting)
            self.waiting = self.waiting[-SAMPLE:]

    def tick(self) -> None:
        """Show what is waiting, as far as the rate allows."""
        now = time.monotonic()
        self.budget = min(BURST, self.budget + (now - self.last) * RATE)
        self.last = now
        if not self.waiting or self.fd < 0 or (self.skipped and self.budget < SAMPLE + SAMPLE):
            return
        if self.skipped:
            line = self.waiting.find(b"\n") + 1
            left_out = units.size(self.skipped - len(self.waiting) + line)
            # the colour of a line that was cut must not go on
            note = f"\x1b[m\r\n[safelaunch: {left_out} not shown here; the log has it]\r\n"
            self.waiting = note.encode() + self.waiting[line:]
            self.skipped = 0
        try:
            count = os.write(self.fd, self.waiting[: int(self.budget)])
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EINTR):
                os.close(self.fd)
                self.fd = -1
            return
        self.waiting = self.waiting[count:]
        self.budget -= count

    def finish(self) -> None:
        """Show what is waiting as far as the terminal takes it: the last call."""
        self.budget = BURST
        self.tick()


def own_terminal() -> int:
    """Return a descriptor of stdout's terminal, non-blocking, or -1 where it is none."""
    if not os.isatty(1):
        return -1
    try:
        # a descriptor of our own: O_NONBLOCK belongs to the open file, not to the number
        return os.open(os.ttyname(1), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1
