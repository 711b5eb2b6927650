"""Asks nvidia-smi for the load of the cards, and others, without ever waiting for an answer.

nvidia-smi may hang in the kernel for minutes or for ever, and may cost a second of CPU: it runs as
a child beside the loop, never twice at once, and the less often the longer it takes.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Row: TypeAlias = tuple[str, list[float | None]]

FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "power.draw")
COLUMNS = ("util", "mem_mib", "mem_total_mib", "power_w")
SHARE = 200  # at least so many times its own duration passes between two starts: 0.5 % of a core
LONGEST_PAUSE = 3600.0  # seconds: a driver that hung once may be well again
LATE = 20.0  # seconds: a healthy one takes 0.03 to 2, more with many cards without persistence mode
DRIVER = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")  # the last one is WSL's
AGAIN = 60.0  # seconds after which one that could not be started is tried again
MOST_OUTPUT = 1 << 16  # fits a pipe, so that nvidia-smi never waits for us; 100 cards need 10 KB


class Question(object):
    """A program that is asked now and then, beside the loop: never twice at once, never in a hurry.

    It may hang in the kernel. Then that is said once, as an event of this name with this note.
    """

    def __init__(self, event: str, note: str) -> None:
        self.event = event
        self.note = note
        self.pid: int | None = None
        self.due_at = 0.0  # monotonic seconds before which it is not asked again
        self.events: list[dict[str, object]] = []
        self._fd = -1
        self._began = 0.0
        self._told = False

    def ask(self, argv: list[str], now: float) -> bool:
        """Ask, unless the last question is not answered or it is too early."""
        if self.pid is not None or now < self.due_at:
            return False
        try:
            self.pid, self._fd = _spawn(argv)
        except OSError:  # the program is gone, or there are too many processes or files
            self.due_at = now + AGAIN
            return False
        self._began = now
        return True

    def tick(self, now: float) -> None:
        """Say once when an answer is late, and end who does not give it."""
        if self.pid is None or now - self._began < LATE or self._told:
            return
        self._told = True
        self.events.append({"event": self.event, "note": self.note, "pid": self.pid})
        try:
            os.kill(self.pid, signal.SIGKILL)  # in the kernel (state D) it takes effect later
        except OSError:
            pass

    def reaped(self, pid: int, status: int, now: float) -> str | None:
        """Take the end of a child; return the answer, None if the child was not ours."""
        if pid != self.pid or self.pid is None:
            return None
        self.pid = None
        try:
            data = os.read(self._fd, MOST_OUTPUT)
        except OSError:
            data = b""
        self.close()
        self.due_at = now + min((now - self._began) * SHARE, LONGEST_PAUSE)
        if status == 0:
            self._told = False
        return data.decode("utf-8", "replace")

    def close(self) -> None:
        """Forget a question that has not been answered."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _spawn(argv: list[str]) -> tuple[int, int]:
    """Start a program; return its pid, and a descriptor of its output. Raises OSError."""
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


class Gpus(Question):
    """The cards of a run: `wanted` are indices or UUIDs (prefixes, as CUDA takes them), or None."""

    def __init__(self, wanted: list[str] | None, environ: dict[str, str]) -> None:
        note = "nvidia-smi does not answer: the driver may hang; see `dmesg`"
        super(Gpus, self).__init__("nvidia-smi-late", note)
        self.wanted = wanted
        self.program = _find(environ)
        self.rows: dict[str, list[float | None]] | None = None  # of the last answer

    def start(self, now: float) -> bool:
        """Ask, unless nobody can be asked or the last question is not answered."""
        query = "--query-gpu=" + ",".join(FIELDS)
        argv = [self.program, query, "--format=csv,noheader,nounits"]
        return bool(self.program) and self.ask(argv, now)

    def answered(self, pid: int, status: int, now: float) -> bool:
        """Take the end of a child; whether it was ours."""
        answer = self.reaped(pid, status, now)
        if answer is not None:
            self.rows = self._own(parse(answer)) or None
        return answer is not None

    def _own(self, found: dict[str, Row]) -> dict[str, list[float | None]]:
        own = {}
        for index, (uuid, values) in found.items():
            names = self.wanted if self.wanted is not None else [index]
            if index in names or any(n and not n.isdigit() and uuid.startswith(n) for n in names):
                own[index] = values
        return own


def parse(text: str) -> dict[str, Row]:
    """Return {index: (uuid, values of COLUMNS)}; None for `[N/A]`, `ERR!`, `[Unknown Error]`.

    Lines that are no rows are passed over: a lost card puts a sentence in front of the others.
    """
    found: dict[str, Row] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(FIELDS) and cells[0].isdigit():
            found[cells[0]] = (cells[1], [_number(cell) for cell in cells[2:]])
    return found


def _number(cell: str) -> float | None:
    try:
        number = float(cell.split(" ", 1)[0])
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None  # noqa: PLR2004 - also not nan


def _find(environ: dict[str, str]) -> str:
    """Return the program's path; empty where there is no NVIDIA driver to ask."""
    if not any(os.path.exists(path) for path in DRIVER):
        return ""
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "nvidia-smi")
        if folder and os.access(path, os.X_OK):
            return path
    return ""
