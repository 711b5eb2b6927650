"""Keeps a process that has imported modules, from which the ranks of later attempts are forked.

start_ranks.py loads it where the job may be restarted. Of the first attempt a copy stays, right
after the imports: it has no rank, no thread and no context on a GPU. It listens at
`fork-server/PID` in the folder of the node. The start_ranks.py of a later attempt sends its words,
environment and first three descriptors there; a fork of the copy starts the ranks, and the process
that asked passes signals on and ends as it does.

What the imports may have read has to be as it was: environment, limits, search path, files of the
modules. Else the copy says what differs, and ends; the attempt imports anew. Settings files that
an import reads are not looked at.

The supervisor is its parent, and ends it with the run; it dies with the supervisor (PDEATHSIG).

Any Python 3 of the job may run it: no syntax newer than 3.5.
"""

import array
import importlib.machinery
import marshal
import os
import resource
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

FOLDER = "fork-server"  # in the folder of a node: one socket, named by the pid of its process
# what differs in each attempt; no import sees RANK and its like either
OF_ATTEMPT = frozenset(
    ("SAFELAUNCH_ATTEMPT", "SAFELAUNCH_LAUNCHER_PIPE", "SAFELAUNCH_MAIN", "MASTER_PORT")
)
NUMBER = struct.Struct("=i")
PATIENCE = 10.0  # seconds for a process to listen, or to answer
POLL = 1.0  # seconds; SIGIO comes earlier
PR_SET_PDEATHSIG = 1  # prctl(2)
OF_STATUS = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp", "Mems_allowed_list")
SHARED = "site-packages", "dist-packages"


def surroundings(names: "list[str]", program: "list[str]") -> "dict[str, Any]":
    """Return what an import may depend on, by the name that a message gives it."""
    around = {"environment variable " + name: value for name, value in os.environ.items()}
    for name in OF_ATTEMPT:
        around.pop("environment variable " + name, None)
    limits = (name for name in dir(resource) if name.startswith("RLIMIT_"))
    namespaces = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
    own = {
        "program": program,
        "list of modules": names,
        "Python": [sys.executable, sys.version, repr(sys.flags), stamp(sys.executable)],
        "working folder": [os.getcwd(), stamp(os.getcwd())[2:]],
        "limits": [[n, *resource.getrlimit(getattr(resource, n))] for n in sorted(limits)],
        "cores": sorted(os.sched_getaffinity(0)),
        "priority": os.nice(0),
        "control group": text_of("/proc/self/cgroup"),
        "namespaces": [link_of("/proc/self/ns/" + name) for name in namespaces],
        "rights": [n for n in text_of("/proc/self/status").split("\n") if n.startswith(OF_STATUS)],
    }  # type: dict[str, Any]
    around.update(own)
    return around


def stamp(path: str) -> "tuple[int, int, int]":
    """Return what changes with a file: time, size and inode; zeros where there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return info.st_mtime_ns, info.st_size, info.st_ino


def text_of(path: str) -> str:
    """Return a text of /proc; "" where it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def link_of(path: str) -> str:
    """Return where a link of /proc points; "" where it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def sources(began: "int | None" = None) -> "dict[str, Any]":
    """Return what the imported modules come from: their files, and what the search path shows.

    A file that has changed since `began` (ns) may have been read before: no stamp says so.
    """
    stamps = {}  # type: dict[str, Any]
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path not in stamps:
            stamps[path] = stamp(path)
            if began is not None and stamps[path][0] >= began:
                stamps[path] = None
    for line in text_of("/proc/self/maps").split("\n"):
        path = line[line.find("/") :] if "/" in line else ""
        if path and not path.endswith(" (deleted)") and ".so" in os.path.basename(path):
            stamps.setdefault(path, stamp(path))
    stamps.update(search_path())
    return stamps


def search_path() -> "dict[str, Any]":
    """Return what each folder of the search path shows."""
    return {folder: entries(folder) for folder in sys.path}


def entries(folder: str) -> object:
    """Return what a folder of the search path has of the imported names; its time, of packages.

    A package that was installed beside others can change what those do.
    """
    if os.path.basename(folder) in SHARED or not os.path.isdir(folder):
        return stamp(folder)
    tops = {name.partition(".")[0] for name in sys.modules}
    suffixes = ("", *importlib.machinery.all_suffixes())
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    parts = {name: name.partition(".") for name in names}
    return sorted(
        n for n, (top, dot, end) in parts.items() if top in tops and dot + end in suffixes
    )


def difference(before: "dict[str, Any]", now: "dict[str, Any]") -> str:
    """Return the first name whose value is another one; "" for none."""
    names = sorted(before.keys() | now.keys())
    missing = object()
    return next((n for n in names if before.get(n, missing) != now.get(n, missing)), "")


# -- the process that stays ------------------------------------------------------------------------


def open_descriptors() -> "list[int]":
    """Return the descriptors above 2 that are open."""
    numbers = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:  # that of the listing
            continue
        numbers.append(int(name))
    return [number for number in numbers if number > 2]  # noqa: PLR2004


def keep(
    node_dir: str,
    around: "dict[str, Any]",
    inherited: "list[int]",
    began: int,
    start: "Callable[[list[str], Relay], int]",
) -> None:
    """Leave a copy of this process that listens; without one the next attempt imports anew.

    `around` and the `inherited` descriptors are from before the imports, which began at `began`
    (ns). `start` runs an attempt with the arguments of start_ranks.py and returns its code.
    """
    own, other = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        if os.fork() != 0:
            os._exit(0)  # the supervisor adopts the other one
        own.close()
        for fd in inherited:  # a lock that setup has taken, perhaps
            os.close(fd)
        stay(node_dir, around, began, start, other)
    other.close()
    os.waitpid(pid, 0)
    own.settimeout(PATIENCE)
    try:
        own.sendall(b"s")
        own.recv(1)  # it listens: the supervisor sees what it is, and the next attempt finds it
    except OSError:
        pass
    own.close()


def stay(
    node_dir: str,
    around: "dict[str, Any]",
    began: int,
    start: "Callable[[list[str], Relay], int]",
    ready: socket.socket,
) -> "NoReturn":
    """Listen until the supervisor ends this process, or an attempt differs.

    What a rank raises passes through here, in that process: Python ends it as any other program.
    """
    own = os.getpid()
    try:
        serve(node_dir, around, began, start, ready)
    except Exception:
        if os.getpid() != own:
            raise
        os._exit(0)  # the next attempt imports anew


def serve(
    node_dir: str,
    around: "dict[str, Any]",
    began: int,
    start: "Callable[[list[str], Relay], int]",
    ready: socket.socket,
) -> "NoReturn":
    """Fork the parent of the ranks for each attempt that asks. Raises OSError."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as by the others, it ends at once
    ready.recv(1)
    parent = os.getppid()
    if str(parent) != os.environ.get("SAFELAUNCH_SUPERVISOR") or not dies_with(parent):
        os._exit(0)  # nothing would end it
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)
    listener, path = listen(os.path.join(node_dir, FOLDER))
    # before the ranks start, which may add to them: unlike a changed file, a new one is in no stamp
    folders = search_path()
    ready.sendall(b"r")
    ready.close()
    before = dict(sources(began), **folders)
    while True:
        connection = listener.accept()[0]
        connection.settimeout(PATIENCE)
        try:
            request, descriptors = receive(connection)
        except (OSError, EOFError, ValueError, TypeError):
            connection.close()
            continue
        name = difference(around, request["around"]) or difference(before, sources())
        if name:
            os.unlink(path)
            connection.sendall(NUMBER.pack(0) + name.encode("utf-8", "backslashreplace"))
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            if os.fork() != 0:
                os._exit(0)  # the supervisor adopts the other one, and sees its end
            listener.close()
            run(request, descriptors, connection, start)
        os.waitpid(pid, 0)
        for fd in descriptors:
            os.close(fd)
        connection.close()


def dies_with(parent: int) -> bool:
    """Let the end of the parent end this process; False where that is not possible."""
    try:
        import ctypes  # noqa: PLC0415 - a Python without libffi does not have it

        is_set = ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False
    return is_set and os.getppid() == parent


def listen(folder: str) -> "tuple[socket.socket, str]":
    """Return a socket that listens in a folder, and its path."""
    os.makedirs(folder, 0o700, exist_ok=True)
    own = str(os.getpid())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(short(folder) + "/." + own)
    listener.listen(1)
    path = os.path.join(folder, own)
    os.rename(os.path.join(folder, "." + own), path)
    return listener, path


def short(folder: str) -> str:
    """Return a path of a folder that a socket's address has room for: 108 bytes (unix(7))."""
    return "/proc/self/fd/%d" % os.open(folder, os.O_PATH | os.O_DIRECTORY)


def run(
    request: "dict[str, Any]",
    descriptors: "list[int]",
    connection: socket.socket,
    start: "Callable[[list[str], Relay], int]",
) -> "NoReturn":
    """Be the parent of an attempt's ranks, in the place of the process that asks."""
    os.setsid()
    for fd, passed in enumerate(descriptors):
        os.dup2(passed, fd)
        os.close(passed)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    connection.sendall(NUMBER.pack(os.getpid()))
    code = start(request["arguments"], Relay(connection, request["pid"]))
    connection.sendall(NUMBER.pack(code))
    os._exit(0)


class Relay:
    """The connection to the process that asked for an attempt, in the parent of its ranks."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid

    def sender(self, pid: int) -> int:
        """Return who has sent a signal that came from a process."""
        if pid != self.pid:
            return pid
        self.connection.settimeout(PATIENCE)
        try:
            return number(self.connection)
        except (OSError, EOFError):
            return pid

    def close(self) -> None:
        """Close the connection, in a rank."""
        self.connection.close()


def number(connection: socket.socket) -> int:
    """Return the next number. Raises OSError, EOFError."""
    return int(NUMBER.unpack(read(connection, NUMBER.size))[0])


def read(connection: socket.socket, size: int) -> bytes:
    """Return this many bytes. Raises OSError, EOFError."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def receive(connection: socket.socket) -> "tuple[dict[str, Any], list[int]]":
    """Return a request and the descriptors that come with it. Raises OSError, EOFError."""
    descriptors = array.array("i")
    room = socket.CMSG_SPACE(3 * descriptors.itemsize)
    head, ancillary = connection.recvmsg(NUMBER.size, room)[:2]
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    head += read(connection, NUMBER.size - len(head))
    request = marshal.loads(read(connection, NUMBER.unpack(head)[0]))  # noqa: S302 - of our own user
    return request, list(descriptors)


# -- a later attempt -------------------------------------------------------------------------------


def resume(node_dir: str, arguments: "list[str]", around: "dict[str, Any]") -> "int | None":
    """Let the process of an earlier attempt start the ranks; return the code of their end.

    None: there is no such process, or none that fits, which is said. A negative code is a signal.
    """
    folder = os.path.join(node_dir, FOLDER)
    try:
        names = [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return None
    for name in names:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(short(folder) + "/" + name)
            send(connection, arguments, around)
            pid = number(connection)
        except (OSError, EOFError):
            why = "the process that had them has ended"
            remove(os.path.join(folder, name))
        else:
            if pid:
                return relay(connection, pid)
            why = "`%s` has changed" % connection.recv(4096).decode("utf-8", "replace")
        connection.close()
        os.write(2, ("safelaunch: the modules are imported anew: %s\n" % why).encode())
    return None


def remove(path: str) -> None:
    """Remove a socket that nobody listens at."""
    try:
        os.unlink(path)
    except OSError:
        pass


def send(connection: socket.socket, arguments: "list[str]", around: "dict[str, Any]") -> None:
    """Send a request. Raises OSError."""
    mask = os.umask(0o077)
    os.umask(mask)
    request = marshal.dumps({
        "arguments": arguments,
        "around": around,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "pid": os.getpid(),
        "umask": mask,
    })  # fmt: skip
    shared = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))]
    connection.sendmsg([NUMBER.pack(len(request))], shared)
    connection.sendall(request)


def relay(connection: socket.socket, pid: int) -> int:
    """Pass signals on to the parent of the ranks; return the code that it ends with."""
    import fcntl  # noqa: PLC0415 - the process that stays does without

    stops = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
    awaited = {signal.SIGIO, *stops}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    fd = connection.fileno()
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    connection.settimeout(0.0)
    data = b""
    while len(data) < NUMBER.size:
        try:
            piece = connection.recv(NUMBER.size - len(data))
        except BlockingIOError:
            info = signal.sigtimedwait(awaited, POLL)
            if info is not None and info.si_signo in stops:
                pass_on(connection, pid, info)
            continue
        except OSError:
            piece = b""
        if not piece:
            os.kill(os.getpid(), signal.SIGKILL)  # as it was: it could not say its code
        data += piece
    return int(NUMBER.unpack(data)[0])


def pass_on(connection: socket.socket, pid: int, info: "signal.struct_siginfo") -> None:
    """Send a signal on, and beside it who has sent it."""
    try:
        connection.sendall(NUMBER.pack(info.si_pid))
        os.kill(pid, info.si_signo)
    except OSError:
        time.sleep(0)  # it has just ended: its code comes next
