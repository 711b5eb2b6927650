"""Runs nvidia-smi and other programs beside the supervisor's loop, without waiting for them.

nvidia-smi may hang in the kernel for minutes or for ever, and may cost a second of CPU: it runs as
a child process, never twice at once, and the less often the longer it takes.
"""

from __future__ import annotations

import os
import signal

from safelaunch.runtime.monitor import gpu_sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.monitor.gpu_sources import Row

PAUSE_FACTOR = 200  # pause after a call, in multiples of its duration: at most 0.5 % of a core
MAX_PAUSE = 3600.0  # seconds: a driver that hung once may have recovered
# seconds: a normal call takes 0.03 to 2, more with many GPUs without persistence mode
TIMEOUT = 20.0
RETRY_AFTER = 60.0  # seconds after a failed start
# bytes: fits a pipe, so that nvidia-smi never blocks on us; 100 GPUs need 10 KB
MAX_OUTPUT = 1 << 16


class AsyncCommand:
    """A program that is run again and again beside the loop, never twice at once.

    It may hang in the kernel. That is reported once, as an event with the given name and note.
    """

    def __init__(self, event: str, note: str) -> None:
        self.event = event
        self.note = note
        self.pid: int | None = None
        self.due_at = 0.0  # monotonic seconds of the next allowed start
        self.events: list[dict[str, object]] = []
        self._fd = -1
        self._started_at = 0.0
        self._late_reported = False

    def spawn(self, argv: list[str], now: float) -> bool:
        """Start the program, unless it still runs or the pause is not over."""
        if self.pid is not None or now < self.due_at:
            return False
        try:
            self.pid, self._fd = _spawn(argv)
        except OSError:  # the program is gone, or there are too many processes or files
            self.due_at = now + RETRY_AFTER
            return False
        self._started_at = now
        return True

    def tick(self, now: float) -> None:
        """Report once that the program is late, and kill it."""
        if self.pid is None or now - self._started_at < TIMEOUT or self._late_reported:
            return
        self._late_reported = True
        self.events.append({"event": self.event, "note": self.note, "pid": self.pid})
        try:
            os.kill(self.pid, signal.SIGKILL)  # in the kernel (state D) it takes effect later
        except OSError:
            pass

    def collect(self, pid: int, status: int, now: float) -> str | None:
        """Return the output of the child that has ended; None if it was not ours."""
        if pid != self.pid or self.pid is None:
            return None
        self.pid = None
        try:
            data = os.read(self._fd, MAX_OUTPUT)
        except OSError:
            data = b""
        self.close()
        self.due_at = now + min((now - self._started_at) * PAUSE_FACTOR, MAX_PAUSE)
        if status == 0:
            self._late_reported = False
        return data.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the pipe of the program that runs."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _spawn(argv: list[str]) -> tuple[int, int]:
    """Start a program; return its pid and a descriptor of its output. Raises OSError."""
    reader, writer = os.pipe()
    try:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                dict(os.environ, LC_ALL="C"),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, writer, 1),
                    (os.POSIX_SPAWN_DUP2, null, 2),
                ],
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
            )
        finally:
            os.close(null)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


class GpuLoad(AsyncCommand):
    """The load of a run's GPUs.

    `devices` are indices or UUIDs (prefixes, as CUDA takes them); None means all GPUs.
    """

    def __init__(self, devices: list[str] | None, environ: dict[str, str], root: str = "/") -> None:
        self.source = gpu_sources.find(environ, root)
        name = self.source.name if self.source else "nvidia-smi"
        super().__init__(
            f"{name}-late", f"{name} does not answer: the driver may hang; see `dmesg`"
        )
        self.devices = devices
        self.rows: dict[str, list[float | None]] | None = None  # of the last output

    def start(self, now: float) -> bool:
        """Start the command, unless there is none, it still runs or the pause is not over."""
        return self.source is not None and self.spawn(self.source.argv, now)

    def child_exited(self, pid: int, status: int, now: float) -> bool:
        """Read the output of the child that has ended; return whether it was ours."""
        answer = self.collect(pid, status, now)
        if answer is not None and self.source is not None:
            self.rows = self._select(self.source.parse(answer)) or None
        return answer is not None

    def _select(self, rows: dict[str, Row]) -> dict[str, list[float | None]]:
        return {
            index: values
            for index, (uuid, values) in rows.items()
            if self.devices is None
            or index in self.devices
            or any(n and not n.isdigit() and uuid.startswith(n) for n in self.devices)
        }
