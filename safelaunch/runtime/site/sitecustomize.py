"""Gives each rank a log file of its own. Found through PYTHONPATH; inert outside a safelaunch run.

A rank is the first process that creates the marker of its number with O_EXCL, so what a rank itself
starts (dataloaders, servers) keeps writing to the rank's file. User code is not changed. Another
sitecustomize on the path is run as if this one were not there.
"""

from __future__ import annotations

import os
import sys


def _take_log() -> None:
    node = os.environ.get("SAFELAUNCH_NODE_DIR")
    rank = os.environ.get("RANK", "")
    if not node or not rank.isdigit():
        return
    attempt = os.environ.get("SAFELAUNCH_ATTEMPT", "1")
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    marker = os.path.join(node, "ranks", "rank-%s.%s.%s" % (rank, attempt, restart))
    try:
        fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return  # not the first process of this rank, or the run directory has gone
    os.write(fd, b"%d\n" % os.getpid())
    os.close(fd)
    log = os.path.join(node, "logs", "attempt-%s" % attempt, "rank-%s.log" % rank)
    try:
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def _chain() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    own = sys.modules.pop("sitecustomize", None)
    path = list(sys.path)
    sys.path[:] = [p for p in path if os.path.abspath(p or ".") != here]
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
