"""Runs one script isolated from the rest of the machine. A program of its own: `sandbox.py SPEC`.

The script gets user, mount, process, network and IPC namespaces of its own, no capability, no
socket, a read-only file system with scratch layers in memory, and limits. Its first process is
this program: when it ends, the kernel ends all that the script has started. Where one part of this
cannot be had, nothing is run. Interfaces: namespaces(7), mount_setattr(2), seccomp(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

_LIBC = ctypes.CDLL(None, use_errno=True)
_NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LAST_CAPABILITY = 63
_DEVICES = ("null", "zero", "full", "random", "urandom")
_UNSUPPORTED = "this kernel or container forbids"
_MOST_PROCESSES = 200
_MOST_BYTES = 8 * 1024 * 1024  # of what the stubs have written down
_TAIL = 4096
_PATIENCE = 5.0  # seconds that programs in the background get after the script's end
_MEMORY = 2 << 30
_LARGEST_COPY = 256 << 20
_FILE = 64 << 20
_MOST_ENTRIES = 200  # of a folder with mounts below
_TEMPORARY = "size=512m,mode=0777"
_ROOT = "size=64m,mode=0755"
_MNT_DETACH = 2

# what the filter denies: sockets, also by io_uring; namespaces and mounts; what reaches the kernel
# or other processes. (name, number on x86-64, number on arm64), from asm/unistd_64.h and
# asm-generic/unistd.h of Linux 6.8
_DENIED = (
    ("socket", 41, 198), ("io_uring_setup", 425, 425), ("unshare", 272, 97), ("setns", 308, 268),
    ("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41), ("open_tree", 428, 428),
    ("move_mount", 429, 429), ("fsopen", 430, 430), ("fsmount", 432, 432),
    ("mount_setattr", 442, 442), ("ptrace", 101, 117), ("bpf", 321, 280),
    ("keyctl", 250, 219), ("add_key", 248, 217), ("request_key", 249, 218),
    ("perf_event_open", 298, 241), ("kexec_load", 246, 104), ("init_module", 175, 105),
    ("finit_module", 313, 273), ("reboot", 169, 142), ("userfaultfd", 323, 282),
    ("process_vm_writev", 311, 271), ("open_by_handle_at", 304, 265),
)  # fmt: skip
# machine: (AUDIT_ARCH, column of _DENIED, clone, clone3)
_MACHINES = {"x86_64": (0xC000003E, 1, 56, 435), "aarch64": (0xC00000B7, 2, 220, 435)}
_CLONE_NEWUSER = 0x10000000
_X32 = 0x40000000


class IsolationError(Exception):
    """A part of the isolation cannot be had."""


def _call(what: str, *arguments: object, function: str = "mount") -> None:
    if getattr(_LIBC, function)(*arguments) < 0:
        error = os.strerror(ctypes.get_errno())
        raise IsolationError(f"{_UNSUPPORTED} {what}: {error}")


def _mount(
    what: str, source: str, target: str, kind: str = "", *, flags: int = 0, data: str = ""
) -> None:
    words = [text.encode() or None for text in (source, target, kind)]
    _call(what, *words, ctypes.c_ulong(flags), data.encode() or None)


# -- namespaces and files --------------------------------------------------------------------------


def _enter_namespaces() -> None:
    user, group = os.geteuid(), os.getegid()
    _call("user namespaces", _NAMESPACES, function="unshare")
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError as e:
        raise IsolationError(f"{_UNSUPPORTED} user namespaces: {e.strerror}") from None


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _set_attributes(path: str, attributes: int, *, clear: int = 0, recursive: bool) -> None:
    block = struct.pack("QQQQ", attributes, clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    _call(
        "read-only mounts", ctypes.c_long(_SYS_MOUNT_SETATTR), ctypes.c_long(_AT_FDCWD),
        ctypes.c_char_p(path.encode()), ctypes.c_ulong(flags), ctypes.c_char_p(block),
        ctypes.c_size_t(len(block)), function="syscall",
    )  # fmt: skip


def _prepare_files(spec: dict[str, Any]) -> None:
    """Make all mounts read-only, and lay scratch layers in memory over folders."""
    place = spec["place"]
    _mount("mounts", "none", "/", flags=_MS_REC | _MS_PRIVATE)
    _mount(
        "memory for files", "scratch", place, "tmpfs", flags=_MS_NOSUID | _MS_NODEV, data=_TEMPORARY
    )
    scratch = os.open(place, os.O_PATH)
    _write_stubs(spec)
    _make_devices(place)
    _make_mount_points(spec)
    lower = {path: os.open(path, os.O_PATH) for path in spec["writable"]}
    _set_attributes("/", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, recursive=True)
    _set_attributes(place, 0, clear=_MS_RDONLY, recursive=True)
    for name in _DEVICES:
        _set_attributes(f"{place}/dev/{name}", 0, clear=_MS_NODEV | _MS_RDONLY, recursive=False)
    _mount("devices", f"{place}/dev", "/dev", flags=_MS_BIND | _MS_REC)
    _lay_over(lower, scratch, spec["project"])
    _mount("scratch layers", f"/proc/self/fd/{scratch}", place, flags=_MS_BIND | _MS_REC)
    os.close(scratch)
    for path in spec["empty"]:  # of the user, not of the script
        with contextlib.suppress(IsolationError):
            _mount("startup files", f"{place}/empty", path, flags=_MS_BIND)
    for number, path in enumerate(spec["covered"]):
        with contextlib.suppress(IsolationError):  # then the script is seen to start it itself
            _mount("stubs", path, f"{place}/real/{number}", flags=_MS_BIND)
            _mount("stubs", f"{place}/covers/{number}", path, flags=_MS_BIND)
    with contextlib.suppress(IsolationError, OSError):
        _make_root(place)
    with contextlib.suppress(IsolationError):  # where the container hides a part of /proc
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _mount("processes", "proc", "/proc", "proc", flags=flags)


def _make_root(place: str) -> None:
    """Change to a root in memory with all that the root has: the script may make folders there."""
    root = f"{place}/root"
    os.mkdir(root)
    _mount("a root", "root", root, "tmpfs", flags=_MS_NOSUID | _MS_NODEV, data=_ROOT)
    for name in sorted(os.listdir("/"), key=lambda name: not place.startswith(f"/{name}/")):
        path, target = f"/{name}", f"{root}/{name}"
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        if os.path.isdir(path):
            os.mkdir(target)
        else:
            with open(target, "x", encoding="ascii"):
                pass
        _mount("a root", path, target, flags=_MS_BIND | _MS_REC)
    os.chdir(root)
    number = next(row for row in _DENIED if row[0] == "pivot_root")[_machine()[1]]
    _call("a root", ctypes.c_long(int(number)), b".", b".", function="syscall")
    _call("a root", b".", _MNT_DETACH, function="umount2")
    os.chdir("/")


def _make_mount_points(spec: dict[str, Any]) -> None:
    """Make what is mounted again below the new /dev: a project, home or launcher in /dev/shm."""
    place = spec["place"]
    for path in (place, spec["project"], *spec["writable"]):
        if path.startswith("/dev/"):
            os.makedirs(place + path, exist_ok=True)
    for path in spec["covered"]:
        if path.startswith("/dev/"):
            os.makedirs(os.path.dirname(place + path), exist_ok=True)
            with open(place + path, "a", encoding="ascii"):
                pass


def _lay_over(lower: dict[str, int], scratch: int, project: str) -> None:
    """Lay scratch layers over folders, the outer ones first.

    A folder with mounts below cannot be a lower layer here: a folder in memory with what is in it
    takes its place, and the project is copied.
    """
    covered: list[str] = []
    for number, (path, fd) in enumerate(lower.items()):
        device = os.fstat(fd).st_dev
        inside = [other for other in covered if f"{path}/".startswith(f"{other}/")]
        if any(os.fstat(lower[other]).st_dev == device for other in inside):
            continue
        layers = f"/proc/self/fd/{scratch}/{number}"
        try:
            _lay(f"/proc/self/fd/{fd}", path, layers)
            covered.append(path)
        except IsolationError:
            with contextlib.suppress(IsolationError, OSError):
                _rebuild(f"/proc/self/fd/{fd}", path, layers)
    if not any(f"{project}/".startswith(f"{path}/") for path in covered):
        copy = f"/proc/self/fd/{scratch}/project"
        _copy(f"/proc/self/fd/{lower[project]}", copy)
        _mount("a copy of the project", copy, project, flags=_MS_BIND)
    for fd in lower.values():
        os.close(fd)


def _lay(lower: str, target: str, layers: str) -> None:
    """Lay a scratch layer over a folder."""
    for name in ("upper", "work"):
        os.mkdir(f"{layers}-{name}")
    data = f"lowerdir={lower},upperdir={layers}-upper,workdir={layers}-work,userxattr"
    flags = _MS_NOSUID | _MS_NODEV
    _mount("scratch layers", "overlay", target, "overlay", flags=flags, data=data)


def _rebuild(lower: str, target: str, layers: str) -> None:
    """Mount a folder in memory with all that another one has, its folders with layers if it can."""
    names = sorted(os.listdir(lower))
    if len(names) > _MOST_ENTRIES:
        return
    copy = f"{layers}-copy"
    os.mkdir(copy)
    for number, name in enumerate(names):
        source, place = f"{lower}/{name}", f"{copy}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), place)
        elif os.path.isdir(source):
            os.mkdir(place)
            try:
                _lay(source, place, f"{layers}-{number}")
            except IsolationError:
                _mount("a folder", source, place, flags=_MS_BIND | _MS_REC)
        else:
            with open(place, "x", encoding="ascii"):
                pass
            _mount("a file", source, place, flags=_MS_BIND)
    _mount("a folder in memory", copy, target, flags=_MS_BIND | _MS_REC)


def _copy(source: str, target: str) -> None:
    """Copy a folder without what is mounted below it."""
    import shutil  # noqa: PLC0415 - with its archives a tenth of the start, and used by few

    device, size = os.stat(source).st_dev, 0
    os.mkdir(target)
    for folder, folders, names in os.walk(source):
        names += [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if _is_inside(os.path.join(folder, name), device)]
        inner = target + folder[len(source) :]
        for name in folders:
            os.mkdir(os.path.join(inner, name))
        for name in names:
            path = os.path.join(folder, name)
            size += os.lstat(path).st_size
            if size > _LARGEST_COPY:
                raise IsolationError("a project with mounts below, too large to copy, forbids")
            if os.path.isfile(path) or os.path.islink(path):
                shutil.copy2(path, os.path.join(inner, name), follow_symlinks=False)


def _is_inside(path: str, device: int) -> bool:
    return not os.path.islink(path) and os.lstat(path).st_dev == device


def _write_stubs(spec: dict[str, Any]) -> None:
    place = spec["place"]
    for folder in ("stubs", "calls", "covers", "real", "dev", "dev/shm"):
        os.mkdir(os.path.join(place, folder), 0o777)
    for number in range(len(spec["covered"])):
        _write(f"{place}/real/{number}", "")
    for name, text in spec["files"].items():
        path = os.path.join(place, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)  # noqa: S103 - stubs are programs


def _make_devices(place: str) -> None:
    for name in _DEVICES:
        path = f"{place}/dev/{name}"
        with open(path, "w", encoding="ascii"):
            pass
        _mount("devices", f"/dev/{name}", path, flags=_MS_BIND)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{place}/dev/{name}")
    os.symlink("/proc/self/fd", f"{place}/dev/fd")


# -- what the script may do ------------------------------------------------------------------------


def _drop_privileges() -> None:
    for capability in range(_LAST_CAPABILITY + 1):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _call("dropping capabilities", header, struct.pack("6I", *[0] * 6), function="capset")
    _call("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, function="prctl")


def _machine() -> tuple[int, int, int, int]:
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        raise IsolationError(f"no filter of system calls for {os.uname().machine}")
    return machine


def _filter() -> bytes:
    """Return the seccomp program: an error for each call of `_DENIED`, all else is allowed."""
    audit, column, clone, clone3 = _machine()
    load, equal, at_least, any_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, deny, kill, absent = 0x7FFF0000, 0x00050001, 0x80000000, 0x00050026  # EPERM, ENOSYS
    lines = [
        (load, 0, 0, 4), (equal, 1, 0, audit), (end, 0, 0, kill),  # seccomp_data.arch
        (load, 0, 0, 0), (at_least, 0, 1, _X32), (end, 0, 0, deny),  # seccomp_data.nr
        (equal, 0, 1, clone3), (end, 0, 0, absent),
    ]  # fmt: skip
    for row in _DENIED:
        lines += [(equal, 0, 1, int(row[column])), (end, 0, 0, deny)]
    lines += [
        (equal, 0, 3, clone), (load, 0, 0, 16),  # its flags are the first argument
        (any_bit, 0, 1, _CLONE_NEWUSER), (end, 0, 0, deny), (end, 0, 0, allow),
    ]  # fmt: skip
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _install_filter(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("count", ctypes.c_ushort), ("lines", ctypes.c_char_p))

    block = Program(len(program) // 8, program)
    pointer = ctypes.byref(block)
    _call("filters of system calls", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer, 0, 0,
          function="prctl")  # fmt: skip


def _limit(seconds: int) -> None:
    for what, value in (
        (resource.RLIMIT_NPROC, _MOST_PROCESSES), (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_FSIZE, _FILE), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CPU, seconds + 5),  # behind the limit of the clock, which has its message
    ):  # fmt: skip
        hard = resource.getrlimit(what)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (least, least))


# -- processes -------------------------------------------------------------------------------------


def _first_process(spec: dict[str, Any], answer: int) -> NoReturn:
    """Be the first process of the namespaces: start the script, watch it, send what it called."""
    try:
        _call("a tie to its parent", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0, function="prctl")
        _call("protection", _PR_SET_DUMPABLE, 0, 0, 0, 0, function="prctl")
        program = _filter()
        _prepare_files(spec)
        result = _run(spec, program)
        result["calls"] = list(_calls(spec["place"]))
    except IsolationError as e:
        result = {"error": str(e)}
    except OSError as e:
        result = {"error": f"{_UNSUPPORTED} the isolation: {e.strerror}: {e.filename}"}
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(result).encode())
    os._exit(0)


def _take_precedence() -> None:
    """Let what counts the processes run before them, where that is allowed: to root.

    The kernel holds no process of root to RLIMIT_NPROC (kernel/fork.c), so that a fork bomb would
    leave the count no processor time. The script itself gets the usual policy.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _run(spec: dict[str, Any], program: bytes) -> dict[str, Any]:
    reader, writer = os.pipe()
    failure_reader, failure = os.pipe()
    _write(f"{spec['place']}/stdout", f"pipe:[{os.fstat(writer).st_ino}]\n")
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(failure_reader)
        _start_script(spec, program, writer, failure)
    os.close(writer)
    os.close(failure)
    with os.fdopen(failure_reader, "rb") as file:
        error = file.read().decode("utf-8", "replace")  # until the script is started
    if error:
        raise IsolationError(error)
    os.set_blocking(reader, False)
    deadline, status, why = time.monotonic() + spec["seconds"], None, None
    alone = False
    end = None
    tail, open_pipes = b"", [reader]
    while True:
        if select.select(open_pipes, [], [], 0.02)[0]:
            piece = os.read(reader, 65536)
            tail = (tail + piece)[-_TAIL:]
            # a script may close what it writes to, and go on
            open_pipes = [reader] if piece else []
        alone, status = _reap(child, status)
        now = time.monotonic()
        if status is not None:
            end = now if end is None else end
            deadline = now if alone else min(deadline, end + _PATIENCE)
        if len([name for name in os.listdir("/proc") if name.isdigit()]) > spec["processes"]:
            why = "processes"
        elif now >= deadline and status is None:
            why = "time"
        if why is not None or (status is not None and now >= deadline):
            break
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # all but this one: what is read below has no end otherwise
    output = tail.decode("utf-8", "replace")
    return {"status": status, "limit": why, "output": output, "alone": alone}


def _reap(child: int, status: int | None) -> tuple[bool, int | None]:
    """Collect ended processes; return whether none is left, and the script's exit status."""
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True, status
        if pid == 0:
            return False, status
        if pid == child:
            status = os.waitstatus_to_exitcode(code)


def _start_script(spec: dict[str, Any], program: bytes, writer: int, failure: int) -> NoReturn:
    try:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (writer, 1), (writer, 2)):
            os.dup2(source, target)
        os.chdir(spec["folder"])
        _limit(spec["seconds"])
        _drop_privileges()
        os.closerange(3, failure)
        os.set_inheritable(failure, False)
        _install_filter(program)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - isolated by now
    except (IsolationError, OSError, ValueError) as e:
        os.write(failure, str(e).encode())
    os._exit(1)


def _calls(place: str) -> Iterator[str]:
    """Yield what each stub has written, in the order of the calls, as Latin-1 text."""
    entries = [e for e in os.scandir(os.path.join(place, "calls")) if e.name.endswith(".call")]
    size = 0
    for entry in sorted(entries, key=lambda e: (e.stat().st_mtime_ns, len(e.name), e.name)):
        if not entry.is_file(follow_symlinks=False):
            continue
        size += entry.stat().st_size
        if size > _MOST_BYTES:
            yield "too many\0"
            break
        with open(entry.path, "rb") as file:
            yield file.read(_MOST_BYTES).decode("latin-1")


def main(path: str) -> int:
    """Run the script of a specification; print what became of it as JSON."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    _take_precedence()  # in a user namespace it is not allowed any more
    try:
        _enter_namespaces()
    except IsolationError as e:
        sys.stdout.write(json.dumps({"error": str(e)}))
        return 0
    child = os.fork()
    if child == 0:
        _first_process(spec, os.dup(1))
    os.waitpid(child, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
