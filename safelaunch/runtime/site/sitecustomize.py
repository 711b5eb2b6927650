"""Notes who is a rank, gives it a log of its own, has its failure recorded. Inert outside a run.

Found through PYTHONPATH. A rank has RANK. A job without ranks has one process that counts, called
rank 0 (SAFELAUNCH_SINGLE): the launcher's own ("main"), its child ("child"), or what a shell runs
as Python, one after another ("shell"). A rank is the first such process that creates the marker of
its number with O_EXCL, so what a rank itself starts (dataloaders, servers) keeps writing to the
rank's file. A later step of the same job, a second torchrun perhaps, gets a number of its own. Only
what would go to launcher.log moves: output that a launcher sends elsewhere (torchrun --redirects, a
pipe) stays there. User code is not changed. Another sitecustomize on the path is run as if this one
were not there, and before safelaunch_rank.py: its hooks are chained.

Any Python 3 of the job may import it: nothing newer than 3.5 here.
"""

import os
import sys

STEP = 1000  # between the numbers of two steps; torchrun's restarts are counted within one
DEEPEST = 64  # processes between a rank and the launcher: wrappers, shells, agents
# what starts ranks is none, though it is Python
LAUNCHERS = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "swift", "ray", "areal")


def _enter() -> "tuple[str, str, str, str] | None":
    """Return (node directory, rank, attempt, restart) in the first process of a rank, marked."""
    node = os.environ.get("SAFELAUNCH_NODE_DIR")
    rank = _rank()
    if not node or not rank:
        return None
    attempt = os.environ.get("SAFELAUNCH_ATTEMPT", "1")
    try:
        restart = _claim(os.path.join(node, "ranks", "rank-%s.%s." % (rank, attempt)))
    except (OSError, ValueError):
        return None  # the run directory has gone
    if restart is None:
        return None
    if os.environ.get("SAFELAUNCH_RANK_LOGS"):
        try:
            _take_log(os.path.join(node, "logs", "attempt-%s" % attempt), rank)
        except OSError:
            pass  # it keeps what it has
    return node, rank, attempt, restart


def _rank() -> str:
    rank = os.environ.get("RANK", "")
    if rank:
        return rank if rank.isdigit() else ""
    single, main = os.environ.get("SAFELAUNCH_SINGLE"), os.environ.get("SAFELAUNCH_MAIN")
    if not single or not main:
        return ""
    if single == "child":
        return "0" if str(os.getppid()) == main else ""
    if str(os.getpid()) == main:
        return "0"
    return "0" if single == "shell" and _is_of_a_shell() else ""


def _is_of_a_shell() -> bool:
    """Whether no other Python, and no launcher, stands between the job's shell and this."""
    above = _ancestors()
    if not above or any("python" in _first_word(pid) for pid in above):
        return False
    words = _words(os.getpid())[:4]  # `python -u -m torch.distributed.run`, `python /x/torchrun`
    names = [os.path.basename(word) for word in words]
    return not any(name.startswith(LAUNCHERS) for name in names)


def _words(pid: int) -> "list[str]":
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read(4096).decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _first_word(pid: int) -> str:
    return os.path.basename((_words(pid) or [""])[0])


def _ancestors() -> "list[int]":
    """Return the processes above this one up to the launcher; none where it is not above."""
    main, found, pid = os.environ.get("SAFELAUNCH_MAIN"), [], os.getpid()
    for _ in range(DEEPEST):
        try:
            with open("/proc/%d/stat" % pid, "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return []
        found.append(pid)
        if str(pid) == main:
            return found
    return []


def _claim(stem: str) -> "str | None":
    """Take the marker of this rank, or the next one where an earlier step is over."""
    restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    for step in range(STEP):
        number = str(step * STEP + restart)
        try:
            _mark(stem + number)
        except FileExistsError:
            if not _has_steps() or not _is_over(stem + number):
                return None  # the first process of this rank lives: it has started us
        else:
            return number
    return None


def _has_steps() -> bool:
    """Whether one such process may follow another: not below a launcher of a single one."""
    return bool(os.environ.get("RANK")) or os.environ.get("SAFELAUNCH_SINGLE") == "shell"


def _is_over(path: str) -> bool:
    """Whether who made a marker has gone, and we are of the job's own line, nothing detached."""
    with open(path) as file:
        text = file.read().strip()
    if not text.isdigit() or os.path.exists("/proc/" + text):
        return False
    # a shell becomes its last command
    return str(os.getpid()) == os.environ.get("SAFELAUNCH_MAIN") or bool(_ancestors())


def _mark(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, b"%d\n" % os.getpid())
    except OSError:
        pass  # a full disk: the marker counts, `show` just lacks a pid
    finally:
        os.close(fd)


def _take_log(logs: str, rank: str) -> None:
    ours = os.stat(os.path.join(logs, "launcher.log"))
    mine = [fd for fd in (1, 2) if os.path.samestat(os.fstat(fd), ours)]
    if mine:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        log = os.open(os.path.join(logs, "rank-%s.log" % rank), flags, 0o600)
        for fd in mine:
            os.dup2(log, fd)
        os.close(log)


def _capture(node: str, rank: str, attempt: str, restart: str) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    try:
        import safelaunch_rank  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        safelaunch_rank.install(node, rank, attempt, restart)
    except Exception:  # noqa: BLE001,S110 - the job matters more than the record of its failure
        pass
    finally:
        sys.path.remove(here)


def _chain() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    try:
        import sitecustomize  # noqa: F401,PLC0415
    except ImportError as e:
        if getattr(e, "name", None) != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


def _start() -> None:
    who = None
    try:
        who = _enter()
    finally:
        try:
            _chain()
        finally:
            if who and os.environ.get("SAFELAUNCH_CAPTURE"):
                _capture(*who)


_start()
