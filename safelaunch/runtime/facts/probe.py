"""Fetches the facts of this machine: one child, run by the job's interpreter, a part at a time.

The child (child.py) prints a line of JSON for each part as it is done. It gives up what hangs, and
is given up itself: a device or file system that does not answer delays nobody.
"""

# ruff: noqa: PLC0415 - tempfile, questions: few machines need them

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

from safelaunch.runtime import FOLDER
from safelaunch.runtime.facts import child as facts_child
from safelaunch.runtime.facts import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Dict, Union

    from safelaunch.runtime.agent.wire import Link

    Child = Union["subprocess.Popen[bytes]", "_Forked"]
    Parts = Dict[str, Any]  # {part: {"value": ...} or {"skip": why}}

EACH = 10.0  # seconds for a part
EXTRA = 8.0  # seconds for all parts, beside those of the GPUs: two commands in a row
START = 10.0  # seconds until an interpreter prints the first part: several need no time at all
DEEP = 90.0  # seconds for the import of torch
OLDEST = (3, 8)
_TOO_OLD = 93
_MOST = 1 << 26  # bytes of the answer
# a line that child.py prints; an interpreter may print others
_LINE = re.compile(rb'^\["[a-z_]+(?:\.\w+)?", \{.*\}\]$', re.MULTILINE)

# Any Python 3 must be able to run it up to its version check. Modules are not searched in the job's
# own folder, and in ours only while ours are imported.
_BOOT = """
import sys
if sys.version_info < (3, 8):
    print("%d.%d.%d" % sys.version_info[:3])
    sys.exit(93)
if sys.path[:1] == [""]:
    del sys.path[0]
sys.path.insert(0, ROOT)
from safelaunch.runtime.facts import child
del sys.path[0]
child.main(sys.argv[1:])
"""


def probe(request: dict[str, Any], link: Link | None) -> dict[str, Any]:
    """Return {"parts": {name: {"value": ...} or {"skip": why}}, "seconds", "now", "python"}.

    `python` is the job's interpreter (by default the agent's own), `cwd` its folder, `deep` imports
    torch, `limit` is what a part may take (default 10 s). `quick` leaves out what needs a command
    or a walk; a child of this process answers, which takes less than an interpreter's start.
    `versions`: only those of torch, NCCL and the driver; `peers`: only which GPUs have peer access.
    `asks` are questions of checks (questions.py), answered in the parts `ask.0` ..., `pythonpath`
    the folders of the job's modules. Where the interpreter does not run, the agent's own answers
    all else.
    """
    del link
    return Probe(request).answer()


class Probe:
    """A probe that runs in the background until its answer is read."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._started = time.monotonic()
        self._python = os.path.expanduser(str(request.get("python") or sys.executable))
        self._asks = list(request.get("asks") or [])
        each, deep = float(request.get("limit") or EACH), bool(request.get("deep"))
        words = [os.path.expanduser(str(request.get("cwd") or os.getcwd())), f"--limit={each!r}"]
        words += ["--deep"] if deep else []
        words += ["--quick=" + self._python] if request.get("quick") else []
        words += ["--versions=1"] if request.get("versions") else []
        words += ["--peers=1"] if request.get("peers") else []
        words += ["--ask=" + json.dumps(question) for question in self._asks]
        words += ["--path=" + os.path.expanduser(path) for path in request.get("pythonpath") or []]
        self._words = words
        self._is_quick = bool(request.get("quick"))
        self._patience = EXTRA + max(2 * each, DEEP if deep else 0)
        if self._is_quick:  # its parts are given up at `each`: the rest is for a machine under load
            self._patience = 2 * each
        self._child = _fork(words) if self._is_quick else _spawn(self._python, words)

    def answer(self) -> dict[str, Any]:
        """Return what `probe` does."""
        parts, why = _parts(self._child, self._patience)
        if why is not None and self._python != sys.executable and not self._is_quick:
            parts, other = _parts(_spawn(sys.executable, self._words), self._patience)
            from safelaunch.runtime.facts import questions

            skip = {"skip": f"{self._python}: {why}"}
            for name in ("torch", "deep"):
                parts.pop(name, None)
            for number, (kind, *_) in enumerate(self._asks):
                if kind in questions.OF_INTERPRETER:
                    parts[f"ask.{number}"] = skip
            parts["python"] = skip
            why = other
        if why is not None:
            parts.setdefault("python", {"skip": why})
        return {
            "parts": parts,
            "seconds": round(time.monotonic() - self._started, 3),
            "now": time.time(),
            "python": self._python,
        }


_running: list[Probe] = []


def start_quick_probe(request: dict[str, Any], link: Link | None) -> dict[str, Any]:
    """Start a probe, which `end` waits for; what is asked in between is answered meanwhile."""
    del link
    _running[:] = [Probe(request)]
    return {}


def end(request: dict[str, Any], link: Link | None) -> dict[str, Any]:
    """Return the answer of the probe that was started; no parts where there is none."""
    del request, link
    return _running.pop().answer() if _running else {"parts": {}}


def _spawn(python: str, words: list[str]) -> Child | str:
    """Return the child of an interpreter, or why there is none."""
    root = os.path.dirname(os.path.dirname(FOLDER))
    boot = _BOOT.replace("ROOT", repr(root))
    try:
        with _words_file(words) as file:
            return subprocess.Popen(
                [python, "-B", "-c", boot, facts_child.STDIN],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
    except (OSError, ValueError) as e:
        return getattr(e, "strerror", None) or str(e)


def _words_file(words: list[str]) -> IO[bytes]:
    """Return a file without a name that holds the words. Raises OSError.

    Other users may list a command's own words, and they may be more than a command can have.
    """
    try:
        file: IO[bytes] = os.fdopen(os.memfd_create("words"), "w+b")
    except (AttributeError, OSError):  # no Linux, or one without
        import tempfile

        file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(json.dumps(words).encode())
    file.seek(0)
    return file


class _Forked:
    """A forked child without a program of its own; has what is used here of a Popen."""

    stderr = None

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.stdout = open(fd, "rb", buffering=0)  # noqa: SIM115 - closed once it has been read
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """Return its exit code; raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # our parent ignores SIGCHLD: the kernel has reaped it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
            elif time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a probe", timeout)
            else:
                time.sleep(0.001)
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _fork(words: list[str]) -> Child | str:
    """Return a child that prints the parts, or why there is none; it holds no file of ours open."""
    ours = theirs = -1
    try:
        ours, theirs = os.pipe()
        pid = os.fork()
    except OSError as e:
        for fd in {ours, theirs} - {-1}:
            os.close(fd)
        return e.strerror or str(e)
    if pid == 0:
        try:
            os.setsid()
            os.dup2(theirs, 1)
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 2)
            os.closerange(3, 1024)
            facts_child.main(words)
        finally:
            os._exit(1)
    os.close(theirs)
    return _Forked(pid, ours)


def _parts(child: Child | str, patience: float) -> tuple[Parts, str | None]:
    """Return the parts that an interpreter printed, and why it printed none."""
    if isinstance(child, str):
        return {}, child
    output, errors, is_late = _read(child, time.monotonic() + patience)
    code = _end(child)
    parts: Parts = {}
    for line in _LINE.finditer(output):
        with contextlib.suppress(ValueError, RecursionError):
            name, answer = json.loads(line.group().decode("utf-8", "replace"))
            parts[name] = answer
    if parts:
        return parts, None
    if len(output) >= _MOST:
        return {}, f"the interpreter printed more than {_MOST >> 20} MiB, and no facts"
    if code == _TOO_OLD:
        text = output.decode("utf-8", "replace").strip()
        return {}, "Python {} is older than {}.{}".format(text[:20], *OLDEST)
    if is_late:
        return {}, "the interpreter did not answer in time"
    last = (errors or output).decode("utf-8", "replace").strip().rpartition("\n")[2]
    return {}, f"the interpreter ended with exit code {code}: {last[:300] or 'no output'}"


def _read(child: Child, until: float) -> tuple[bytearray, bytearray, bool]:
    """Return what a child wrote to stdout and stderr until it closed them, and if it was late."""
    streams = {pipe.fileno(): bytearray() for pipe in (child.stdout, child.stderr) if pipe}
    out, err = next(iter(streams)), list(streams)[-1]
    pipes, deadline = list(streams), min(until, time.monotonic() + START)
    while pipes and len(streams[out]) < _MOST:
        rest = deadline - time.monotonic()
        if rest <= 0:
            break
        for fd in select.select(pipes, [], [], rest)[0]:
            piece = os.read(fd, 1 << 16)
            if fd == out or len(streams[err]) < 1 << 16:
                streams[fd] += piece
            if not piece:
                pipes.remove(fd)
        tail = streams[out][-(1 << 17) :]
        if b'\n["' in tail:
            deadline = until  # it has printed a part
        if b'\n["end", ' in tail:
            break  # the child may still be held up in the kernel, by what it gave up
    return streams[out], bytearray() if err == out else streams[err], bool(pipes)


def _end(child: Child) -> int | None:
    """Return the exit code of a child that ends now; one that cannot be ended is left alone."""
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    for _ in range(2):
        try:
            return child.wait(0.5)
        except subprocess.TimeoutExpired:
            commands.kill(child)
    child.returncode = -9  # in the kernel (D state): it is not waited for
    return None


VERBS = {"probe": probe, "begin": start_quick_probe, "end": end}
