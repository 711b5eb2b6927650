"""Starts the agent on a host: one exec, by any Python 3.8 there; its files are put there once."""

from __future__ import annotations

import hashlib
import io
import posixpath
import threading
from typing import TYPE_CHECKING, Protocol

from safelaunch import runtime
from safelaunch.errors import HostError
from safelaunch.remote.agent_client import Agent, lost
from safelaunch.runtime.agent import wire
from safelaunch.runtime.agent.server import READY
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MARK = b"\0safelaunch "
MOST_BEFORE = 1 << 20  # bytes that a shell's startup files may print
# in this order, behind the host's and the job's own: what hosts have that give no PATH to an exec
PYTHONS = (
    "python3",
    *(f"python3.{minor}" for minor in range(14, 7, -1)),
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
)
PATIENCE = 30.0  # seconds for a login shell, or for an interpreter: one that hangs is given up
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
# the files that it asks for: it is handed on.
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
folder = os.path.join(home, "agent", "HASH")
early = bytes.fromhex("EARLY")
try:
    if not os.path.isdir(folder):
        os.makedirs(os.path.join(home, "agent"), 0o700, exist_ok=True)
        say("need")
        import io, shutil, tempfile, zipfile
        while True:
            head = get(5)
            data = get(int.from_bytes(head[1:], "big"))
            if head[:1] == b"F":
                break
            early += head + data
        part = tempfile.mkdtemp(dir=os.path.dirname(folder))
        try:
            zipfile.ZipFile(io.BytesIO(data)).extractall(part)
            os.rename(part, folder)
        except OSError:
            shutil.rmtree(part, True)
            if not os.path.isdir(folder):
                raise
except OSError as e:
    say("failed %s: %s" % (e.strerror, e.filename or home))
    sys.exit(1)
sys.dont_write_bytecode = False
sys.path.insert(0, os.path.join(folder, "PLACE"))
from safelaunch.runtime.agent import server
server.main(early)
"""


class Channel(Protocol):
    """What a connection's `exec` gives."""

    def read(self, size: int) -> bytes:
        """Return up to so many bytes of stdout, none at its end."""

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it to stdin."""

    def stderr_tail(self) -> str:
        """Return the end of what was written to stderr."""

    def exit_code(self, timeout: float) -> int | None:
        """Return the exit code, None if there is none within the time."""

    def close(self) -> None:
        """Close it: who reads it has its end."""


def bundle() -> tuple[str, bytes]:
    """Return the hash of the runtime's files, and the files as a zip."""
    return digest(), files()


def digest() -> str:
    """Return the hash of the runtime's files."""
    hashed = hashlib.blake2b(digest_size=12)
    for name, data in _files():
        hashed.update(name.encode() + b"\0" + hashlib.blake2b(data).digest())
    return hashed.hexdigest()


def files() -> bytes:
    """Return the runtime's files as a zip."""
    import zipfile  # noqa: PLC0415 - once for each host and version

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        for name, data in _files():
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return held.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    for name, path in sorted(runtime.files().items()):
        with open(path, "rb") as source:
            yield name, source.read()


def command(digest: str, pythons: Sequence[str], early: bytes = b"") -> str:
    """Return what a login shell is to run; `early` are requests that the agent answers first."""
    place = posixpath.dirname(posixpath.dirname(runtime.PLACE))
    boot = _BOOT.replace("HASH", digest).replace("PLACE", place).replace("OLD", str(_TOO_OLD))
    boot = boot.replace("EARLY", early.hex())
    text = f'exec(bytes.fromhex("{boot.encode().hex()}"))'
    words = ["/bin/sh", "-c", _SHELL, "sh", text, *dict.fromkeys([*pythons, *PYTHONS])]
    return "exec " + " ".join(quote(word) for word in words)


def start(host: str, channel: Channel, data: bytes) -> Agent:
    """Return the agent behind a channel on which `command` runs, once it is there.

    `data` are the files that it may want. Raises HostError.
    """
    _greeted(host, channel, lambda: data)
    return Agent(host, channel.read, channel.write)


def start_agent(
    host: str, execute: Callable[[str], Channel], digest: str, pythons: Sequence[str]
) -> Agent:
    """Return an agent that is started once an answer is wanted, by `execute` of its command.

    What is asked first travels with the command. Where there is no agent, that raises HostError.
    """
    starting = _Starting(host, execute, digest, pythons)
    return Agent(host, starting.read, starting.write, starting.start, starting.greeted)


class _Starting:
    """A channel that is opened when it is needed."""

    def __init__(
        self, host: str, execute: Callable[[str], Channel], digest: str, pythons: Sequence[str]
    ) -> None:
        self._host = host
        self._execute = execute
        self._words = digest, pythons
        self._channel: Channel

    def start(self, early: bytes) -> None:
        self._channel = self._execute(command(*self._words, early))

    def greeted(self) -> None:
        _greeted(self._host, self._channel, files)

    def read(self, size: int) -> bytes:
        return self._channel.read(size)

    def write(self, data: bytes | memoryview) -> None:
        self._channel.write(data)


def _greeted(host: str, channel: Channel, made: Callable[[], bytes]) -> None:
    """Wait for the agent, and send its files where they are wanted. Raises HostError."""
    useless: list[str] = []
    try:
        while (line := _await(host, channel, MARK)) != READY[len(MARK) :]:
            kind, _, rest = line.decode("utf-8", "replace").strip().partition(" ")
            if kind == "need":
                wire.Link(channel.read, channel.write).files(made())
            elif kind == "useless":
                useless.append(rest)
            else:
                raise _unusable(host, kind, rest, useless)
    except (OSError, EOFError) as e:
        raise lost(host, e) from e


def _await(host: str, channel: Channel, mark: bytes) -> bytes:
    """Return the line behind the next mark; what stands before it is the shell's own."""
    found = b""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        channel.close()

    timer = threading.Timer(PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        while len(found) < MOST_BEFORE:
            part = channel.read(1)  # what follows the line is the agent's
            if not part:
                raise _late(host) if is_late.is_set() else _no_answer(host, channel, found)
            found += part
            if found.endswith(b"\n") and mark in found:
                return found[found.rindex(mark) + len(mark) :]
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
        f"no Python there has answered within {PATIENCE:g} s",
        where=host,
        hint="an interpreter or the shell's startup files may hang there: look at the host entry's "
        "`python:`, and at ~/.bashrc",
    )


def _no_answer(host: str, channel: Channel, printed: bytes) -> HostError:
    from safelaunch.ssh import errors  # noqa: PLC0415 - only where it failed

    code = channel.exit_code(5.0)
    return errors.command_failed(host, printed, channel.stderr_tail(), code)


def _unusable(host: str, kind: str, rest: str, useless: list[str]) -> HostError:
    if kind == "nopython":
        found = f" that will do: {'; '.join(useless)}" if useless else ""
        return HostError(
            f"no python3 there{found}",
            where=host,
            hint="name one in the hosts file: `python: /path/to/python3` (3.8 or newer)",
        )
    if kind == "relative":
        return HostError(
            f"safelaunch's folder there is not absolute: {rest}",
            where=host,
            hint="export SAFELAUNCH_HOME=/some/folder for that user",
        )
    if kind == "failed":
        return HostError(
            f"safelaunch's folder there cannot be written: {rest}",
            where=host,
            hint="free space or quota; or set SAFELAUNCH_HOME for that user to another folder",
        )
    return HostError(f"what came is no agent: {f'{kind} {rest}'[:80]}", where=host)
