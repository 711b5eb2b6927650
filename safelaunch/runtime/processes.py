"""Processes by identity: which are alive, which belong to a run, how to end them. Linux, /proc.

A pid alone identifies nothing: it is reused. A process is (boot id, pid namespace, pid, start
time); never a name, never a process group.
"""

# ruff: noqa: PLC0415 - Python may be built without resource

from __future__ import annotations

import errno
import os
import signal
import time

from safelaunch.runtime.records import Process

TYPE_CHECKING = False  # typing itself would cost the supervisor's start 3 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Find: TypeAlias = Callable[[], dict[int, int]]
    Stat: TypeAlias = tuple[str, int, int]  # state letter, parent pid, start time in clock ticks

MARK = "SAFELAUNCH_RUN_ID"
SUPERVISOR = [b"-I", b"-S", b"-B"]  # python's options, between it and supervisor.py NODE_DIR
DESCRIPTORS = 4096  # limit of more_descriptors(): 1000 ranks, the job's logs, and some
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # errors that are not the process's


class SpareDescriptor:
    """A descriptor that is given up when there is none left for reading /proc."""

    def __init__(self) -> None:
        self.fd = -1

    def call(self, read: Callable[[str], Any], path: str) -> Any:
        """Return `read(path)`; it may open one file at a time. Raises OSError."""
        if self.fd < 0:
            self._reserve()
        try:
            return read(path)
        except OSError as e:
            if e.errno != errno.EMFILE or self.fd < 0:
                raise
        os.close(self.fd)
        self.fd = -1
        try:
            return read(path)
        finally:
            self._reserve()

    def _reserve(self) -> None:
        try:
            self.fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass


_spare = SpareDescriptor()
_last_results: dict[object, dict[int, int]] = {}  # by root pid or run id


def machine() -> dict[str, str]:
    """Return what makes a pid meaningful: boot id and pid namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    try:
        boot_id = _read("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        boot_id = ""
    return {"boot_id": boot_id, "pidns": namespace}


def _read(path: str) -> bytes:
    """Return a file of /proc; empty if it is gone or another user's. Raises OSError: EXHAUSTED."""
    try:
        data: bytes = _spare.call(_content, path)
    except OSError as e:
        if e.errno in EXHAUSTED:
            raise
        return b""
    return data


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def stat_of(pid: int) -> Stat | None:
    """Return the state letter, parent pid and start time of a process, None if it is gone."""
    try:
        return _stat(pid)
    except OSError:
        return None


def _stat(pid: int) -> Stat | None:
    """Return what `stat_of` does. Raises OSError: EXHAUSTED."""
    _, bracket, text = _read(f"/proc/{pid}/stat").rpartition(b")")  # the name may hold brackets
    fields = text.decode().split()
    if not bracket or len(fields) < 20:  # noqa: PLR2004 - proc(5): starttime is field 22
        return None
    letter = fields[0]
    if letter == "Z" and int(fields[17]) > 1:
        # only the main thread is dead: others live on, in a driver perhaps, and hold its memory
        letter = "D"
    return letter, int(fields[1]), int(fields[19])


def start_time(pid: int) -> int | None:
    """Return the start time of a process that is alive, None for a zombie or no process."""
    stat = stat_of(pid)
    return None if stat is None or stat[0] in "ZX" else stat[2]


def identity(pid: int, start: int | None = None) -> Process:
    """Return the identity of a process of this machine; its start time is read if not passed."""
    if start is None:
        stat = stat_of(pid)
        start = stat[2] if stat else 0
    own = machine()
    return Process(boot_id=own["boot_id"], pidns=own["pidns"], pid=pid, start=start)


def is_alive(process: Process) -> bool:
    """Whether the process with that identity is alive; a zombie counts as gone."""
    own = {"boot_id": process.boot_id, "pidns": process.pidns}
    return own == machine() and start_time(process.pid) == process.start


def pids() -> list[int]:
    """Return the pids in this namespace. Raises OSError where /proc cannot be read."""
    return [int(name) for name in _spare.call(os.listdir, "/proc") if name.isdigit()]


def _living() -> Iterator[tuple[int, int, int]]:
    """Yield pid, parent and start time of each living process. Raises OSError."""
    for pid in pids():
        stat = _stat(pid)
        if stat is not None and stat[0] not in "ZX":
            yield pid, stat[1], stat[2]


def descendants(root: int) -> dict[int, int]:
    """Return {pid: start time} of all living processes below `root`, not `root` itself.

    Where /proc cannot be read, those of the last time that may be alive: never an empty answer.
    """
    return _or_last(root, _below)


def _below(root: int) -> dict[int, int]:
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, start in _living():
        children.setdefault(parent, []).append((pid, start))
    below, queue = {}, [root]
    while queue:
        for pid, start in children.get(queue.pop(), ()):
            below[pid] = start
            queue.append(pid)
    return below


def marked(run_id: str) -> dict[int, int]:
    """Return {pid: start time} of this user's living processes that carry the run's mark.

    Where /proc cannot be read, those of the last time that may be alive.
    """
    return _or_last(run_id, _marked)


def of_node(node_dir: str) -> dict[int, int]:
    """Return {pid: start time} of this user's living processes that a supervisor there started.

    They are recognised by their environment. Raises OSError where /proc cannot be read.
    """
    return _with_variable(f"SAFELAUNCH_NODE_DIR={node_dir}")


def _marked(run_id: str) -> dict[int, int]:
    return _with_variable(f"{MARK}={run_id}")


def _with_variable(text: str) -> dict[int, int]:
    mark, own = os.fsencode(text), os.getpid()
    return {
        pid: start
        for pid, _, start in _living()
        if pid != own and mark in _read(f"/proc/{pid}/environ").split(b"\0")
    }


def supervisors(node_dir: str, program: bytes = b"supervisor.py") -> dict[int, int]:
    """Return {pid: start time} of the living supervisors of a node directory, by their command.

    `program` is another one that was started with the same words.

    The last resort where the directory itself is gone. Where /proc cannot be read: none.
    """
    path = os.path.realpath(node_dir)
    return {pid: start for pid, start, own in all_supervisors(program) if own == path}


def all_supervisors(program: bytes = b"supervisor.py") -> list[tuple[int, int, str]]:
    """Return pid, start time and node directory of the living supervisors of all users."""
    rows = []
    try:
        for pid in pids():
            words = _read(f"/proc/{pid}/cmdline").split(b"\0")[1:-1]
            # tmux has the same words at the end of its own
            if words[:-2] != SUPERVISOR or os.path.basename(words[-2]) != program:
                continue
            start = start_time(pid)
            if start is not None:
                rows.append((pid, start, os.path.realpath(os.fsdecode(words[-1]))))
    except OSError:
        pass
    return rows


def own_programs(node_dir: str, place: str) -> dict[int, int]:
    """Return {pid: start time} of what runs a program below `place` for a node directory.

    Also where an interpreter hangs before it has begun one. Where /proc cannot be read: none.
    """
    programs, below, own = {}, os.fsencode(place + "/"), os.fsencode(node_dir)
    try:
        for pid in pids():
            words = _read(f"/proc/{pid}/cmdline").split(b"\0")
            at = words.index(own) if own in words else 0
            # tmux has the words of the program that it runs behind its own
            is_tmux = os.path.basename(words[0]) == b"tmux"
            if at and words[at - 1].startswith(below) and not is_tmux and pid != os.getpid():
                start = start_time(pid)
                if start is not None:
                    programs[pid] = start
    except OSError:
        pass
    return programs


def _or_last(key: Any, find: Callable[[Any], dict[int, int]]) -> dict[int, int]:
    """Return `find(key)`, or its last result where /proc cannot be read."""
    try:
        result = find(key)
    except OSError:
        return {p: s for p, s in _last_results.get(key, {}).items() if _may_be_alive(p)}
    if key not in _last_results and len(_last_results) >= 8:  # noqa: PLR2004 - a supervisor, its helpers
        _last_results.clear()
    _last_results[key] = result
    return result


def _may_be_alive(pid: int) -> bool:
    """Whether a process has that pid, without opening a descriptor."""
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
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
        if soft == resource.RLIM_INFINITY or soft >= limit:
            return None
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (ImportError, OSError, ValueError):
        return None
    return soft, hard


def restore_descriptors(limits: tuple[int, int] | None) -> None:
    """Set the limits of open files back, in a child before its exec."""
    if limits is None:
        return
    import resource

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
        # the fd pins the process: if the start time still fits, no other one can get the signal
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

    `find()` returns {pid: start time} of those to end; it is called until it returns none, since a
    dying process may still start another.
    """
    signalled: set[tuple[int, int]] = set()
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
            elif (pid, start) not in signalled:
                signalled.add((pid, start))
                terminate(pid, start)
        time.sleep(0.02)


def terminate(pid: int, start: int) -> bool:
    """Send TERM, and CONT: a process that was stopped could not act on it."""
    is_sent = send(pid, start, signal.SIGTERM)
    send(pid, start, signal.SIGCONT)
    return is_sent


def user_name(uid: int) -> str:
    """Return a user's name, `uid 1000` where there is none."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"
