"""Bound Plan -> Run: the only code that starts jobs. A run is started, or nothing is left."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import __version__, environ, provenance, runs
from safelaunch.backends import Supervised, setsid, tmux
from safelaunch.errors import ConfigError, StartError
from safelaunch.model import NodePlan, Plan, Slot
from safelaunch.plan import bind
from safelaunch.runtime import FILES, FOLDER, state
from safelaunch.serial import freeze, plan_json, script_of
from safelaunch.transports.local import Local

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

OLDEST_PYTHON = (3, 8)  # what runtime/ is written for
_START_LIMIT = 15.0


class Caller(NamedTuple):
    """What the start takes from its caller: environment, folder, ids and the clock."""

    environ: Mapping[str, str]
    home: str
    random: bytes
    utc: str  # yyyymmdd-hhmmss
    local_time: str


class Started(NamedTuple):
    """A run that was started, and what to say about it."""

    run: runs.Run
    backend: str
    socket: str | None
    notes: tuple[str, ...]
    supervisor: int | None
    record: threading.Thread


def start(plan: Plan, caller: Caller, *, foreground: bool = False) -> Started:
    """Start a plan on this machine. Raises StartError, with nothing left behind."""
    if not sys.platform.startswith("linux"):
        raise StartError(
            f"jobs run on Linux, not on {sys.platform}",
            hint="start it on a Linux host with `safelaunch remote --host NAME`",
        )
    if len(plan.nodes) > 1:
        raise StartError(
            f"this job has {len(plan.nodes)} nodes; `run` starts this machine only",
            hint="use `safelaunch remote`",
        )
    node = plan.nodes[0]
    _check_secrets(node, caller.environ)
    _check_folder(node)
    machine = Local()
    python = _interpreter(node, caller.environ)
    run_id = runs.new_id(plan.name, caller.utc, caller.random)
    facts = _facts(machine, node, python, run_id, caller)
    run = runs.Run(run_id, os.path.join(runs.folder(caller.home), run_id))
    bound = bind(plan, {**facts, Slot.RUN_ID: run_id, Slot.RUN_DIR: run.node_dir})
    if foreground:
        backend, why = setsid.NAME, None
    else:
        why = tmux.why_not(machine)
        backend = setsid.NAME if why else tmux.NAME
    socket = tmux.socket_path(run_id, os.getuid()) if backend == tmux.NAME else None
    spec = _spec(bound, run, caller, backend, socket)
    if foreground:
        spec["foreground"] = os.getpid()
    notes = [f"{why}: started without it; everything but `attach` works"] if why else []
    notes += _inherited(bound.nodes[0], caller.environ)
    try:
        _write(machine, bound, plan, run, spec)
        supervisor = _launch(machine, python, run, caller, socket)
    except BaseException:
        _undo(run, spec)
        raise
    record_file = os.path.join(run.node_dir, "record.json")
    recording = provenance.record(machine, node, python, record_file, _own(caller))
    return Started(run, backend, socket, tuple(notes), supervisor, recording)


# -- checks ----------------------------------------------------------------------------------------


def _check_secrets(node: NodePlan, environ_: Mapping[str, str]) -> None:
    missing = [name for name in node.secrets if name not in environ_]
    if missing:
        raise StartError(
            f"`env_from` names {', '.join(missing)}, not set in your environment",
            hint=f"export {missing[0]}=... and start again",
        )


def _check_folder(node: NodePlan) -> None:
    if not os.path.isdir(node.cwd):
        raise StartError(f"the working directory {node.cwd} does not exist")


def _interpreter(node: NodePlan, environ_: Mapping[str, str]) -> str:
    """Return the absolute path of the job's interpreter: the job's, the active one, or python3."""
    path = node.interpreter.path
    where: object = node.interpreter.origin
    if path is None:
        path, where = _active(environ_)
    if os.path.isdir(path):
        raise StartError(f"the interpreter {path} is a directory", where=where)
    if not os.path.exists(path):
        raise StartError(f"the interpreter {path} does not exist", where=where)
    if not os.access(path, os.X_OK):
        raise StartError(f"the interpreter {path} is not executable", where=where)
    return path


def _active(environ_: Mapping[str, str]) -> tuple[str, str]:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ_.get(name)
        if prefix and os.path.isabs(prefix):
            return os.path.join(prefix, "bin", "python"), f"{name} of your environment"
    found = shutil.which("python3", path=environ_.get("PATH"))
    if found is None:
        raise StartError("no `python3` on PATH", hint="give the job `python:`, `venv:` or `conda:`")
    return os.path.abspath(found), "python3 on your PATH"


def _facts(
    machine: Local, node: NodePlan, python: str, run_id: str, caller: Caller
) -> dict[Slot, str]:
    """Ask the job's interpreter what only this machine knows."""
    with open(os.path.join(FOLDER, "probe.py"), encoding="utf-8") as file:
        source = file.read()
    seed = str(zlib.crc32(run_id.encode()))
    result = machine.run([python, "-I", "-S", "-c", source, seed], env=_own(caller), timeout=60)
    try:
        found: dict[str, Any] = json.loads(result.out)
    except ValueError:
        raise StartError(
            f"the interpreter {python} does not work: {result.last_line or result.code}",
            where=node.interpreter.origin,
            hint=f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed",
        ) from None
    version = tuple(found["version"])
    if version < OLDEST_PYTHON:
        shown = ".".join(str(n) for n in version)
        raise StartError(
            f"{python} is Python {shown}; {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed",
            where=node.interpreter.origin,
        )
    if found["port"] is None:
        raise StartError("no free port between 20000 and 65535")
    return {
        Slot.PYTHON: python,
        Slot.PREFIX: os.path.dirname(os.path.dirname(python)),
        Slot.PORT: str(found["port"]),
        **_counted(node, found),
    }


def _counted(node: NodePlan, found: dict[str, Any]) -> dict[Slot, str]:
    gpus, cores = int(found["gpus"]), int(found["cores"])
    if node.processes is None and gpus == 0:
        raise StartError(
            "`gpus: auto`, but this machine shows no NVIDIA GPU", hint="give `processes: N`"
        )
    processes = node.processes or gpus
    return {Slot.GPUS: str(gpus), Slot.THREADS: str(max(1, cores // processes))}


def _inherited(node: NodePlan, environ_: Mapping[str, str]) -> list[str]:
    """Name inherited variables that change jobs without a trace in their files."""
    if node.keep is not None:
        return []
    names = environ.inherited(environ_, environ.NOTEWORTHY)
    beaten = [n for n in names if n in node.env and not node.env[n].soft]
    kept = [n for n in names if n not in beaten and n not in node.secrets]
    parts = []
    if kept:
        parts.append("kept " + ", ".join(f"{n}={environ_[n]}" for n in kept))
    if beaten:
        parts.append("beaten by the plan: " + ", ".join(beaten))
    return ["inherited from your environment: " + "; ".join(parts)] if parts else []


# -- the run directory -----------------------------------------------------------------------------


def _spec(
    plan: Plan, run: runs.Run, caller: Caller, backend: str, socket: str | None
) -> dict[str, Any]:
    """Return run.json: what the supervisor needs, and what `show` tells."""
    terminal = ("TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")
    return {
        "version": 1,
        "id": run.id,
        "name": plan.name,
        "created_at": time.time(),
        "backend": backend,
        "socket": socket,
        "rank_logs": plan.ranks_log,
        "log": _log_path(plan, run, caller),
        "terminal": {n: caller.environ[n] for n in terminal if n in caller.environ},
        "job_file": os.path.abspath(plan.job_file) if plan.job_file else None,
        "safelaunch": __version__,
    }


def _log_path(plan: Plan, run: runs.Run, caller: Caller) -> str | None:
    if plan.log is None:
        return None
    fields = {"{name}": plan.name, "{time}": caller.local_time, "{id}": run.id}
    path = plan.log
    for field, value in fields.items():
        path = path.replace(field, value)
    return os.path.join(plan.nodes[0].cwd, path)


def _write(machine: Local, bound: Plan, plan: Plan, run: runs.Run, spec: dict[str, Any]) -> None:
    node = bound.nodes[0]
    try:
        os.makedirs(os.path.dirname(run.folder), 0o700, exist_ok=True)
        os.mkdir(run.folder, 0o700)
        os.mkdir(run.node_dir, 0o700)  # the start's lock: a second start of this id fails here
        os.makedirs(os.path.join(run.node_dir, "runtime", "site"), 0o700)
        _reserve_log(spec)
        files = {
            "launch.sh": (script_of(bound, node).encode(), 0o755),
            "run.json": (json.dumps(spec, indent=1).encode(), 0o600),
            "plan.json": (_plan_text(bound, plan).encode(), 0o600),
        }
        for name, body in node.files:
            files[name] = (str(body).encode(), 0o600)
        for name, (data, mode) in files.items():
            machine.put(os.path.join(run.node_dir, name), data, mode)
        for name in FILES:
            data = machine.get(os.path.join(FOLDER, name))
            machine.put(os.path.join(run.node_dir, "runtime", name), data, 0o600)
    except UnicodeEncodeError:
        raise ConfigError("a word of the command is not UTF-8") from None
    except OSError as e:
        raise _unwritable(e, run) from e


def _reserve_log(spec: dict[str, Any]) -> None:
    path = spec["log"]
    if path is None:
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        spec["log"] = None  # not ours: it must survive the clean-up
        raise StartError(
            f"the log {path} exists; a log is never overwritten",
            hint="put {time} or {id} in its name",
        ) from None


def _unwritable(e: OSError, run: runs.Run) -> StartError:
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"no space left for the run directory {run.folder}"
    elif e.errno == errno.EEXIST:
        what = f"the run directory {run.folder} exists"
    else:
        what = f"cannot write the run directory {run.folder}: {e.strerror}"
    return StartError(
        what, hint="export SAFELAUNCH_HOME=/a/folder/with/space to put runs elsewhere"
    )


def _plan_text(bound: Plan, plan: Plan) -> str:
    return json.dumps({**plan_json(bound), "unbound": freeze(plan)}, indent=1, ensure_ascii=False)


def _undo(run: runs.Run, spec: dict[str, Any]) -> None:
    """Leave nothing of a start that failed: no process, no directory, no log."""
    if os.path.isdir(run.node_dir):
        state.stop(run.node_dir, 2.0)
    shutil.rmtree(run.folder, ignore_errors=True)
    log = spec.get("log")
    if log and os.path.isfile(log) and os.path.getsize(log) == 0:
        os.unlink(log)


# -- the start -------------------------------------------------------------------------------------


def _own(caller: Caller) -> dict[str, str]:
    """Return the caller's environment without our own names: they would mark the supervisor."""
    return {k: v for k, v in caller.environ.items() if not k.startswith("SAFELAUNCH_")}


def _launch(
    machine: Local, python: str, run: runs.Run, caller: Caller, socket: str | None
) -> int | None:
    supervisor = os.path.join(run.node_dir, "runtime", "supervisor.py")
    supervised = Supervised(
        run_id=run.id,
        argv=(python, "-I", "-S", supervisor, run.node_dir),
        env=_own(caller),
        cwd=run.node_dir,
    )
    if socket is not None:
        tmux.start(machine, supervised, socket)
    else:
        setsid.start(machine, supervised)
    return _await_start(run)


def _await_start(run: runs.Run) -> int | None:
    """Wait until the supervisor has started the job; return its pid."""
    deadline = time.monotonic() + _START_LIMIT
    status_file = os.path.join(run.node_dir, "status.json")
    while time.monotonic() < deadline:
        status = state.read_json(status_file)
        if status is not None and status.get("state") != "pending":
            who = status.get("supervisor")
            return int(who["pid"]) if isinstance(who, dict) else None
        time.sleep(0.005)
    log = os.path.join(run.node_dir, "supervisor.log")
    said = ""
    if os.path.isfile(log) and stat.S_ISREG(os.stat(log).st_mode):
        with open(log, encoding="utf-8", errors="replace") as file:
            said = " ".join(file.read().split())[-300:]
    raise StartError(f"the supervisor did not start within {_START_LIMIT:g} s", hint=said or None)
