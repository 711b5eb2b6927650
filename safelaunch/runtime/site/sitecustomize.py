"""Gives each rank a log file of its own. Found through PYTHONPATH; inert outside a safelaunch run.

A rank is the first process that creates the marker of its number with O_EXCL, so what a rank itself
starts (dataloaders, servers) keeps writing to the rank's file. Only what would go to launcher.log
moves: output that a launcher sends elsewhere (torchrun --redirects, a pipe) stays there. User code
is not changed. Another sitecustomize on the path is run as if this one were not there.

Any Python 3 of the job may import it: nothing newer than 3.5 here.
"""

import os
import sys


def _take_log() -> None:
    node = os.environ.get("SAFELAUNCH_NODE_DIR")
    rank = os.environ.get("RANK", "")
    if not node or not rank.isdigit():
        return
    attempt = os.environ.get("SAFELAUNCH_ATTEMPT", "1")
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    logs = os.path.join(node, "logs", "attempt-%s" % attempt)
    try:
        ours = os.stat(os.path.join(logs, "launcher.log"))
        mine = [fd for fd in (1, 2) if os.path.samestat(os.fstat(fd), ours)]
        _mark(os.path.join(node, "ranks", "rank-%s.%s.%s" % (rank, attempt, restart)))
        if mine:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            log = os.open(os.path.join(logs, "rank-%s.log" % rank), flags, 0o600)
            for fd in mine:
                os.dup2(log, fd)
            os.close(log)
    except OSError:
        return  # not the first process of this rank, or the run directory has gone


def _mark(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, b"%d\n" % os.getpid())
    except OSError:
        pass  # a full disk: the marker counts, `show` just lacks a pid
    finally:
        os.close(fd)


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


try:
    _take_log()
finally:
    _chain()
