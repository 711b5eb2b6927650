"""Marks each rank, gives it a log of its own, has its failure recorded. Inert outside a run.

Python imports it through PYTHONPATH. A rank has RANK. A job without ranks has one process that
counts, called rank 0 (SAFELAUNCH_SINGLE): the launcher's own ("main"), its child ("child"), or what
a shell runs as Python ("shell"). Ranks of MPI and Slurm have other names for RANK ("mpi"). A rank
is the first such process that creates the marker of its number. What a rank itself starts is none
(dataloaders, servers, a torchrun of its own): it keeps writing to the rank's file. A later step of
the same job, or one beside it (a second torchrun, a server), gets a number of its own. A rank that
replaces itself by exec goes on with its number. Only what would go to launcher.log moves: output
that a launcher sends elsewhere (torchrun --redirects, a pipe) stays there. User code is not
changed. Another sitecustomize on the path is run as if this one were not there, and before
safelaunch_rank.py: its hooks are chained.

Any Python 3 of the job may import it: no syntax newer than 3.5.
"""

# ruff: noqa: PLC0415 - each process of the job imports only what it needs

import os
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
STEP = 1000  # between the numbers of two steps; torchrun's restarts are counted within one
PIPE_PATIENCE = (
    5.0  # seconds until the copier of the logs has to open a pipe; it takes a millisecond
)
MAX_ANCESTORS = 64  # processes between a rank and the launcher: wrappers, shells, agents
# The number of a rank in its world, the innermost first: in a batch script of Slurm all ranks of
# mpirun have its SLURM_PROCID. (Open MPI; MPICH, Intel MPI; PMIx; Horovod with Gloo; srun)
MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "HOROVOD_RANK", "SLURM_PROCID")
# Python programs that run a command in an environment of their choice: no rank, nor above one
ENVIRONMENTS = ("conda", "mamba", "poetry", "pdm")
# Python programs, and modules run with -m, that start ranks and are none
LAUNCHERS = (
    "accelerate", "accelerate-launch", "torchrun", "swift", "megatron", "llamafactory-cli", "lmf",
    "trl", "axolotl", "deepspeed", "composer", "fabric", "lightning", "ray", "areal", "srun",
    "mpirun", "mpiexec", "horovodrun", "tune", "xtuner",
)  # fmt: skip
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands",
    "swift.cli.main",
    "swift.cli._megatron.main",
    "llamafactory.cli",
    "trl.cli",
    "torchtune._cli",
    "axolotl.cli.main",
    "areal.launcher",
    "areal.infra.launcher",
    "realhf.apps.quickstart",
    "deepspeed.launcher",
    "composer.cli",
    "lightning.fabric.cli",
    "lightning_fabric.cli",
    "ray.scripts",
)


def _mark_rank() -> "tuple[str, str, str, str] | None":
    """Return (node directory, rank, attempt, restart) in the first process of a rank, marked."""
    node = os.environ.get("SAFELAUNCH_NODE_DIR")
    if not node:
        return None
    above = _ancestors()
    rank = _rank(above)
    if not rank:
        return None
    attempt = os.environ.get("SAFELAUNCH_ATTEMPT", "1")
    ranks = os.path.join(node, "ranks")
    try:
        if _has_rank(ranks, attempt, above):
            return None  # a rank has started us
        restart = _claim(os.path.join(ranks, "rank-%s.%s." % (rank, attempt)), above)
    except (OSError, ValueError):
        return None  # the run directory is gone
    if restart is None:
        return None
    try:
        _redirect(os.path.join(node, "pipes"), rank, attempt, restart)
    except OSError:
        pass  # it keeps what it has
    return node, rank, attempt, restart


def _rank(above: "list[int]") -> str:
    single, main = os.environ.get("SAFELAUNCH_SINGLE"), os.environ.get("SAFELAUNCH_MAIN")
    # a platform may have numbered the one process that counts here; a settings file of the launcher
    # may say that its child is torchrun
    if (single == "main" and str(os.getpid()) == main) or (
        single == "child" and str(os.getppid()) == main and not _is_launcher()
    ):
        return "0"
    rank = os.environ.get("RANK", "")
    if rank:
        # the variable may be set for all of a script, and that starts torchrun
        return rank if rank.isdigit() and not _is_launcher() else ""
    if single == "mpi" and main:
        return _mpi_rank(above, int(main))
    if single != "shell" or not main:
        return ""
    if str(os.getpid()) == main:
        # `poetry run` goes on as the program, by exec
        return "" if _is_environment(_words(os.getpid())) else "0"
    return "0" if _is_started_by_shell(above) else ""


def _mpi_rank(above: "list[int]", main: int) -> str:
    number = next(filter(None, map(os.environ.get, MPI_RANKS)), "")
    # a task of srun is no descendant of it, and may be on another machine
    is_near = above or os.path.basename(_words(main)[0]) == "srun"
    return number if number.isdigit() and is_near and not _is_launcher() else ""


def _is_started_by_shell(above: "list[int]") -> bool:
    """Whether no other Python, and no launcher, stands between the job's shell and this.

    A shell that has ended already (`python train.py &` in its last line) has left it to the
    supervisor, which is a Python too.
    """
    supervisor = os.environ.get("SAFELAUNCH_SUPERVISOR")
    shells = [pid for pid in above if str(pid) != supervisor]
    programs = [words for words in map(_words, shells) if not _is_environment(words)]
    is_inside = any("python" in os.path.basename(words[0]) for words in programs)
    is_program = not _is_launcher() and not _is_environment(_words(os.getpid()))
    return bool(above) and not is_inside and is_program


def _is_launcher() -> bool:
    """Whether this starts ranks: `python -u -m torch.distributed.run`, `python /x/torchrun`."""
    name = os.path.basename(_program(_words(os.getpid())[1:]))
    return name in LAUNCHERS or (name.startswith(LAUNCHER_MODULES) and not name.endswith(".py"))


def _is_environment(words: "list[str]") -> bool:
    """Whether these start a command in an environment: `/opt/conda/bin/python .../conda run`."""
    return os.path.basename(_program(words[1:])) in ENVIRONMENTS


def _program(words: "list[str]") -> str:
    """Return the script or module that Python's own words name."""
    before = ""
    for word in words:
        if before == "-m" or not (word.startswith("-") or before in ("-X", "-W")):
            return word
        if word == "-c":
            break
        before = word
    return ""


def _read(path: str) -> bytes:
    """Return the beginning of a file. Raises OSError. (open() costs four times as much.)"""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def _words(pid: int) -> "list[str]":
    try:
        return _read("/proc/%d/cmdline" % pid).decode("utf-8", "replace").split("\0")
    except OSError:
        return [""]


def _ancestors() -> "list[int]":
    """Return the processes above this one up to the launcher; none where it is not above.

    Where the job's shell has ended, those up to the supervisor, which adopts what it leaves behind.
    With RANK it may also be what a rank has left behind.
    """
    tops = [os.environ.get("SAFELAUNCH_MAIN")]
    if os.environ.get("SAFELAUNCH_SINGLE") == "shell" and not os.environ.get("RANK"):
        tops.append(os.environ.get("SAFELAUNCH_SUPERVISOR"))
    pids, pid = [], os.getpid()
    for _ in range(MAX_ANCESTORS):
        try:
            pid = int(_read("/proc/%d/stat" % pid).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return []
        pids.append(pid)
        if str(pid) in tops:
            return pids
    return []


def _has_rank(ranks: str, attempt: str, above: "list[int]") -> bool:
    """Whether one of these processes is a rank. Raises OSError."""
    pids = set(map(str, above))
    return any(
        name.split(".")[1:2] == [attempt] and _owner(os.path.join(ranks, name)) in pids
        for name in (os.listdir(ranks) if pids else ())
    )


def _owner(path: str) -> str:
    """Return the pid in a marker, empty where there is none."""
    try:
        return (_read(path).decode("ascii", "replace").split() or [""])[0]
    except OSError:
        return ""


def _claim(stem: str, above: "list[int]") -> "str | None":
    """Take the marker of this rank, or the next one where that is another step's."""
    restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    me = str(os.getpid())
    for step in range(STEP):
        number = str(step * STEP + restart)
        try:
            _mark(stem + number, above)
        except FileExistsError:
            owner = _owner(stem + number)
            if owner == me:
                return number  # this process was the rank before an exec
            if not owner.isdigit() or not (above or me == os.environ.get("SAFELAUNCH_MAIN")):
                return None  # detached: started by a rank, perhaps
            if not os.environ.get("RANK") and os.environ.get("SAFELAUNCH_SINGLE") != "shell":
                return None  # below a launcher of a single process there is no second one
        else:
            return number
    return None


def _mark(path: str, above: "list[int]") -> None:
    """Write a marker: our pid, and the pid namespace where that may be another one.

    Below a shell a second line names the program: the shell may handle its failure.
    """
    text = str(os.getpid())
    if not above and text != os.environ.get("SAFELAUNCH_MAIN"):
        try:
            text += " " + os.readlink("/proc/self/ns/pid")
        except OSError:
            pass  # no /proc of our own
    if os.environ.get("SAFELAUNCH_SINGLE") == "shell":
        words = _words(os.getpid())[1:]
        text += "\n" + (_program(words) or ("-c" if "-c" in words else "-"))
    data = text.encode("utf-8", "replace") + b"\n"
    # written, then linked: who finds the marker taken reads at once whose it is
    part = os.path.join(os.path.dirname(path), "new-%d" % os.getpid())
    _write(part, data, os.O_TRUNC)
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        _write(path, data, os.O_EXCL)
    finally:
        os.unlink(part)


def _write(path: str, data: bytes, flag: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    try:
        os.write(fd, data)
    except OSError:
        pass  # a full disk: the marker counts, `show` just lacks a pid
    finally:
        os.close(fd)


def _redirect(pipes: str, rank: str, attempt: str, restart: str) -> None:
    """Give the rank a pipe of its own, which the copier reads (runtime/logs/copier.py)."""
    launcher = os.environ.get("SAFELAUNCH_LAUNCHER_PIPE")
    mine = [fd for fd in (1, 2) if launcher and _file(fd) == launcher]
    if not mine:
        return
    control = os.open(os.path.join(pipes, "control-%s" % attempt), os.O_WRONLY | os.O_NONBLOCK)
    try:
        path = os.path.join(pipes, "rank-%s.%s.%s" % (rank, attempt, restart))
        os.mkfifo(path + ".new", 0o600)
        pipe = _open_pipe(path, control)
    finally:
        os.close(control)
    for fd in mine:
        os.dup2(pipe, fd)
    os.close(pipe)


def _file(fd: int) -> str:
    try:
        stat = os.fstat(fd)
    except OSError:
        return ""
    return "%d:%d" % (stat.st_dev, stat.st_ino)


def _open_pipe(path: str, control: int) -> int:
    """Return a FIFO, open, once the copier has renamed it. Raises OSError, with it removed."""
    deadline, pause = time.monotonic() + PIPE_PATIENCE, 0.0001
    try:
        os.write(control, b"+")
        while True:
            try:
                pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # not yet renamed
                if time.monotonic() > deadline:
                    raise
            else:
                os.set_blocking(pipe, True)
                return pipe
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
    except OSError:
        for name in (path + ".new", path):
            if os.path.exists(name):
                os.unlink(name)
        raise


def _capture(who: "tuple[str, str, str, str]") -> None:
    """Record the failure of a rank."""
    sys.path.insert(0, FOLDER)
    try:
        import safelaunch_rank  # type: ignore[import-not-found,unused-ignore]

        rank = safelaunch_rank.install(*who)
        error = _world_error(who)
        if error:
            _exit(error, rank)
    except Exception:  # noqa: BLE001,S110 - the job matters more than the record of its failure
        pass
    finally:
        sys.path.remove(FOLDER)


def _arm(who: "tuple[str, str, str, str]", groups: "list[str]") -> None:
    """Let a hang of a rank leave evidence; what a rank starts inherits that."""
    sys.path.insert(0, FOLDER)
    try:
        import safelaunch_evidence  # type: ignore[import-not-found,unused-ignore]

        sys.path.remove(FOLDER)
        node, rank, attempt, _ = who
        safelaunch_evidence.arm(node, rank, attempt, groups)
    except Exception:  # noqa: BLE001,S110 - the job matters more than evidence of its failure
        pass
    finally:
        if FOLDER in sys.path:
            sys.path.remove(FOLDER)


def _world_error(who: "tuple[str, str, str, str]") -> str:
    """Return that a rank of several nodes is in a smaller world than was planned, else "".

    Each node would train by itself, silently. What a rank starts may have a world of its own, and
    so may a later step of the job.
    """
    planned, actual = os.environ.get("SAFELAUNCH_WORLD_SIZE"), os.environ.get("WORLD_SIZE")
    if not planned or not actual or actual == planned:
        return ""
    # not always a child of the launcher: swift starts torchrun, and there are wrappers
    if int(who[3]) >= STEP or not _ancestors():
        return ""
    return "WORLD_SIZE is %s, planned were %s ranks: this node would train alone" % (
        actual,
        planned,
    )


def _exit(message: str, rank: "object | None") -> None:
    """End this rank before the user's code begins."""
    if rank is not None:
        error = RuntimeError("safelaunch: " + message)
        rank.record_exception(error)  # type: ignore[attr-defined]
    os.write(2, ("RuntimeError: safelaunch: %s\n" % message).encode())
    os._exit(1)


def _chain() -> None:
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != FOLDER]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as e:
        if getattr(e, "name", None) != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


def _start() -> None:
    who = None
    try:
        who = _mark_rank()
    finally:
        try:
            _chain()
        finally:
            _start_rank(who)


def become_rank() -> None:
    """Make a forked process a rank; its variables are set (ranks/safelaunch_preload.py)."""
    _start_rank(_mark_rank())


def _start_rank(who: "tuple[str, str, str, str] | None") -> None:
    groups = os.environ.get("SAFELAUNCH_EVIDENCE", "")
    if who and groups:
        _arm(who, groups.split(","))
    if who and os.environ.get("SAFELAUNCH_CAPTURE"):
        _capture(who)
    elif who and _world_error(who):
        _exit(_world_error(who), None)


if __name__ != "safelaunch_sitecustomize":  # its name where become_rank is called
    _start()
