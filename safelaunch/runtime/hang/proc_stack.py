"""Reads the kernel's view of a process that may be stuck, from /proc. Never raises."""

from __future__ import annotations

import os

from safelaunch.runtime import processes

MAX_THREADS = 256  # threads of a process in a report


def catches(pid: int, signum: int) -> bool:
    """Return whether a process handles a signal: one without a handler would be killed."""
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds; 0 if it has ended."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 13:  # noqa: PLR2004 - proc(5): utime and stime are fields 14 and 15
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def report(pid: int) -> tuple[str, str, bytes]:
    """Return (state letter of the main thread, the kernel function it sleeps in, a report)."""
    base = f"/proc/{pid}"
    status = read(base + "/status")
    wchan = _wchan(base)
    lines = [b"wchan: " + wchan.encode(), b"", b"threads: id, name, state, kernel function"]
    for name in list_folder(base + "/task")[:MAX_THREADS]:
        task = f"{base}/task/{name}"
        stat = read(task + "/stat")
        comm = stat[stat.find(b"(") + 1 : stat.rfind(b")")]
        letter = stat.rpartition(b")")[2].split()[:1] or [b"?"]
        lines.append(b" ".join([name.encode(), comm, letter[0], _wchan(task).encode()]))
    stack = read(base + "/stack")  # for root only
    state = processes.stat_of(pid)
    text = b"\n".join([status, *lines, b"", b"kernel stack:", stack or b"not readable", b""])
    return (state[0] if state else "X"), wchan, text


def _wchan(base: str) -> str:
    function = read(base + "/wchan").decode("ascii", "replace").strip()
    return "" if function == "0" else function


def environ(pid: int, names: tuple[str, ...]) -> dict[str, str]:
    """Return the named environment variables of a process.

    Not for a process in D state: it may hold the lock that reading needs.
    """
    values = {}
    for item in read(f"/proc/{pid}/environ", 0, 1 << 20).split(b"\0"):
        name, _, value = os.fsdecode(item).partition("=")
        if name in names:
            values[name] = value
    return values


def cwd(pid: int) -> str:
    """Return the working directory of a process."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"


def list_folder(folder: str) -> list[str]:
    """Return the names in a folder; [] where it cannot be read."""
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


def read(path: str, offset: int = 0, limit: int = 65536) -> bytes:
    """Return a part of a file; b"" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            if offset:
                file.seek(offset)
            return file.read(limit)
    except OSError:
        return b""
