"""Processes by identity: who is alive, who belongs to a run, and how to end them. Linux, /proc.

A pid alone names nobody: it is reused. A process is (boot id, pid namespace, pid, start time).
Never by name, never by process group.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False  # typing itself would cost the supervisor's start 3 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Find: TypeAlias = Callable[[], dict[int, int]]

MARK = "SAFELAUNCH_RUN_ID"


def machine() -> dict[str, str]:
    """Return what makes a pid meaningful: boot id and pid namespace."""
    return {"boot_id": _read("/proc/sys/kernel/random/boot_id").strip(), "pidns": _namespace()}


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """Return (state letter, parent pid, start time in clock ticks since boot), or None if gone."""
    text = _read("/proc/%d/stat" % pid)
    end = text.rfind(")")  # the command's name may hold blanks and brackets
    if end < 0:
        return None
    fields = text[end + 2 :].split()
    if len(fields) < 20:  # noqa: PLR2004 - proc(5): starttime is field 22
        return None
    letter = fields[0]
    if letter == "Z" and int(fields[17]) > 1:
        # only the main thread is dead: others live on, in a driver perhaps, and hold its memory
        letter = "D"
    return letter, int(fields[1]), int(fields[19])


def start_time(pid: int) -> int | None:
    """Return the start time of a process that is alive; None for a zombie or nobody."""
    found = stat_of(pid)
    if found is None or found[0] in "ZX":
        return None
    return found[2]


def identity(pid: int) -> dict[str, object]:
    """Return the identity of a process as JSON data."""
    found = stat_of(pid)
    return dict(machine(), pid=pid, start=found[2] if found else 0)


def is_alive(who: dict[str, object]) -> bool:
    """Whether the process with that identity is alive; a zombie counts as gone."""
    here = machine()
    if who.get("boot_id") != here["boot_id"] or who.get("pidns") != here["pidns"]:
        return False
    pid = who.get("pid")
    return isinstance(pid, int) and start_time(pid) == who.get("start")


def all_pids() -> list[int]:
    """Return the pids in this namespace."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> dict[int, int]:
    """Return {pid: start time} of all living processes below `root`, not `root` itself."""
    children: dict[int, list[tuple[int, int]]] = {}
    for pid in all_pids():
        found = stat_of(pid)
        if found is not None and found[0] not in "ZX":
            children.setdefault(found[1], []).append((pid, found[2]))
    below, queue = {}, [root]
    while queue:
        for pid, start in children.get(queue.pop(), ()):
            below[pid] = start
            queue.append(pid)
    return below


def marked(run_id: str) -> dict[int, int]:
    """Return {pid: start time} of this user's living processes that carry the run's mark."""
    wanted = ("%s=%s" % (MARK, run_id)).encode()
    found = {}
    for pid in all_pids():
        if pid == os.getpid():
            continue
        start = start_time(pid)
        if start is None:
            continue
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                environ = file.read()
        except OSError:
            continue  # another user's, or gone
        if wanted in environ.split(b"\0"):
            found[pid] = start
    return found


def send(pid: int, start: int, signum: int) -> bool:
    """Send a signal to exactly that process, by pidfd where there is one; False if it was not."""
    try:
        fd = os.pidfd_open(pid)  # type: ignore[attr-defined,unused-ignore]
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):  # Python 3.8, or a kernel or sandbox without pidfds
        return start_time(pid) == start and _kill(pid, signum)
    try:
        # the fd pins the process: if the start time still fits, nobody else can get the signal
        if start_time(pid) != start:
            return False
        signal.pidfd_send_signal(fd, signum)  # type: ignore[attr-defined,unused-ignore]
    except ProcessLookupError:
        return False
    except OSError:  # refused by a sandbox, or it has become another user's (sudo)
        return _kill(pid, signum)
    finally:
        os.close(fd)
    return True


def _kill(pid: int, signum: int) -> bool:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_all(find: Find, is_late: Callable[[], bool], patience: float = 10.0) -> dict[int, int]:
    """TERM, and KILL once `is_late()`; return those that could not be ended (D state).

    `find()` returns {pid: start time} of those to end; it is asked again until it finds nobody,
    since a dying process may still start another.
    """
    told: set[tuple[int, int]] = set()
    give_up = None
    while True:
        left = find()
        if not left:
            return {}
        hard = is_late()
        if hard:
            give_up = give_up or time.monotonic() + patience
            if time.monotonic() > give_up:
                return left
        for pid, start in left.items():
            if hard:
                send(pid, start, signal.SIGKILL)
            elif (pid, start) not in told:
                told.add((pid, start))
                ask(pid, start)
        time.sleep(0.02)


def ask(pid: int, start: int) -> bool:
    """Send TERM, and CONT: a process that was stopped could not act on it."""
    told = send(pid, start, signal.SIGTERM)
    send(pid, start, signal.SIGCONT)
    return told
