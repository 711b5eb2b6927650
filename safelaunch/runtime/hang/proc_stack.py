"""What the kernel tells of a process that may be stuck. It only reads, and never raises."""

from __future__ import annotations

import os

from safelaunch.runtime import processes

THREADS = 256  # of a process that are listed


def catches(pid: int, signum: int) -> bool:
    """Whether a process handles a signal: any other would be killed by it."""
    for line in read("/proc/%d/status" % pid).splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds; 0 if it is gone."""
    fields = read("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    if len(fields) < 13:  # noqa: PLR2004 - proc(5): utime and stime are fields 14 and 15
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def report(pid: int) -> tuple[str, str, bytes]:
    """Return (state letter of the main thread, the kernel function it sleeps in, a report)."""
    base = "/proc/%d" % pid
    status = read(base + "/status")
    wchan = _wchan(base)
    lines = [b"wchan: " + wchan.encode(), b"", b"threads: id, name, state, kernel function"]
    for name in names(base + "/task")[:THREADS]:
        task = "%s/task/%s" % (base, name)
        stat = read(task + "/stat")
        comm = stat[stat.find(b"(") + 1 : stat.rfind(b")")]
        letter = stat.rpartition(b")")[2].split()[:1] or [b"?"]
        lines.append(b" ".join([name.encode(), comm, letter[0], _wchan(task).encode()]))
    stack = read(base + "/stack")  # for root only
    found = processes.stat_of(pid)
    text = b"\n".join([status, *lines, b"", b"kernel stack:", stack or b"not readable", b""])
    return (found[0] if found else "X"), wchan, text


def _wchan(base: str) -> str:
    found = read(base + "/wchan").decode("ascii", "replace").strip()
    return "" if found == "0" else found


def environ(pid: int, wanted: tuple[str, ...]) -> dict[str, str]:
    """Return those variables of a process; the others are none of our business.

    Not to be asked of a process in D state: it may hold the lock that this needs.
    """
    found = {}
    for item in read("/proc/%d/environ" % pid, 0, 1 << 20).split(b"\0"):
        name, _, value = os.fsdecode(item).partition("=")
        if name in wanted:
            found[name] = value
    return found


def cwd(pid: int) -> str:
    """Return the working directory of a process."""
    try:
        return os.readlink("/proc/%d/cwd" % pid)
    except OSError:
        return "/"


def names(folder: str) -> list[str]:
    """Return the names in a folder; none where it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def size(path: str) -> int:
    """Return the size of a file, 0 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def read(path: str, offset: int = 0, most: int = 65536) -> bytes:
    """Return a part of a file; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:
            if offset:
                file.seek(offset)
            return file.read(most)
    except OSError:
        return b""
