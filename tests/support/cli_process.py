"""Runs the command line as a user's shell would: a process of its own for each command.

`run` forks it off a server that has imported all modules: that is nine tenths of the time that most
commands take, and the same each time. tests/test_startup.py says what a command itself imports.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from support import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

CLI = (sys.executable, "-m", "safelaunch")
# what the interpreter itself reads at its start: a fork is too late for it
AT_START = ("PYTHON", "LD_", "TZ")
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")  # the first of them that is set decides (POSIX, 8.2)
# the checkout, which is installed anyway; and what the server does itself
WITHOUT_EFFECT = (("PYTHONPATH", str(REPOSITORY)), ("PYTHONUNBUFFERED", "1"))
SERVER = """
import sys
del sys.path[0]  # the folder in which the tests were started
import click, yaml, paramiko, pathspec, packaging.specifiers, packaging.version, ahocorasick_rs
import gc, importlib, json, os, pkgutil, runpy, signal, socket, traceback
import safelaunch
for module in pkgutil.walk_packages(safelaunch.__path__, "safelaunch."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)

server = socket.socket(fileno=int(sys.argv[1]))
streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
gc.collect()
gc.freeze()
while True:
    data, fds, _, _ = socket.recv_fds(server, 1 << 20, 2)
    if not data:
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        break
    for fd in fds:
        os.close(fd)
    server.sendall(b"%d\\n" % pid)
    server.sendall(b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
request = json.loads(data)
server.close()
if request["session"]:
    os.setsid()
for number, fd in zip((1, 2), fds):
    os.dup2(fd, number)
    os.close(fd)
for number, (name, old) in enumerate(streams.items()):
    new = open(number, old.mode, encoding=old.encoding, errors=old.errors, closefd=False)
    new.reconfigure(line_buffering=old.line_buffering)
    setattr(sys, name, new)
    setattr(sys, "__" + name + "__", new)
os.environ.clear()
os.environ.update(request["env"])
os.chdir(request["cwd"])
sys.path.insert(0, os.getcwd())
sys.argv = ["safelaunch", *request["words"]]
try:
    runpy.run_module("safelaunch", run_name="__main__", alter_sys=True)  # ends the process
except BaseException:
    traceback.print_exc()
    os._exit(1)
"""


class CliResult(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def safelaunch(folder: Path, *words: str, then: str = "", **env: str) -> CliResult:
    """Run safelaunch in a folder; `then` is appended to the command line in bash."""
    environ = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    environ |= {"PYTHONPATH": str(REPOSITORY), **env}
    if then:
        bash = ["bash", "-c", f'set -o pipefail; "$@" {then}', "bash", *CLI, *words]
        done = subprocess.run(
            bash, cwd=folder, env=environ, check=False, capture_output=True, text=True, timeout=60
        )
    else:
        done = run(words, environ, folder, 60)
    return CliResult(done.returncode, done.stdout, done.stderr)


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    timeout: float,
    *,
    start_new_session: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run safelaunch to its end, as `subprocess.run` does; nothing is on its stdin."""
    at_start = {item for item in env.items() if item[0].startswith(AT_START)}
    at_start -= set(WITHOUT_EFFECT)
    at_start.add(("locale", next((env[name] for name in LOCALE if env.get(name)), "")))
    # the bench runs several cases beside each other
    key = (threading.get_ident(), frozenset(at_start))
    if _servers and key not in _servers and key not in _environments:
        _environments.add(key)  # a server costs as much as two commands that import what they need
        return subprocess.run(
            [*CLI, *words],
            env=env, cwd=cwd, timeout=timeout, start_new_session=start_new_session,
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
    if key not in _servers:
        _servers[key] = Server(env)
    return _servers[key].run(words, env, cwd, timeout, session=start_new_session)


class Server:
    """A process that forks one command at a time, each with its own environment and folder."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=env,
            )
        self.answers = self.socket.makefile("rb")
        atexit.register(self.close)

    def close(self) -> None:
        """End the server."""
        self.answers.close()
        self.socket.close()
        self.process.wait()

    def run(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        timeout: float,
        *,
        session: bool,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and to the end of what holds its stdout or stderr."""
        request = json.dumps(
            {"words": words, "env": dict(env), "cwd": str(cwd), "session": session}
        ).encode()
        out, err = os.pipe(), os.pipe()
        socket.send_fds(self.socket, [request], [out[1], err[1]])
        for fd in (out[1], err[1]):
            os.close(fd)
        pid = int(self.answers.readline())
        with open(out[0], "rb") as stdout, open(err[0], "rb") as stderr:
            try:
                texts = [data.decode() for data in _read((stdout, stderr), timeout)]
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), timeout) from None
            finally:
                code = int(self.answers.readline())
        return subprocess.CompletedProcess(list(words), code, *texts)


def _read(pipes: Sequence[BinaryIO], timeout: float) -> list[bytes]:
    """Return all that comes through pipes, until the last one who may write there is gone."""
    deadline = time.monotonic() + timeout
    data = {pipe: bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                data[key.fileobj] += piece  # type: ignore[index]
                if not piece:
                    selector.unregister(key.fileobj)
    return [bytes(data[pipe]) for pipe in pipes]


_Key = tuple[int, frozenset[tuple[str, str]]]  # a thread, and what Python reads at its start
_servers: dict[_Key, Server] = {}
_environments: set[_Key] = set()  # that have no server
