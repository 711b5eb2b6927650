"""Looks at the machine before a start, and starts a run on it: what an agent does for a client.

A start is idempotent by its run id: the run directory's `mkdir` is the lock, and who asks again,
after a connection that dropped in the middle, is told how the first one went.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import time

from safelaunch import runtime
from safelaunch.runtime import PLACE, json_files, processes, run_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from safelaunch.runtime.agent.wire import Link

LONGEST_SOCKET = 107  # sun_path is 108 bytes with its NUL (unix(7))
COMMAND_LIMIT = 60.0  # seconds for a command of `look`


def home() -> str:
    """Return safelaunch's folder here: SAFELAUNCH_HOME, or ~/.safelaunch."""
    given = os.environ.get("SAFELAUNCH_HOME", "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".safelaunch")


def node_dir(run_id: str, node: int) -> str:
    """Return the folder of a node's part of a run here."""
    return os.path.join(home(), "runs", run_id, "node-%d" % node)


# -- look ------------------------------------------------------------------------------------------


def look(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return what a start needs to know, and how each of `commands` ended.

    A command is a list of words; the first may be null for the agent's own interpreter.
    """
    del link
    names = request.get("environ") or []
    return {
        "home": os.path.expanduser("~"),
        "base": home(),
        "hostname": os.uname().nodename,
        "user": os.getuid(),
        "environ": {n: v for n, v in os.environ.items() if _is_named(n, names)},
        "python": sys.executable,
        "bash": shutil.which("bash"),
        "results": [_run(command) for command in request.get("commands") or []],
    }


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in patterns)


def clock(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return what this machine's clock says."""
    del request, link
    return {"now": time.time()}


def _run(command: list[str | None]) -> list[Any]:
    """Return exit code, stdout and stderr of a command; code -1 where it cannot be run."""
    words = [word or sys.executable for word in command]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=COMMAND_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return [-1, "", getattr(e, "strerror", None) or str(e)]
    return [done.returncode, done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace")]  # fmt: skip


# -- start -----------------------------------------------------------------------------------------


def start(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Start a run: `files` [[name, mode, size]], their bytes as data, `run` for run.json.

    `env` is laid over the environment of the job, and written nowhere. Returns the run's folder
    and its status, `started` false where the run was there already. Raises OSError, StartFailed.
    """
    place = node_dir(str(request["run"]["id"]), int(request["node"]))
    bodies = b"".join(link.pieces())
    run = dict(request["run"])
    run.update(
        hostname=os.uname().nodename,
        starter=processes.identity(os.getpid()),
        created_at=time.time(),
        socket=_socket(run) if run["backend"] == "tmux" else None,
    )
    if not os.path.isdir(run["cwd"]):
        raise FileNotFoundError(errno.ENOENT, "the working directory does not exist", run["cwd"])
    runs = os.path.dirname(os.path.dirname(place))
    for folder in (os.path.dirname(runs), runs, os.path.dirname(place)):
        os.makedirs(folder, 0o700, exist_ok=True)
    try:
        os.mkdir(place, 0o700)  # the lock
    except FileExistsError:
        run_state.drop_socket(run["socket"])
        return {"run_dir": place, "status": _earlier(place), "started": False}
    try:
        _fill(place, request["files"], bodies, run)
        _reserve_log(run.get("log"))
        _supervise(place, run, dict(os.environ, **request.get("env") or {}), request["python"])
        _record(place, run, request["python"])
    except BaseException:
        _take_away(place, run)
        raise
    return {"run_dir": place, "status": run_state.judge(place), "started": True}


def _socket(run: dict[str, Any]) -> str:
    node = int(run.get("node") or 0)
    return socket_path(str(run["id"]) + (".%d" % node if node else ""))


def undo(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Leave nothing of a start, as far as it came: no process, no folder."""
    del link
    place = node_dir(str(request["id"]), int(request["node"]))
    if os.path.isdir(place):
        _take_away(place, json_files.read_json(os.path.join(place, "run.json")) or {})
    return {}


def _take_away(place: str, run: dict[str, Any]) -> None:
    status = run_state.stop(place, 2.0)
    who = status.get("supervisor")
    if isinstance(who, dict):  # it may still wait for other nodes, to tell them that it was stopped
        processes.ask(int(who["pid"]), int(who["start"]))
    deadline = time.monotonic() + 2.0
    shutil.rmtree(place, ignore_errors=True)
    while os.path.isdir(place) and time.monotonic() < deadline:  # record.py has just written there
        time.sleep(0.02)
        shutil.rmtree(place, ignore_errors=True)
    _remove_if_empty(os.path.dirname(place))
    run_state.drop_socket(run.get("socket"))


class StartFailed(RuntimeError):  # noqa: N818 - reads as what happened
    """The supervisor or tmux did not start."""


def _earlier(place: str) -> dict[str, object]:
    """Return how a start of the same id went, once it is decided."""
    deadline = time.monotonic() + run_state.START_LIMIT
    while True:
        status = run_state.judge(place)
        if status.get("state") != "pending" or time.monotonic() > deadline:
            return status
        time.sleep(0.02)


def _fill(place: str, files: list[list[Any]], bodies: bytes, run: dict[str, Any]) -> None:
    import json  # noqa: PLC0415 - here only

    at = 0
    write_file(os.path.join(place, "run.json"), json.dumps(run, indent=1).encode(), 0o600)
    for name, mode, size in files:
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        write_file(path, bodies[at : at + size], mode)
        at += size
    for folder in runtime.folders():
        os.makedirs(os.path.join(place, folder), 0o700, exist_ok=True)
    for name, path in runtime.files().items():  # the agent's own: they need not travel again
        with open(path, "rb") as source:
            write_file(os.path.join(place, name), source.read(), 0o600)


def write_file(path: str, data: bytes, mode: int) -> None:
    """Write a new file with exactly these bytes and this mode. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)


def _reserve_log(path: str | None) -> None:
    if path:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            said = "the log exists, and is never overwritten: put {time} or {id} in its name"
            raise FileExistsError(errno.EEXIST, said, path) from None


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass  # another node of the run lies in it


def _supervise(place: str, run: dict[str, Any], env: dict[str, str], python: str) -> None:
    words = [
        python,
        "-I",
        "-S",
        "-B",
        os.path.join(place, PLACE, "supervise", "supervisor.py"),
        place,
    ]
    socket = run["socket"]
    clean = {name: value for name, value in env.items() if not name.startswith("SAFELAUNCH_")}
    if socket is None:
        child = _detach(words, place, clean)
        await_start(place, lambda: processes.start_time(child.pid) is not None)
        return
    done = subprocess.run(
        tmux_words(str(run["id"]), place, socket, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=clean,
        start_new_session=True,
        timeout=20,
        check=False,
    )
    if done.returncode != 0:
        raise StartFailed("tmux did not start: %s" % done.stdout.decode("utf-8", "replace").strip())
    await_start(place, lambda: is_served(socket))


def _detach(words: list[str], cwd: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    child.returncode = 0  # nobody waits for it: it outlives us
    return child


def _record(place: str, run: dict[str, Any], python: str) -> None:
    words = [python, os.path.join(place, PLACE, "provenance.py"), place, str(run["cwd"])]
    try:
        _detach(words, place, dict(os.environ))
    except OSError:
        pass  # without a record the run is still a run


def tmux_words(run_id: str, cwd: str, socket: str, words: Iterable[str]) -> list[str]:
    """Return the tmux command that runs words in a detached session on a server of its own.

    With no configuration: a user's own `destroy-unattached` would kill the job.
    """
    session = ["new-session", "-d", "-s", run_id, "-c", cwd, "-x", "200", "-y", "50"]
    return ["tmux", "-u", "-f", "/dev/null", "-S", socket, *session, *words]


def socket_path(run_id: str) -> str:
    """Return a short path for a run's socket, in a folder that only this user can enter.

    /tmp, not XDG_RUNTIME_DIR: that one is removed when the last session of the user ends.
    Raises OSError where there is no such place.
    """
    folder = "/tmp/safelaunch-%d" % os.getuid()  # noqa: S108 - checked below
    try:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        private = _is_private(folder)
    except OSError:
        private = False
    if not private:  # somebody else's, or no /tmp: a fresh one is ours alone
        import tempfile  # noqa: PLC0415 - rarely needed, and slow to import

        folder = tempfile.mkdtemp(prefix="sl-")
    path = "%s/%s" % (folder, run_id[-20:])
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        os.rmdir(folder)  # only a fresh one can be that long
        raise OSError(errno.ENAMETOOLONG, "the path of tmux's socket is too long", path)
    return path


def _is_private(folder: str) -> bool:
    info = os.lstat(folder)
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o077


def is_served(path: str) -> bool:
    """Whether a tmux server answers at a socket: a server that was killed leaves the file."""
    import socket  # noqa: PLC0415 - rarely asked

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except OSError:
            return False
    return True


def await_start(place: str, is_there: Callable[[], bool]) -> dict[str, Any] | None:
    """Wait until the supervisor has started the job; return its identity. Raises StartFailed."""
    begun = time.monotonic()
    deadline, patience = begun + run_state.START_LIMIT, begun + 2.0
    status_file = os.path.join(place, "status.json")
    while time.monotonic() < deadline:
        status = json_files.read_json(status_file)
        if status is not None and status.get("state") != "pending":
            who = status.get("supervisor")
            return who if isinstance(who, dict) else None
        if run_state.claim_is_dead(place) and json_files.read_json(status_file) == status:
            break  # it did not just get through either
        if time.monotonic() > patience:
            patience += 1.0
            if run_state.claimed_by(place) is None and not is_there():
                break  # it was killed before it could say so
        time.sleep(0.004)
    said = supervisor_said(place)
    raise StartFailed("the supervisor did not start" + (": " + said if said else ""))


def supervisor_said(place: str) -> str:
    """Return the end of what a supervisor said."""
    try:
        with open(os.path.join(place, "supervisor.log"), "rb") as file:
            return " ".join(file.read().decode("utf-8", "replace").split())[-300:]
    except OSError:
        return ""


VERBS = {"look": look, "start": start, "undo": undo, "clock": clock}
