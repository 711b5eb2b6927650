"""Which processes that outlive the launcher work for the job, and which only wait.

A script may end before the training that it has left in the background, and a rank before the
process that writes its checkpoint. Both work until they end: they are Python programs. Services
that a job leaves behind (a dashboard, the resource tracker of multiprocessing) never end by
themselves, and other programs (`sleep`, `nvidia-smi -l`) are no training.
"""

from __future__ import annotations

import os
import re

from safelaunch.runtime import plain_text
from safelaunch.runtime.records import LeftoverProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# A program that waits for the network or the disk uses little CPU time, so that a process is idle
# only where it has used next to none, and written nothing, for long. A server without a request
# wakes up too: an asyncio loop with a timer of 0.1 s takes 3 s of CPU time in five minutes.
IDLE_AFTER = 300.0
IDLE_CPU = 6.0  # seconds
STOPPED = "TtD"  # states of a process that somebody has stopped, or that waits in the kernel
# Scripts, modules, `-c` texts and titles of services: CPython's multiprocessing, torch's
# torch/_inductor/compile_worker, and the daemons that `ray start` and wandb.init() leave behind
SERVICES = (
    r"from multiprocessing\.resource_tracker |(?:.*/)?tensorboard\b|(?:.*/)?jupyter\b|"
    r".*/_inductor/compile_worker/|.*/ray/(?:_private|dashboard|autoscaler)/|"
    r"ray::IDLE|wandb-service"
)
INTERPRETERS = r"(?:python|pypy)[\d.]*|bash|sh|dash|zsh|ksh|perl|ruby|node|Rscript"
COMMAND = 100  # characters of a command that is shown
SHOWN = 3  # processes of a description


class WorkSample:
    """What a process had used and written when it last worked."""

    def __init__(self, start: int, now: float, cpu: float, written: int) -> None:
        self.start = start
        self.since = now
        self.cpu = cpu
        self.written = written


class LeftoverEnd:
    """How a program ended that had outlived the launcher; without a status it was ended, idle."""

    def __init__(self, process: LeftoverProcess, wait_status: int | None = None) -> None:
        self.process = process
        self.wait_status = wait_status


class Leftovers:
    """The processes that have outlived the launcher, observed at each scan."""

    def __init__(self) -> None:
        self.activities: dict[int, WorkSample] = {}

    def working(self, living: Mapping[int, int], ranks: Collection[int], now: float) -> list[int]:
        """Return the ranks and Python programs that work, of {pid: start time}, by pid.

        A program works while a process below it does.
        """
        self.activities = {p: a for p, a in self.activities.items() if living.get(p) == a.start}
        parents: dict[int, int] = {}
        active: set[int] = set()
        for pid, start in living.items():
            fields = _stat(pid)
            if not fields:
                continue
            parents[pid] = int(fields[1])
            if self._is_active(pid, start, fields, now):
                active.add(pid)
        for pid in list(active):
            above = parents.get(pid, 0)
            while above in living and above not in active:
                active.add(above)
                above = parents.get(above, 0)
        return sorted(pid for pid in active if is_program(pid, ranks))

    def _is_active(self, pid: int, start: int, fields: list[bytes], now: float) -> bool:
        """Whether a process has worked in the last minutes; a new one counts as active."""
        cpu = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its own, and its children's
        written = _written(pid)
        last = self.activities.get(pid)
        is_stopped = fields[0].decode() in STOPPED
        if last is None or is_stopped or written != last.written or cpu - last.cpu >= IDLE_CPU:
            last = self.activities[pid] = WorkSample(start, now, cpu, written)
        elif now - last.since >= IDLE_AFTER:
            return False
        return True


def records(commands: Mapping[int, str], waited: float | None = None) -> list[LeftoverProcess]:
    """Return the records of {pid: command}, with the seconds that were waited for them, if any."""
    processes = [LeftoverProcess(pid=pid, command=commands[pid]) for pid in sorted(commands)]
    if waited is not None:
        for process in processes:
            process.waited = round(waited, 3)
    return processes


def describe(processes: Sequence[LeftoverProcess]) -> str:
    """Return `python train.py (pid 71), sleep (pid 72)`, of many the first ones."""
    names = [f"{process.command} (pid {process.pid})" for process in processes[:SHOWN]]
    more = len(processes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def is_program(pid: int, ranks: Collection[int]) -> bool:
    """Whether a process is a rank or a Python program of the job, and no service."""
    return (pid in ranks or is_python(pid)) and not is_service(_words(pid))


def is_python(pid: int) -> bool:
    """Whether a process runs a Python interpreter, whatever its title is."""
    return _executable(pid).startswith(("python", "pypy"))


def _executable(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""  # it has ended, or is another user's


def command(pid: int) -> str:
    """Return what a process runs, as `python train.py`: arguments may hold secrets."""
    words = _words(pid)
    if not words:
        return _name(pid)
    if len(words) > 1 and is_python(pid):
        words[0] = _executable(pid) or words[0]  # it may have been started by another name
    return describe_command(words)


def describe_command(words: list[str]) -> str:
    """Return the program and script of a command line."""
    name = os.path.basename(words[0].split(" ")[0])  # of a title the first word
    if re.fullmatch(INTERPRETERS, name):
        name = f"{name} {_program(words)[0]}".rstrip()
    return plain_text.printable(name)[:COMMAND]


def is_service(words: list[str]) -> bool:
    """Whether a Python's command line, or its title, is that of a service."""
    program = words[0] if len(words) == 1 else _program(words)[1]  # a title is one word
    return re.match(SERVICES, program) is not None


def _program(words: list[str]) -> tuple[str, str]:
    """Return what an interpreter runs, for people and to be recognised: `-m pip` and `pip`."""
    before = ""
    for number, word in enumerate(words[1:], 1):
        if before in ("-X", "-W", "-o", "+o") or (word[:1] in "-+" and word not in ("-c", "-m")):
            before = word
            continue
        following = words[number + 1] if number + 1 < len(words) else ""
        if word == "-c":
            return "-c", following
        return (f"-m {following}", following) if word == "-m" else (word, word)
    return "", ""


def _words(pid: int) -> list[str]:
    data = _read(f"/proc/{pid}/cmdline")
    return [word.decode("utf-8", "replace") for word in data.split(b"\0") if word]


def _name(pid: int) -> str:
    return plain_text.printable(_read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip())


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state letter on; none for no process."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields if len(fields) >= 20 else []  # noqa: PLR2004 - proc(5): starttime is field 22


def _written(pid: int) -> int:
    """Return the bytes that a process has passed to write(2); 0 where it may not be known."""
    _, _, rest = _read(f"/proc/{pid}/io").partition(b"wchar: ")
    number = rest.partition(b"\n")[0]
    return int(number) if number.isdigit() else 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 16)
    except OSError:
        return b""
