"""Processes by identity: who is alive, who belongs to a run, and how to end them. Linux, /proc.

A pid alone names nobody: it is reused. A process is (boot id, pid namespace, pid, start time).
Never by name, never by process group.
"""

from __future__ import annotations

import errno
import os
import signal
import time

from safelaunch.runtime.records import Process

TYPE_CHECKING = False  # typing itself would cost the supervisor's start 3 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Find: TypeAlias = Callable[[], dict[int, int]]

MARK = "SAFELAUNCH_RUN_ID"
SUPERVISOR = [b"-I", b"-S", b"-B"]  # python's options, between it and supervisor.py NODE_DIR
DESCRIPTORS = 4096  # what more_descriptors() asks for: 1000 ranks, the job's logs, and some
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # says nothing about the process asked for


class Spare(object):
    """A descriptor that is kept to be given up when there is none left for a look at /proc."""

    def __init__(self) -> None:
        self.fd = -1

    def look(self, work: Callable[[str], Any], path: str) -> Any:
        """Return `work(path)`; it may open one file at a time. Raises OSError."""
        if self.fd < 0:
            self._take()
        try:
            return work(path)
        except OSError as e:
            if e.errno != errno.EMFILE or self.fd < 0:
                raise
        os.close(self.fd)
        self.fd = -1
        try:
            return work(path)
        finally:
            self._take()

    def _take(self) -> None:
        try:
            self.fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass


_spare = Spare()
_seen: dict[object, dict[int, int]] = {}  # what was found the last time, by what was asked


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
        return _bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _bytes(path: str) -> bytes:
    """Return a file of /proc; empty if it is gone or another user's. Raises OSError: EXHAUSTED."""
    try:
        found: bytes = _spare.look(_content, path)
    except OSError as e:
        if e.errno in EXHAUSTED:
            raise
        return b""
    return found


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """Return (state letter, parent pid, start time in clock ticks since boot), or None if gone."""
    return _parsed(_read("/proc/%d/stat" % pid))


def _parsed(text: str) -> tuple[str, int, int] | None:
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


def identity(pid: int, start: int | None = None) -> Process:
    """Return the identity of a process of this machine; its start time is read if not passed."""
    if start is None:
        found = stat_of(pid)
        start = found[2] if found else 0
    here = machine()
    return Process(boot_id=here["boot_id"], pidns=here["pidns"], pid=pid, start=start)


def is_alive(process: Process) -> bool:
    """Whether the process with that identity is alive; a zombie counts as gone."""
    here = machine()
    if process.boot_id != here["boot_id"] or process.pidns != here["pidns"]:
        return False
    return start_time(process.pid) == process.start


def pids() -> list[int]:
    """Return the pids in this namespace. Raises OSError where /proc cannot be read."""
    return [int(name) for name in _spare.look(os.listdir, "/proc") if name.isdigit()]


def descendants(root: int) -> dict[int, int]:
    """Return {pid: start time} of all living processes below `root`, not `root` itself.

    Where /proc cannot be read, those of the last time that may still live: never as if none did.
    """
    return _last_known(root, _below)


def _below(root: int) -> dict[int, int]:
    children: dict[int, list[tuple[int, int]]] = {}
    for pid in pids():
        found = _parsed(_bytes("/proc/%d/stat" % pid).decode("utf-8", "replace"))
        if found is not None and found[0] not in "ZX":
            children.setdefault(found[1], []).append((pid, found[2]))
    below, queue = {}, [root]
    while queue:
        for pid, start in children.get(queue.pop(), ()):
            below[pid] = start
            queue.append(pid)
    return below


def marked(run_id: str) -> dict[int, int]:
    """Return {pid: start time} of this user's living processes that carry the run's mark.

    Where /proc cannot be read, those of the last time that may still live.
    """
    return _last_known(run_id, _marked)


def _marked(run_id: str) -> dict[int, int]:
    wanted = ("%s=%s" % (MARK, run_id)).encode()
    found = {}
    for pid in pids():
        if pid == os.getpid():
            continue
        told = _parsed(_bytes("/proc/%d/stat" % pid).decode("utf-8", "replace"))
        if told is None or told[0] in "ZX":
            continue
        if wanted in _bytes("/proc/%d/environ" % pid).split(b"\0"):
            found[pid] = told[2]
    return found


def supervisors(node_dir: str) -> dict[int, int]:
    """Return {pid: start time} of the living supervisors of a node directory, by their command.

    The last resort where the directory itself is gone. Where /proc cannot be read: none.
    """
    wanted, found = os.path.realpath(node_dir), {}
    try:
        for pid in pids():
            words = _bytes("/proc/%d/cmdline" % pid).split(b"\0")[1:-1]
            # tmux has the same words at the end of its own
            if words[:-2] != SUPERVISOR or os.path.basename(words[-2]) != b"supervisor.py":
                continue
            start = start_time(pid)
            if start is not None and os.path.realpath(os.fsdecode(words[-1])) == wanted:
                found[pid] = start
    except OSError:
        pass
    return found


def _last_known(asked: Any, find: Callable[[Any], dict[int, int]]) -> dict[int, int]:
    try:
        found = find(asked)
    except OSError:
        return {p: s for p, s in _seen.get(asked, {}).items() if _may_live(p)}
    if asked not in _seen and len(_seen) >= 8:  # noqa: PLR2004 - one supervisor, its helpers
        _seen.clear()
    _seen[asked] = found
    return found


def _may_live(pid: int) -> bool:
    """Whether somebody has that pid; to ask so takes no descriptor."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def more_descriptors() -> tuple[int, int] | None:
    """Raise the soft limit of open files; return the limits as they were, None if unchanged.

    A supervisor needs one for each rank and each log file. Its job gets the old limits back, by
    `restore_descriptors`: it may count on them (select(2) takes no descriptor from 1024 on).
    """
    try:
        import resource  # noqa: PLC0415 - more_descriptors() has imported it

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return None
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ImportError, OSError, ValueError):
        return None
    return soft, hard


def restore_descriptors(limits: tuple[int, int] | None) -> None:
    """Set the limits of open files back, in a child before its exec."""
    if limits is None:
        return
    import resource  # noqa: PLC0415 - more_descriptors() has imported it

    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    except (OSError, ValueError):
        pass


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
