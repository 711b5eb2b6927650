"""The run directory of a start: what lies in it, and taking it away when the start fails."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from safelaunch import __version__, runtime
from safelaunch.errors import ConfigError, StartError
from safelaunch.plan.serialize import freeze, plan_json, script_of, supervision_json
from safelaunch.runtime import processes
from safelaunch.runtime.agent import start
from safelaunch.start import preflight, restart_scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.model import NodePlan, Plan
    from safelaunch.runs import store
    from safelaunch.start.backend import Backend
    from safelaunch.start.caller import Caller


def spec(
    plan: Plan, run_id: str, caller: Caller, backend: Backend, node: NodePlan
) -> dict[str, Any]:
    """Return run.json of a node: what the supervisor needs, and what `show` tells.

    The machine that runs it adds `here`.
    """
    terminal = ("TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "SHELL", "PWD")
    return {
        "version": 1,
        "id": run_id,
        "name": plan.name,
        "backend": backend.name,
        "socket": backend.socket,
        "node": node.node_rank,
        "hosts": [one.host for one in plan.nodes],
        "world_size": plan.topology.world_size,
        "rank_logs": plan.ranks_log,
        "ranks": node.processes,
        "single": node.single,
        "cwd": node.cwd,
        "roots": _roots(node),
        "python": node.interpreter.path,
        "gpus": _gpus(node, caller),
        **supervision_json(plan.supervision),
        "again": restart_scripts.spec(plan, run_id),
        "fingerprint": dict(plan.fingerprint),
        "resumes": plan.resumes,
        "log": _log_path(plan, run_id, caller, node),
        "terminal": {n: caller.environ[n] for n in terminal if n in caller.environ},
        "job_file": os.path.abspath(plan.job_file) if plan.job_file else None,
        "safelaunch": __version__,
    }


def here() -> dict[str, Any]:
    """Return what run.json says of the machine and the process that starts a run."""
    if sys.platform == "win32":
        raise StartError("jobs run on Linux")
    return {
        "created_at": time.time(),
        "hostname": os.uname().nodename,
        "starter": processes.identity(os.getpid()),
    }


def _roots(node: NodePlan) -> list[str]:
    """Return the folders of the user's own code: the working directory and PYTHONPATH."""
    path = node.env.get("PYTHONPATH")
    entries = str(path.value).split(":") if path is not None and path.value is not None else []
    absolute = (posixpath.join(node.cwd, entry) for entry in entries if entry)
    return list(dict.fromkeys([node.cwd, *map(posixpath.normpath, absolute)]))


def _gpus(node: NodePlan, caller: Caller) -> list[str] | None:
    """Return the cards that the job sees, as CUDA_VISIBLE_DEVICES names them; None for all."""
    visible = preflight.visible_devices(node, caller.environ)
    return None if visible is None else [name for name in visible.split(",") if name.strip()]


def _log_path(plan: Plan, run_id: str, caller: Caller, node: NodePlan) -> str | None:
    if plan.log is None:
        return None
    fields = {"{name}": plan.name, "{time}": caller.local_time, "{id}": run_id}
    path = plan.log
    for field, value in fields.items():
        path = path.replace(field, value)
    if node.node_rank > 0:  # the nodes may see one file system
        stem, ending = posixpath.splitext(path)
        path = f"{stem}.node-{node.node_rank}{ending}"
    return posixpath.join(node.cwd, path)


def write(files: dict[str, tuple[bytes, int]], run: store.Run, made: list[str]) -> None:
    """Write the run directory; `made` grows with what a failed start has to remove."""
    try:
        _make_folder(run, made)
        for name, (data, mode) in files.items():
            start.write_file(os.path.join(run.node_dir, name), data, mode)
    except OSError as e:
        raise _unwritable(e, run) from e


def files(bound: Plan, plan: Plan, node: NodePlan) -> dict[str, tuple[bytes, int]]:
    """Return what a plan puts into a node's run directory: {name: (bytes, mode)}."""
    try:
        return {
            "launch.sh": (script_of(bound, node).encode(), 0o755),
            "plan.json": (_plan_text(bound, plan).encode(), 0o600),
            **{name: (str(body).encode(), 0o600) for name, body in node.files},
        }
    except UnicodeEncodeError:
        raise ConfigError("a word of the command is not UTF-8") from None


def runtime_files() -> dict[str, tuple[bytes, int]]:
    """Return the runtime as it lies in each run directory: {name: (bytes, mode)}."""
    files = {}
    for name, path in runtime.files().items():
        with open(path, "rb") as file:
            files[name] = (file.read(), 0o600)
    return files


def _make_folder(run: store.Run, made: list[str]) -> None:
    base = os.path.dirname(run.folder)
    for folder in (os.path.dirname(base), base):
        # makedirs gives only the last one this mode
        os.makedirs(folder, 0o700, exist_ok=True)
    _make(run.folder, lambda: os.mkdir(run.folder, 0o700), made)
    os.mkdir(run.node_dir, 0o700)  # the start's lock: a second start of this id fails here
    for folder in runtime.folders():
        os.mkdir(os.path.join(run.node_dir, folder), 0o700)


def _make(path: str, make: Callable[[], None], made: list[str]) -> None:
    """Make a file or folder that is ours to remove, unless it was there already."""
    made.append(path)  # before: Ctrl-C may come between the two
    try:
        make()
    except OSError:
        made.remove(path)
        raise


def reserve_log(path: str | None, made: list[str]) -> None:
    """Make the project's log: empty, new, and taken from now on."""
    if path is None:
        return
    missing, folder = [], os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    try:
        for folder in reversed(missing):
            _make(folder, lambda folder=folder: os.mkdir(folder), made)  # type: ignore[misc]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        _make(path, lambda: os.close(os.open(path, flags, 0o644)), made)
    except FileExistsError:
        raise StartError(
            f"the log {path} exists; a log is never overwritten",
            hint="put {time} or {id} in its name",
        ) from None
    except OSError as e:
        raise StartError(f"cannot write the log {path}: {e.strerror}") from e


def _unwritable(e: OSError, run: store.Run) -> StartError:
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"no space left for the run directory {run.folder}"
    elif e.errno == errno.EEXIST and os.path.isdir(run.folder):
        what = f"the run directory {run.folder} exists; start again"
    else:
        what = f"cannot write the run directory {run.folder}: {e.strerror}"
    return StartError(
        what, hint="export SAFELAUNCH_HOME=/a/folder/with/space to put runs elsewhere"
    )


def _plan_text(bound: Plan, plan: Plan) -> str:
    return json.dumps({**plan_json(bound), "unbound": freeze(plan)}, indent=1, ensure_ascii=False)


def remove(made: list[str]) -> None:
    """Remove what a start has made, the newest first; a folder or log that others use stays."""
    for path in reversed(made):
        with contextlib.suppress(OSError):
            if os.path.basename(os.path.dirname(path)) == "runs":
                _remove_run(path)
            elif os.path.isdir(path):
                os.rmdir(path)
            elif os.path.getsize(path) == 0:
                os.unlink(path)


def _remove_run(path: str) -> None:
    """Remove a run directory; a supervisor on its way may still add its log before it gives up."""
    deadline = time.monotonic() + 5
    while os.path.isdir(path) and time.monotonic() < deadline:
        shutil.rmtree(path, ignore_errors=True)
        time.sleep(0.01)
