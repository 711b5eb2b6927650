"""Starts the agent on a host: one exec, by any Python 3.8 there; its files are put there once."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING, Protocol

from safelaunch import runtime
from safelaunch.errors import HostError
from safelaunch.remote.agent import Agent, Lost
from safelaunch.runtime.agent import READY
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = b"\0safelaunch "
MOST_BEFORE = 1 << 20  # bytes that a shell's startup files may print
# in this order, behind the host's and the job's own: what hosts have that give no PATH to an exec
PYTHONS = ("python3", "/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3")

# For the host's login shell, whichever it is: plain words in single quotes, no line break, no `!`.
_SHELL = (
    'b=$1; shift; for p do command -v "$p" >/dev/null 2>&1 && exec "$p" -I -S -B -c "$b"; done; '
    'printf "\\000safelaunch nopython\\n"'
)

# Any Python 3 must be able to run it up to its version check.
_BOOT = """
import os, sys
def say(text):
    os.write(1, b"\\0safelaunch " + text.encode("utf-8", "replace") + b"\\n")
def get(n):
    found = b""
    while len(found) < n:
        part = os.read(0, n - len(found))
        if not part:
            sys.exit(1)
        found += part
    return found
if sys.version_info < (3, 8):
    say("old %d.%d %s" % (sys.version_info[0], sys.version_info[1], sys.executable))
    sys.exit(1)
home = os.environ.get("SAFELAUNCH_HOME", "")
if not os.path.isabs(home):
    home = os.path.join(os.path.expanduser("~"), ".safelaunch")
folder = os.path.join(home, "agent", "HASH")
try:
    if os.path.isdir(folder):
        say("have")
    else:
        os.makedirs(os.path.join(home, "agent"), 0o700, exist_ok=True)
        say("need")
        import io, shutil, tempfile, zipfile
        data = get(int(get(10)))
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
import runpy
runpy.run_path(os.path.join(folder, "PLACE", "agent.py"), run_name="__main__")
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


def bundle() -> tuple[str, bytes]:
    """Return the hash of the runtime's files, and the files as a zip."""
    held, hashed = io.BytesIO(), hashlib.blake2b(digest_size=12)
    with zipfile.ZipFile(held, "w") as file:
        for name, path in sorted(runtime.files().items()):
            with open(path, "rb") as source:
                data = source.read()
            hashed.update(name.encode() + b"\0" + hashlib.blake2b(data).digest())
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return hashed.hexdigest(), held.getvalue()


def command(digest: str, pythons: Sequence[str]) -> str:
    """Return what a login shell is to run."""
    boot = _BOOT.replace("HASH", digest).replace("PLACE", runtime.PLACE)
    text = f'exec(bytes.fromhex("{boot.encode().hex()}"))'
    words = ["/bin/sh", "-c", _SHELL, "sh", text, *dict.fromkeys([*pythons, *PYTHONS])]
    return "exec " + " ".join(quote(word) for word in words)


def start(host: str, channel: Channel, files: bytes) -> Agent:
    """Return the agent behind a channel on which `command` runs. Raises HostError."""
    try:
        said = _await(host, channel, MARK).decode("utf-8", "replace").strip()
        if said == "need":
            channel.write(b"%010d" % len(files) + files)
        elif said != "have":
            raise _unusable(host, said)
        if _await(host, channel, MARK) != READY[len(MARK) :]:
            raise HostError("the agent did not start", where=host, hint=channel.stderr_tail())
    except (OSError, EOFError) as e:
        raise Lost(f"the connection was lost: {e}", where=host) from e
    return Agent(host, channel.read, channel.write)


def _await(host: str, channel: Channel, mark: bytes) -> bytes:
    """Return the line behind the next mark; what stands before it is the shell's own."""
    found = b""
    while len(found) < MOST_BEFORE:
        part = channel.read(1)  # what follows the line is the agent's
        if not part:
            raise _no_answer(host, channel, found)
        found += part
        if found.endswith(b"\n") and mark in found:
            return found[found.rindex(mark) + len(mark) :]
    raise HostError(
        "the shell there prints without end before it runs a command",
        where=host,
        hint="look at ~/.bashrc, ~/.zshenv or /etc/profile.d there: they must not print",
    )


def _no_answer(host: str, channel: Channel, printed: bytes) -> HostError:
    from safelaunch.ssh import explain  # noqa: PLC0415 - only where it failed

    code = channel.exit_code(5.0)
    return explain.no_answer(host, printed, channel.stderr_tail(), code)


def _unusable(host: str, said: str) -> HostError:
    kind, _, rest = said.partition(" ")
    if kind == "nopython":
        return HostError(
            "no python3 there",
            where=host,
            hint="name one in the hosts file: `python: /path/to/python3` (3.8 or newer)",
        )
    if kind == "old":
        return HostError(
            f"Python {rest} there is too old; 3.8 or newer is needed",
            where=host,
            hint="name a newer one in the hosts file: `python: /path/to/python3`",
        )
    if kind == "failed":
        return HostError(
            f"safelaunch's folder there cannot be written: {rest}",
            where=host,
            hint="free space or quota; or set SAFELAUNCH_HOME for that user to another folder",
        )
    return HostError(f"what came is no agent: {said[:80]}", where=host)
