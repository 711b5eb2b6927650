"""A control group for the processes of a run: no process leaves it by detaching or by its name.

It is the proof, after the death of the supervisor, that nothing of a run is left. It limits
nothing: of cgroup v2 no controller is on in it, and of v1 only hierarchies are used in which a
group of its own changes nothing (in `cpu` it would get a share of its own, `memory` would count
anew, `cpuset` would need CPUs). Where none can be made, as for most users without root, a run goes
on without: cgroups(7), Documentation/admin-guide/cgroup-v2.rst.

Not by `systemd-run --user --scope`: the user's systemd ends its scopes with the last session of the
user, and a job must outlive its login.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"
V1 = ("freezer", "pids")  # in this order
PROCS = "cgroup.procs"
CONTROL = "cgroup.subtree_control"  # controllers that are on in the groups below: v2 only
PREFIX = "safelaunch-"


def create(run_id: str, node: int, root: str = ROOT, own: str = OWN) -> str:
    """Make the group of a node below our own, and return its path; "" where that is not allowed."""
    for parent in candidates(root, own):
        path = os.path.join(parent, f"{PREFIX}{run_id}-{node}")
        try:
            os.mkdir(path, 0o755)
            if _write(path) and _write(parent):  # in and out again
                return path
            os.rmdir(path)
        except OSError:
            continue
    return ""


def enter(path: str) -> bool:
    """Move this process into a group; what it starts is born there. False where that fails."""
    return _write(path)


def leave(path: str) -> bool:
    """Move this process out of a group, into the one above it."""
    return _write(os.path.dirname(path))


def pids(path: str, run_id: str) -> list[int] | None:
    """Return the processes in the group of a run and in those below; None where it cannot be read.

    A group that was removed had none: the kernel removes only an empty one.
    """
    if not os.path.basename(path).startswith(f"{PREFIX}{run_id}-"):
        return None  # a record that is not ours
    if not os.path.isdir(path):
        return [] if os.path.exists(os.path.join(os.path.dirname(path), PROCS)) else None
    result: list[int] = []
    for folder, _, _ in os.walk(path):
        numbers = _read(os.path.join(folder, PROCS))
        if numbers is None and os.path.isdir(folder):
            return None
        result += map(int, (numbers or "").split())
    return result


def remove(path: str) -> None:
    """Remove a group and those that the job has made below; one with processes stays."""
    if not os.path.basename(path).startswith(PREFIX) or _read(os.path.join(path, PROCS)) is None:
        return  # a record that is not ours
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            pass


def candidates(root: str, own: str) -> Iterator[str]:
    """Yield our own groups, v2 first: those that we may leave and come back to unchanged."""
    places = {}
    for line in (_read(own) or "").split("\n"):
        number, _, fields = line.partition(":")
        controllers, _, group = fields.partition(":")
        if number:
            places["" if number == "0" else controllers] = group.lstrip("/")
    for name, base in (("", root), ("", f"{root}/unified"), *((n, f"{root}/{n}") for n in V1)):
        if name not in places:
            continue
        for group in dict.fromkeys((places[name], "")):  # a container may see its own as the top
            folder = os.path.join(base, group).rstrip("/")
            numbers = (_read(os.path.join(folder, PROCS)) or "").split()
            controls = _read(os.path.join(folder, CONTROL))
            is_plain = not controls if name else controls is not None and not controls.strip()
            if str(os.getpid()) in numbers:
                if is_plain and os.access(os.path.join(folder, PROCS), os.W_OK):
                    yield folder
                break


def _write(path: str) -> bool:
    """Move this process into the group of a folder."""
    try:
        fd = os.open(os.path.join(path, PROCS), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)
    except OSError:
        return False
    return True


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read().decode("ascii", "replace")
    except (OSError, ValueError):
        return None
