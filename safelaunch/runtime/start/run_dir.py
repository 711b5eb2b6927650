"""The run directory: its path, what a start creates there and beside it, and removing that."""

from __future__ import annotations

import errno
import os
import time

from safelaunch.runtime.home import home
from safelaunch.runtime.start import runtime_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from safelaunch.runtime.records import RunRecord


def node_dir(run_id: str, node: int, base: str | None = None) -> str:
    """Return the folder of a node of a run, below `base`: safelaunch's folder, or `home`."""
    return f"{base or home()}/runs/{run_id}/node-{node}"


def lock(node_dir: str, created: list[str]) -> bool:
    """Make a node's folder; return False where it exists: another start has this run's id."""
    run = os.path.dirname(node_dir)
    runs = os.path.dirname(run)
    try:
        for folder in (os.path.dirname(runs), runs, run):
            os.makedirs(folder, 0o700, exist_ok=True)  # only the last one gets this mode
        _create(node_dir, created, lambda: os.mkdir(node_dir, 0o700))
    except FileExistsError:
        return False
    except OSError as e:
        raise unwritable(e) from e
    return True


def fill(node_dir: str, run: RunRecord, files: Iterable[tuple[str, bytes]], home: str) -> None:
    """Write run.json, the files of the plan, and the runtime. Raises OSError."""
    try:
        for name, data in files:
            path = os.path.join(node_dir, name)
            if "/" in name:
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _write(path, data)
        runtime_copy.put_into(node_dir, home)
        run.write(node_dir)
    except OSError as e:
        raise unwritable(e) from e


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        if path.endswith(".sh"):  # a person can run it by hand
            os.fchmod(fd, 0o755)


def unwritable(e: OSError) -> OSError:
    """Return the error of a start that cannot write its run directory."""
    return OSError(e.errno, f"cannot write the run directory: {e.strerror}", e.filename)


def reserve_log(path: str | None, created: list[str]) -> None:
    """Create the project's log, empty, so that no other run takes its name. Raises OSError."""
    if not path:
        return
    missing, folder = [], os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        for folder in reversed(missing):
            _create(folder, created, lambda folder=folder: os.mkdir(folder))
        _create(path, created, lambda: os.close(os.open(path, flags, 0o644)))
    except FileExistsError:
        why = "the log exists, and is never overwritten: put {time} or {id} in its name"
        raise FileExistsError(errno.EEXIST, why, path) from None
    except OSError as e:
        raise OSError(e.errno, f"cannot write the log: {e.strerror}", path) from e


def _create(path: str, created: list[str], create: Any) -> None:
    """Create a file or folder, and add it to what a start that fails removes."""
    created.append(path)  # before: Ctrl-C may come between the two
    try:
        create()
    except OSError:
        created.remove(path)
        raise


def remove(node_dir: str, created: Iterable[str]) -> None:
    """Remove what a start has created, the newest first, but no folder that others use."""
    folder = os.path.dirname(node_dir)  # of the run, which may have other nodes
    for path in (*reversed(list(created)), folder):
        if path == node_dir:
            _remove_tree(node_dir)
            continue
        try:
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)
        except OSError:
            pass


def _remove_tree(path: str) -> None:
    """Remove a folder; provenance.py or a supervisor on its way may still write there."""
    import shutil  # noqa: PLC0415 - it loads bz2 and lzma: 2 ms of each start of an agent

    deadline = time.monotonic() + 5
    while os.path.isdir(path) and time.monotonic() < deadline:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.isdir(path):
            time.sleep(0.01)
