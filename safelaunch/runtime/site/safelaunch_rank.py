"""Hooks of one rank: uncaught exceptions, fatal signals, stacks on request, an orderly exit.

`sitecustomize` imports it in ranks only, before the user's code, and calls `install`. These files
`NODE_DIR/records/rank-<rank>.<attempt>.<restart>.*` are opened then, so that a failure by a full
disk or by too many open files can still be written down:

`.json`    one JSON object a line (RankEvent in runtime/records.py): `{"kind": "exception", ...}`
           as safelaunch_record.py makes it, and `{"kind": "exit", ...}` from atexit. A short line
           with type and time stands before the whole one of the main thread: the last counts.
           Space is reserved and the unused rest is NUL. Where a file system copies on write that
           helps, but is no guarantee.
`.fatal`   what faulthandler writes at SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL. Missing or empty
           where the user has faulthandler too (`-X faulthandler`, a later `faulthandler.enable()`,
           `@record` of torchelastic): the text is then in the rank's log, as ever.
`.stacks`  the stacks of all threads, once for each STACKS_SIGNAL; the program goes on. The file
           is there only where the handler is.
`.imports` the files of the project that the program consists of, a path a line, each written when
           it is imported: a rank that is killed has them too. Of the first rank of a node only.

How an exception is seen: `sys.excepthook` and `threading.excepthook` are chained. A hook that user
code installs later and that does not call ours (rich, typer, IPython) hides nothing of the main
thread: see _Canary. Not seen: SystemExit, os._exit and signals (the supervisor sees the exit),
errors that user code catches, threads where user code has replaced `threading.excepthook` without
a chain, and threads of Python < 3.8. An exception that was passed to `sys.excepthook` by hand is
recorded, though the program may go on: it is not `uncaught`, and the exit code decides.

A program that replaces itself by exec appends to its files. Forked children write nothing to them:
hooks compare the pid. Nothing of this raises or prints.

Imported, often compiled, at each start of a rank: only modules that are built into the interpreter
are used, and what only a failure needs is in safelaunch_record.py. Syntax of Python 3.5.
"""

import _thread
import atexit
import faulthandler
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

# SIGRTMIN+10 of glibc; a number, because libraries count from different minima. glibc and musl take
# 32 to 34, .NET 34, valgrind 64, systemd's own use leaves 42 to 46 free; USR1 and USR2 belong to
# NCCL, Slurm, submitit, Kineto. runtime/hang/evidence.py repeats the number.
STACKS_SIGNAL = 44

ROOM = 20480  # bytes: the longest record that safelaunch_record.py makes is shorter
RESERVED = 2 * ROOM  # the second half is for the exception that ends the program
HIGH_FD = 240  # the first of our descriptors: the user's own begin at 3 as ever, and code that
# closes and opens low ones does not get ours; 256 is the least limit in common use (macOS)

EXIT = '{"kind": "exit", "time_ns": %d, "monotonic_ns": %d, "pid": %d}\n'
# what stands before the whole record of an exception, and in its place where making that failed
LEAST = (
    '{"kind": "exception", "uncaught": %s, "thread": %s, "time_ns": %d, "monotonic_ns": %d, '
    '"pid": %d, "rank": %s, "attempt": %s, "restart": %s, "type": "%s", "message": "", '
    '"traceback": "", "frames": []}\n'
)


class _OwnFile:
    """A descriptor of ours with a high number, checked before use: user code may close any."""

    def __init__(self, path: str, flags: int, offset: int) -> None:
        self.fd = os.open(path, flags, 0o600)
        number = HIGH_FD + offset
        if _identity(number) is None:
            try:
                os.dup2(self.fd, number, False)
                os.close(self.fd)
                self.fd = number
            except OSError:
                pass  # above the limit of open files
        self.identity = _identity(self.fd)

    def is_ours(self) -> bool:
        """Whether the number still stands for our file."""
        return _identity(self.fd) == self.identity

    def close(self) -> None:
        """Close the descriptor, if it is still ours."""
        if self.is_ours():
            os.close(self.fd)
        self.identity = (0, 0)  # and never again

    def redirect_to_stderr(self) -> None:
        """In a forked child: let the number stand for the child's stderr, not for our file."""
        if self.is_ours():
            try:
                os.dup2(2, self.fd, False)
            except OSError:
                os.close(self.fd)


def _identity(fd: int) -> "tuple[int, int] | None":
    try:
        stat = os.fstat(fd)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


class _Rank:
    """The numbers of this rank, and its open record."""

    def __init__(self, node: str, rank: str, attempt: str, restart: str) -> None:
        self.pid = os.getpid()
        self.main_thread = _thread.get_ident()
        self.number = (rank, attempt, restart)
        self.path = os.path.join(node, "records", "rank-%s.%s.%s" % self.number)
        self.world = (os.environ.get("LOCAL_RANK", ""), os.environ.get("WORLD_SIZE", ""))
        try:
            self.folder = os.getcwd()
        except OSError:
            self.folder = ""
        self.recorded = 0  # id() of the exception in sys.last_value; a reference would keep frames
        self.busy = set()  # type: set[int]
        self.is_over = False
        self.imports = None  # type: _ImportRecorder | None
        self.record = _OwnFile(self.path + ".json", os.O_RDWR | os.O_CREAT, 0)
        # before an exec this process may have written to it: append
        self.used = len(os.read(self.record.fd, RESERVED).rstrip(b"\0"))
        os.lseek(self.record.fd, self.used, os.SEEK_SET)
        try:
            os.posix_fallocate(self.record.fd, 0, RESERVED)
        except (AttributeError, OSError):
            pass  # not Linux, or full already: there may be room later
        # closed at a failure: Python can open source files then, one at a time
        self.spare = _OwnFile(os.devnull, os.O_RDONLY, 1)
        # read now and compiled at a failure: that needs no descriptor then, and no run directory
        with open(os.path.join(os.path.dirname(__file__), "safelaunch_record.py"), "rb") as file:
            self.source = file.read()

    def record_exception(
        self, error: BaseException, thread: object = None, room: int = ROOM
    ) -> None:
        """Record an exception, once, if no more than `room` is then used. Never raises."""
        me = _thread.get_ident()
        if os.getpid() != self.pid or self.is_over or isinstance(error, SystemExit):
            return
        last = error is getattr(sys, "last_value", None)
        if me in self.busy or (last and self.recorded == id(error)):
            return
        now = _now()
        self.busy.add(me)
        try:
            self.spare.close()
            self.recorded = id(error) if last else self.recorded
            self._write_exception(error, thread, now, room, last)
            self.spare = _OwnFile(os.devnull, os.O_RDONLY, 1)
        except BaseException:  # noqa: BLE001,S110 - also a signal handler's: the hook must go on
            pass
        finally:
            self.busy.discard(me)

    def _write_exception(
        self,
        error: BaseException,
        thread: object,
        now: "tuple[int, int]",
        room: int,
        uncaught: bool,
    ) -> None:
        is_main = _thread.get_ident() == self.main_thread
        words = ("true" if uncaught else "false", "null" if is_main else '"thread"')
        numbers = (now[0], now[1], self.pid)
        least = LEAST % (words + numbers + self.number + (type(error).__name__,))
        if is_main:
            # a signal may end the process before the whole is made, which takes 10 to 80 ms
            self._append(least, room)
        space = {}  # type: dict[str, object]
        try:
            exec(compile(self.source, "safelaunch_record.py", "exec"), space)  # noqa: S102 - ours
            record, line = space["make"](self, error, thread, now, uncaught)  # type: ignore[operator]
        except BaseException:  # noqa: BLE001 - no memory, most likely
            record, line = None, least
        if record or not is_main:
            self._append(line, room)
        if record and is_main and isinstance(error, Exception):
            space["write_torchelastic_file"](record)  # type: ignore[operator]

    def _append(self, line: str, room: int) -> None:
        """Write a line if no more than `room` is then used, and if the disk takes it."""
        data = line.encode("ascii", "replace")
        try:
            if self.used + len(data) <= room:
                self.write(data)
        except OSError:
            pass

    def write(self, data: bytes) -> None:
        """Append, in place; by the name where user code closed the descriptor. Raises OSError."""
        own = self.record.is_ours()
        fd = self.record.fd if own else os.open(self.path + ".json", os.O_WRONLY)
        try:
            os.lseek(fd, self.used, os.SEEK_SET)
            self.used += len(data)
            while data:
                data = data[os.write(fd, data) :]
        finally:
            if not own:
                os.close(fd)

    def end(self) -> None:
        """Record that the interpreter shuts down in order. Never raises."""
        self.is_over = True
        if os.getpid() != self.pid:
            return
        try:
            if self.imports:
                self.imports.record_main()
            wall, monotonic = _now()
            self.write((EXIT % (wall, monotonic, self.pid)).encode())
        except BaseException:  # noqa: BLE001,S110 - nothing may be seen of it
            pass


class _Canary:
    """Waits in `sys.last_value`, where the interpreter puts an uncaught exception.

    That happens before any hook is called, whoever has installed it (PyErr_PrintEx of Python 3.5
    to 3.14), and drops what was there. With a Python frame below the program goes on: a debugger,
    an interactive console. Hooks alone would lose the time or, where one ends the process, all.
    """

    def __init__(self, rank: _Rank) -> None:
        self.rank = rank

    def __del__(self) -> None:
        try:
            sys._getframe(1)  # noqa: SLF001 - there is no other way to see it
        except ValueError:
            error = getattr(sys, "last_value", None)
            if isinstance(error, BaseException):
                self.record(error)

    def record(self, error: BaseException) -> None:
        """Record what has ended the program; safelaunch_preload.py calls it from a frame."""
        self.rank.record_exception(error, room=RESERVED)


class _ImportRecorder:
    """The first finder on sys.meta_path: writes what the project has of it, and finds nothing.

    The finders behind it import the file. It reads each folder of the project once, as they do.
    """

    def __init__(self, rank: _Rank) -> None:
        self.rank = rank
        self.folders = {}  # type: dict[str, frozenset[str]]
        self.written = set()  # type: set[str]
        self.main = ""
        own = os.path.dirname(os.path.abspath(__file__))
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        roots = [os.path.join(rank.folder, path) for path in ["."] + paths if path]  # noqa: RUF005
        roots = [os.path.normpath(root) for root in roots]
        self.roots = tuple(root.rstrip("/") + "/" for root in roots if root not in ("/", own))
        self.libraries = (os.path.dirname(os.__file__) + "/", own + "/")
        self.file = _OwnFile(rank.path + ".imports", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 4)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Write the file of a module, if the project has it. Never raises."""
        del target
        try:
            if not self.main:
                self.record_main()
            for entry in sys.path if path is None else path:  # type: ignore[attr-defined]
                names = self.folders.get(entry)
                if names is None:
                    names = self.folders[entry] = self._names(entry or self.rank.folder)
                if names:  # few folders are of the project: this is done for each module of torch
                    file = self._file(entry or self.rank.folder, names, name.rpartition(".")[2])
                    if file:
                        self._write(file)
                        return
        except Exception:  # noqa: BLE001,S110 - the import must go on
            pass

    @staticmethod
    def _file(folder: str, names: "frozenset[str]", module: str) -> str:
        if module in names:
            file = os.path.join(folder, module, "__init__.py")
            if os.path.isfile(file):
                return file
        return os.path.join(folder, module + ".py") if module + ".py" in names else ""

    def _names(self, folder: str) -> "frozenset[str]":
        """Return what is in a folder of the project; nothing for any other."""
        path = folder + "/"
        is_foreign = path.startswith(self.libraries) or "-packages/" in path
        try:
            is_own = path.startswith(self.roots) and not is_foreign
            return frozenset(os.listdir(folder) if is_own else ())
        except OSError:
            return frozenset()

    def record_main(self) -> None:
        """Write the program itself, once the interpreter has opened it."""
        main = None if self.main else getattr(sys.modules.get("__main__"), "__file__", None)
        if self.rank.is_over and not self.main:  # its module has lost the name by then
            main = sys.argv[0]
        if main:
            self.main = os.path.join(self.rank.folder, main)
            self._write(self.main)

    def _write(self, file: str) -> None:
        if file not in self.written and os.getpid() == self.rank.pid and self.file.is_ours():
            self.written.add(file)
            os.write(self.file.fd, (file + "\n").encode("utf-8", "surrogateescape"))


def _record_imports(rank: _Rank) -> None:
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return
    rank.imports = _ImportRecorder(rank)
    sys.meta_path.insert(0, rank.imports)  # type: ignore[arg-type,unused-ignore]


def install(node: str, number: str, attempt: str, restart: str) -> _Rank:
    """Open the files and put the hooks in place. Raises OSError where there is no folder."""
    rank = _Rank(node, number, attempt, restart)
    previous = sys.excepthook

    def hook(
        kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None"
    ) -> None:
        rank.record_exception(error)
        previous(kind, error, trace)

    sys.excepthook = hook
    if not hasattr(sys, "last_value"):
        sys.last_value = _Canary(rank)  # type: ignore[assignment,unused-ignore]
    _hook_threads(rank)
    atexit.register(rank.end)  # the first that is registered is the last that runs
    _watch_signals(rank)
    _record_imports(rank)
    return rank


def _hook_threads(rank: _Rank) -> None:
    """Chain threading.excepthook; without importing threading, which takes its own from _thread."""
    loaded = sys.modules.get("threading")
    module, name = (_thread, "_excepthook") if loaded is None else (loaded, "excepthook")
    previous = getattr(module, name, None)
    if previous is None:
        return  # Python < 3.8

    def hook(args: object) -> None:
        error = getattr(args, "exc_value", None)
        if error is not None:
            rank.record_exception(error, getattr(args, "thread", None))
        previous(args)

    setattr(module, name, hook)


def _watch_signals(rank: _Rank) -> None:
    files = []
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if not faulthandler.is_enabled():
        fatal = _OwnFile(rank.path + ".fatal", flags, 2)
        faulthandler.enable(fatal.fd, all_threads=True)
        files.append(fatal)
    stacks = _OwnFile(rank.path + ".stacks", flags, 3)
    try:
        faulthandler.register(STACKS_SIGNAL, stacks.fd, all_threads=True, chain=False)
        files.append(stacks)
    except (AttributeError, OSError, RuntimeError, ValueError):
        stacks.close()
        os.unlink(rank.path + ".stacks")

    def after_fork() -> None:
        for file in files:
            file.redirect_to_stderr()

    if hasattr(os, "register_at_fork"):  # Python >= 3.7
        os.register_at_fork(after_in_child=after_fork)


def _now() -> "tuple[int, int]":
    if hasattr(time, "time_ns"):  # Python >= 3.7
        return time.time_ns(), time.monotonic_ns()
    return int(time.time() * 1e9), int(time.monotonic() * 1e9)
