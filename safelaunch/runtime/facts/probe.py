"""Fetches the facts of this machine: one child, run by the job's interpreter, a part at a time.

The child (child.py) prints a line of JSON for each part as it is done. What hangs is given up
there, and the child itself here: a device or file system that does not answer stops nobody.
"""

from __future__ import annotations

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
    from typing import IO, Any

    from safelaunch.runtime.agent.wire import Link

EACH = 10.0  # seconds for a part
ROOM = 8.0  # seconds for all parts, beside those of the cards: two commands in a row
START = 10.0  # seconds until an interpreter tells the first part: several need no time at all
DEEP = 90.0  # seconds for the import of torch
OLDEST = (3, 8)
_TOO_OLD = 93
_MOST = 1 << 26  # bytes of the answer
# a line of factsparts.write; whatever else an interpreter prints is none
_LINE = re.compile(rb'^\["[a-z_]+(?:\.\w+)?", \{.*\}\]$', re.MULTILINE)

# Any Python 3 must be able to run it up to its version check. The job's own folder is no place for
# modules here, and ours is on the path only while ours are imported.
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

    `python` is the job's interpreter (the agent's own without), `cwd` its folder, `deep` imports
    torch, `limit` is what a part may take (10 s without). `quick` leaves out what needs a command
    or a walk; a child of this process tells the rest, which takes less than an interpreter's start.
    `asks` are questions of checks (questions.py), answered in the parts `ask.0` ..., `pythonpath`
    the folders of the job's modules. Where the interpreter does not run, all else is told by the
    agent's own.
    """
    del link
    return Probe(request).told()


class Probe:
    """A probe that runs beside whatever its starter does meanwhile."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._begun = time.monotonic()
        self._python = os.path.expanduser(str(request.get("python") or sys.executable))
        self._asks = list(request.get("asks") or [])
        each, deep = float(request.get("limit") or EACH), bool(request.get("deep"))
        words = [os.path.expanduser(str(request.get("cwd") or os.getcwd())), f"--limit={each!r}"]
        words += ["--deep"] if deep else []
        words += ["--quick=" + self._python] if request.get("quick") else []
        words += ["--ask=" + json.dumps(one) for one in self._asks]
        words += ["--path=" + os.path.expanduser(one) for one in request.get("pythonpath") or []]
        self._words = words
        self._is_quick = bool(request.get("quick"))
        self._patience = ROOM + max(2 * each, DEEP if deep else 0)
        if self._is_quick:  # its parts are given up at `each`: the rest is for a machine in load
            self._patience = 2 * each
        self._child = _fork(words) if self._is_quick else _spawn(self._python, words)

    def told(self) -> dict[str, Any]:
        """Return what `probe` does."""
        parts, why = _hear(self._child, self._patience)
        if why is not None and self._python != sys.executable and not self._is_quick:
            parts, other = _hear(_spawn(sys.executable, self._words), self._patience)
            skip = {"skip": f"{self._python}: {why}"}
            for name in ("python", "torch", "deep"):
                parts.pop(name, None)
            for at, one in enumerate(self._asks):
                if one[0] == "module":
                    parts[f"ask.{at}"] = skip
            parts["python"] = skip
            why = other
        if why is not None:
            parts.setdefault("python", {"skip": why})
        return {
            "parts": parts,
            "seconds": round(time.monotonic() - self._begun, 3),
            "now": time.time(),
            "python": self._python,
        }


_begun: list[Probe] = []


def start_quick_probe(request: dict[str, Any], link: Link | None) -> dict[str, Any]:
    """Begin a probe, which `end` waits for; what is asked between runs beside it."""
    del link
    _begun[:] = [Probe(request)]
    return {}


def end(request: dict[str, Any], link: Link | None) -> dict[str, Any]:
    """Return what the probe that was begun has told; nothing where that did not succeed."""
    del request, link
    return _begun.pop().told() if _begun else {"parts": {}}


def _spawn(python: str, words: list[str]) -> subprocess.Popen[bytes] | str:
    """Return the child of an interpreter, or why there is none."""
    root = os.path.dirname(os.path.dirname(FOLDER))
    boot = _BOOT.replace("ROOT", repr(root))
    try:
        with _kept(words) as file:
            return subprocess.Popen(
                [python, "-B", "-c", boot, facts_child.STDIN],
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
    except (OSError, ValueError) as e:
        return getattr(e, "strerror", None) or str(e)


def _kept(words: list[str]) -> IO[bytes]:
    """Return a file without a name that holds the words: others may list a command's own.

    And they may be more than a command can have. Raises OSError.
    """
    try:
        file: IO[bytes] = os.fdopen(os.memfd_create("words"), "w+b")
    except (AttributeError, OSError):  # no Linux, or one without
        import tempfile  # noqa: PLC0415 - few machines; who asked closes it

        file = tempfile.TemporaryFile()  # noqa: SIM115 - as above
    file.write(json.dumps(words).encode())
    file.seek(0)
    return file


class _Forked:
    """A child of this process without a program of its own, as far as it is used like a Popen."""

    stderr = None

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.stdout = open(fd, "rb", buffering=0)  # noqa: SIM115 - closed once it has been read
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """Return its exit code; raises subprocess.TimeoutExpired."""
        late = time.monotonic() + timeout
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # whoever started us ignores SIGCHLD: nobody is told
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
            elif time.monotonic() >= late:
                raise subprocess.TimeoutExpired("a probe", timeout)
            else:
                time.sleep(0.001)
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _fork(words: list[str]) -> _Forked | str:
    """Return a child that tells the parts, or why there is none. It holds no file of ours open."""
    try:
        ours, theirs = os.pipe()
    except OSError as e:
        return e.strerror or str(e)
    try:
        pid = os.fork()
    except OSError as e:
        os.close(ours)
        os.close(theirs)
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


def _hear(
    child: subprocess.Popen[bytes] | _Forked | str, patience: float
) -> tuple[dict[str, Any], str | None]:
    """Return the parts that an interpreter told, and why it told none."""
    if isinstance(child, str):
        return {}, child
    data, said, is_late = _listen(child, time.monotonic() + patience)
    code = _let_go(child)
    parts: dict[str, Any] = {}
    for line in _LINE.finditer(data):
        try:
            name, told = json.loads(line.group().decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        parts[name] = told
    if parts:
        return parts, None
    if len(data) >= _MOST:
        return {}, f"the interpreter printed more than {_MOST >> 20} MiB, and no facts"
    if code == _TOO_OLD:
        text = data.decode("utf-8", "replace").strip()
        return {}, "Python {} is older than {}".format(text[:20], "%d.%d" % OLDEST)
    if is_late:
        return {}, "the interpreter did not answer in time"
    last = (said or data).decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
    return {}, f"the interpreter ended with exit code {code}: {last[0][:300]}"


def _listen(
    child: subprocess.Popen[bytes] | _Forked, until: float
) -> tuple[bytearray, bytearray, bool]:
    """Return what a child wrote to stdout and stderr until it closed them, and if it was late."""
    streams = {one.fileno(): bytearray() for one in (child.stdout, child.stderr) if one}
    out, err = next(iter(streams)), list(streams)[-1]
    left, first = list(streams), min(until, time.monotonic() + START)
    while left and len(streams[out]) < _MOST:
        rest = first - time.monotonic()
        if rest <= 0:
            break
        for fd in select.select(left, [], [], rest)[0]:
            piece = os.read(fd, 1 << 16)
            if fd == out or len(streams[err]) < 1 << 16:
                streams[fd] += piece
            if not piece:
                left.remove(fd)
        news = streams[out][-(1 << 17) :]
        if b'\n["' in news:
            first = until  # it has told a part
        if b'\n["end", ' in news:
            break  # the child may still be held up in the kernel, by what it gave up
    said = bytearray() if err == out else streams[err]
    return streams[out], said, bool(left)


def _let_go(child: subprocess.Popen[bytes] | _Forked) -> int | None:
    """Return the exit code of a child that ends now; one that cannot be ended is left alone."""
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    for patience in (0.5, 0.5):
        try:
            return child.wait(patience)
        except subprocess.TimeoutExpired:
            commands.kill(child)
    child.returncode = -9  # in the kernel (D state): nobody waits for it
    return None


VERBS = {"probe": probe, "begin": start_quick_probe, "end": end}
