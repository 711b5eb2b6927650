"""Starts the agent on a host: one exec, by any Python 3.8 there; its files are put there once."""

# ruff: noqa: PLC0415 - zipfile: once for each host and version

from __future__ import annotations

import functools
import io
import posixpath
import threading
from typing import TYPE_CHECKING

from safelaunch import runtime
from safelaunch.errors import HostError
from safelaunch.remote.agent_client import Agent, lost
from safelaunch.runtime.agent import wire
from safelaunch.runtime.agent.server import READY
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.start import runtime_copy
from safelaunch.script import quote
from safelaunch.ssh.errors import command_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.ssh.connection import Channel

MARK = b"\0safelaunch "
MAX_PRINTED = 1 << 20  # bytes that a shell's startup files may print
MAX_MARKS = 50  # lines of a start: one for each Python that does not run
MAX_MARK = 1000  # bytes of one
# in this order, behind the host's and the job's own: what hosts have that give no PATH to an exec
PYTHONS = (
    "python3",
    *(f"python3.{minor}" for minor in range(14, 7, -1)),
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
)
TIMEOUT = 30.0  # seconds for a login shell, or for an interpreter: one that hangs is given up
# hint for a connection that ends after the login, before anything has answered
SESSION_ENDED = (
    "give the same command again; if it happens each time, sshd ends the session after the login, "
    "as where a `ChrootDirectory` is missing or others may write to it: look at sshd's log on the "
    "host"
)
_TOO_OLD = 93  # the exit code of _BOOT that lets the next Python try

# For the host's login shell, whichever it is: plain words in single quotes, no line break, no `!`.
# 126 and 127 are of what cannot run: a shim whose own shell is missing, or that knows no python3;
# 2 is of a Python that does not know these options.
_SHELL = (
    'b=$1; shift; for p do command -v "$p" >/dev/null 2>&1 || continue; '
    '"$p" -I -S -B -c "$b"; c=$?; case $c in '
    '2|126|127) printf "\\000safelaunch useless %s does not run (exit code %s)\\n" "$p" $c;; '
    f'{_TOO_OLD});; *) exit $c;; esac; done; printf "\\000safelaunch nopython\\n"'
)

# Any Python 3 must be able to run it up to its version check. What was asked already stands before
# the files that it asks for: it is handed on. A copy of them that is not whole is replaced; where
# the disk refuses that, the agent runs from memory: runs there can be watched and stopped.
_BOOT = """
import os, sys
def say(text):
    os.write(1, b"\\0safelaunch " + text.encode("utf-8", "replace") + b"\\n")
def get(n):
    found = []
    while n:
        part = os.read(0, n)
        if not part:
            sys.exit(1)
        found.append(part)
        n -= len(part)
    return b"".join(found)
if sys.version_info < (3, 8):
    say("useless Python %d.%d is too old (%s)" % (sys.version_info[:2] + (sys.executable,)))
    sys.exit(OLD)
home = os.environ.get("SAFELAUNCH_HOME") or os.path.join(os.path.expanduser("~"), ".safelaunch")
if not os.path.isabs(home):
    say("relative " + home)
    sys.exit(1)
folder = os.path.join(home, "COPIES", "HASH-" + str(sys.implementation.cache_tag))
root = os.path.join(folder, "PLACE")
early = bytes.fromhex("EARLY")
def server():
    sys.path.insert(0, root)
    from safelaunch.runtime.start import runtime_copy
    if not runtime_copy.is_whole(folder):
        raise ImportError(folder)
    runtime_copy.hold(folder)
    from safelaunch.runtime.agent import server
    return server
def forget():
    sys.path[:] = [path for path in sys.path if path != root]
    sys.path_importer_cache.clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "safelaunch"]:
        del sys.modules[name]
class SourceFiles:
    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import ModuleSpec
        stem = "runtime/" + name.replace(".", "/")
        for path in (stem + "/__init__.py", stem + ".py"):
            if path in files:
                is_package = path != stem + ".py"
                spec = ModuleSpec(name, self, origin=path, is_package=is_package)
                spec.has_location = True
                return spec
    def create_module(self, spec):
        pass
    def exec_module(self, module):
        path = module.__spec__.origin
        module.__file__ = os.path.join(folder, path)
        exec(compile(files[path], module.__file__, "exec"), module.__dict__)
try:
    agent = server()
except Exception:
    try:
        os.unlink(os.path.join(folder, "SIZES"))
    except OSError:
        pass
    say("need")
    import io, zipfile
    while True:
        head = get(5)
        data = get(int.from_bytes(head[1:], "big"))
        if head[:1] == b"F":
            break
        early += head + data
    archive = zipfile.ZipFile(io.BytesIO(data))
    files = {name: archive.read(name) for name in archive.namelist()}
    forget()
    sys.meta_path.append(SourceFiles())
    from safelaunch import runtime
    runtime.keep_in_memory(files)
    from safelaunch.runtime.start import runtime_copy
    try:
        runtime_copy.make(folder, files)
        runtime_copy.sweep(home, runtime_copy.AGE)
        forget()
        agent = server()
    except Exception:
        forget()
        from safelaunch import runtime
        runtime.keep_in_memory(files)
        from safelaunch.runtime.agent import server as agent
agent.main(early)
"""


def digest() -> str:
    """Return the hash of the runtime's files."""
    return runtime_copy.digest(runtime_copy.contents())


def files() -> bytes:
    """Return the runtime's files as a zip, which is made once for all hosts of a command."""
    with _packing:
        return _packed()


_packing = threading.Lock()


@functools.cache
def _packed() -> bytes:
    import zipfile

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in sorted(runtime_copy.contents().items()):
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def command(digest: str, pythons: Sequence[str], early: bytes = b"") -> str:
    """Return what a login shell is to run; `early` are requests that the agent answers first."""
    place = posixpath.dirname(posixpath.dirname(runtime.PLACE))
    boot = _BOOT.replace("HASH", digest).replace("PLACE", place).replace("OLD", str(_TOO_OLD))
    boot = boot.replace("COPIES", runtime_copy.PLACE).replace("SIZES", runtime_copy.SIZES)
    boot = boot.replace("EARLY", early.hex())
    text = f'exec(bytes.fromhex("{boot.encode().hex()}"))'
    words = ["/bin/sh", "-c", _SHELL, "sh", text, *dict.fromkeys([*pythons, *PYTHONS])]
    return "exec " + " ".join(quote(word) for word in words)


def start_agent(
    host: str, execute: Callable[[str], Channel], digest: str, pythons: Sequence[str]
) -> Agent:
    """Return an agent that starts once an answer is read, by `execute` of its command.

    What is asked first travels with the command. Where there is no agent, that raises HostError.
    """
    channel: Channel

    def launch(early: bytes) -> None:
        nonlocal channel
        channel = execute(command(digest, pythons, early))

    def read(size: int) -> bytes:
        return channel.read(size)

    def write(data: bytes | memoryview) -> None:
        channel.write(data)

    return Agent(host, read, write, launch, lambda: _await_ready(host, channel))


def _await_ready(host: str, channel: Channel) -> None:
    """Wait for the agent, and send its files where it needs them. Raises HostError.

    A reason why there is none counts only if none comes: a startup file may have printed it.
    """
    useless: list[str] = []
    reason: HostError | None = None
    is_sent = False
    try:
        for _ in range(MAX_MARKS):
            if (line := _read_mark(host, channel)) == READY[len(MARK) :]:
                return
            kind, _, rest = line[:MAX_MARK].decode("utf-8", "replace").strip().partition(" ")
            if kind == "need" and not is_sent:
                is_sent = True
                wire.Link(channel.read, channel.write).files(files())
            elif kind == "useless":
                useless.append(printable(rest))
            else:
                reason = reason or _no_agent(host, kind, printable(rest), useless)
        raise reason or _no_agent(host, "", "no agent after many answers", useless)
    except HostError as e:
        raise reason or e from e
    except (OSError, EOFError) as e:
        error = lost(host, e)
        error.hint = SESSION_ENDED
        raise reason or error from e


def _read_mark(host: str, channel: Channel) -> bytes:
    """Return the line behind the next MARK; what comes before it is the shell's own."""
    printed = b""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        channel.close()

    timer = threading.Timer(TIMEOUT, give_up)
    timer.daemon = True
    timer.start()
    try:
        while len(printed) < MAX_PRINTED:
            part = channel.read(1)  # what follows the line is the agent's
            if not part:
                if is_late.is_set():
                    raise _late(host)
                code = channel.exit_code(5.0)
                raise command_failed(host, printed, channel.stderr_tail(), code)
            printed += part
            if printed.endswith(b"\n") and MARK in printed:
                return printed[printed.rindex(MARK) + len(MARK) :]
    except (OSError, EOFError, HostError) as e:
        raise _late(host) if is_late.is_set() else e from e
    finally:
        timer.cancel()
    raise HostError(
        "the shell there prints without end before it runs a command",
        where=host,
        hint="look at ~/.bashrc, ~/.zshenv or /etc/profile.d there: they must not print",
    )


def _late(host: str) -> HostError:
    return HostError(
        f"no Python there has answered within {TIMEOUT:g} s",
        where=host,
        hint="an interpreter or the shell's startup files may hang there: look at the host entry's "
        "`python:`, and at ~/.bashrc",
    )


def _no_agent(host: str, kind: str, rest: str, useless: list[str]) -> HostError:
    tried = f" that works: {'; '.join(useless)}" if useless else ""
    errors = {
        "nopython": (
            f"no python3 there{tried}",
            "name one in the hosts file: `python: /path/to/python3` (3.8 or newer)",
        ),
        "relative": (
            f"safelaunch's folder there is not absolute: {rest}",
            "export SAFELAUNCH_HOME=/some/folder for that user",
        ),
    }
    unknown = f"its answer is not an agent's: {printable(f'{kind} {rest}'[:80])}"
    message, hint = errors.get(kind, (unknown, None))
    return HostError(message, where=host, hint=hint)
