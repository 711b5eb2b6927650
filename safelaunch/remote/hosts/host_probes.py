"""The questions of a test of a host, and what its answers mean."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.remote import agent_bootstrap
from safelaunch.runtime import backends, units
from safelaunch.runtime.packages import TRAINING
from safelaunch.ssh.errors import SHARE_LOGIN
from safelaunch.ssh.keys.known_hosts import without_fingerprint
from safelaunch.ssh.prompt import is_typed
from safelaunch.start.preflight import OLDEST_PYTHON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Interpreter
    from safelaunch.runtime.commands import CommandResult
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.connection import Connection

OK, WARN, FAIL = "ok", "warn", "fail"
_LITTLE = 2 << 30  # bytes free below which a folder gets a warning
_CLOCKS_DIFFER = 2.0  # seconds: more confuses a comparison of logs, and Kerberos at 300

# Run by the agent's own Python, 3.8 or newer.
FOLDERS = """
import json, os, sys, tempfile
def probe(path):
    path = at = os.path.expanduser(path)
    while not os.path.lexists(at) and os.path.dirname(at) != at:
        at = os.path.dirname(at)
    answer = {"path": path, "at": at, "free": None, "error": None}
    try:
        info = os.statvfs(at)
        answer["free"] = info.f_bavail * info.f_frsize
        with tempfile.TemporaryFile(dir=at) as file:
            file.write(bytes(65536))
    except OSError as e:
        answer["error"] = e.strerror or str(e)
    return answer
print(json.dumps([probe(path) for path in sys.argv[1:]]))
"""
TIME = "import time; print(repr(time.time()))"
VERSIONS = f"""
import sys
print("%d.%d.%d" % sys.version_info[:3])
print(sys.executable)
try:
    from importlib import metadata
    for name in {TRAINING[:2]}:
        try:
            print(name + " " + metadata.version(name))
        except metadata.PackageNotFoundError:
            pass
except ImportError:
    pass
"""


class HostProbe(NamedTuple):
    """The result of a question to a host: its evidence, and a hint what to do about it."""

    id: str
    status: str  # ok, warn, fail
    evidence: str
    hint: str | None = None


class FolderAnswer(NamedTuple):
    """What FOLDERS prints of a folder: the nearest one that exists, its free bytes, an error."""

    path: str
    at: str
    free: int | None
    error: str | None


# -- the connection --------------------------------------------------------------------------------


def host_key(connection: Connection, user: LocalUser) -> HostProbe:
    """Return the host's key, and the known_hosts file that has it."""
    key, target = connection.host_key, connection.target
    if key is None:
        return HostProbe("host key", OK, "checked by the login that ssh shares")
    if key.where is not None:
        return HostProbe("host key", OK, f"{key.description}, in {user.shown(key.where)}")
    hint = f"it could not be added to {target.known_hosts[0]}" if target.known_hosts else None
    return HostProbe("host key", WARN, f"{key.description}, in no known_hosts file", hint)


def login(connection: Connection) -> HostProbe:
    """Return what the login used; a password would be asked for each time."""
    used = connection.credential
    if used.startswith("no proof"):
        return HostProbe("login", WARN, used)
    shown = f"with {without_fingerprint(used)}"
    if not is_typed(used):
        return HostProbe("login", OK, shown)
    hint = f"safelaunch hosts add {connection.name} installs a key: it is the last time you type it"
    hint = SHARE_LOGIN if "SHA256:" in used else hint
    return HostProbe("login", WARN, f"{shown}, asked each time", hint)


def shell(connection: Connection) -> HostProbe:
    """Return what the login shell prints before a command: it breaks scp and rsync."""
    with connection.exec("true") as channel:
        channel.close_stdin()
        out = b""
        while len(out) < agent_bootstrap.MAX_PRINTED and (part := channel.read(1 << 16)):
            out += part
    if not out:
        return HostProbe("shell", OK, "prints nothing of its own")
    lines = [line for line in out.decode("utf-8", "replace").splitlines() if line.strip()]
    first = lines[0].strip()[:40] if lines else "blanks"
    return HostProbe(
        "shell",
        WARN,
        f"prints {len(out)} bytes before each command: {first!r}",
        "safelaunch reads over them, scp and rsync do not. In ~/.bashrc, ~/.zshenv or /etc/profile "
        "there, print only where there is a terminal: [ -t 1 ] && ...",
    )


# -- the machine -----------------------------------------------------------------------------------


def python(
    result: CommandResult, own: Interpreter | None, agents: str
) -> tuple[HostProbe, dict[str, str] | None]:
    """Return what VERSIONS printed: of the entry's interpreter, or else of the agent's."""
    path = str(own.path) if own else agents
    where = f"correct it in {own.origin}" if own else None
    version, *rest = result.out.splitlines() or [""]
    if result.code != 0 or not rest:
        why = result.last_line or f"exit code {result.code}"
        why = why.removeprefix(f"`{path}` cannot be run: ")
        return HostProbe("python", FAIL, f"{path} does not run: {why}", where), None
    number = {"path": path if own else rest[0], "version": version}
    if tuple(int(part) for part in version.split(".")) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        hint = where or "name a newer one in the hosts file: `python: /path/to/python3`"
        return HostProbe("python", FAIL, f"{path} is {version}; {oldest} is needed", hint), number
    evidence = ", ".join([version, path, *rest[1:]])
    if not own:
        evidence += " (the hosts file names none)"
    return HostProbe("python", OK, evidence), number


def bash(path: str | None) -> HostProbe:
    """Return whether the program that runs a job's launch.sh is installed."""
    if path is None:
        return HostProbe("bash", FAIL, "not found", "install it: it runs a job's launch.sh")
    return HostProbe("bash", OK, path)


def tmux(result: CommandResult) -> HostProbe:
    """Return what `tmux -V` printed."""
    why_not = backends.tmux.unusable(result)
    if why_not is None:
        return HostProbe("tmux", OK, result.out.strip())
    evidence = f"{why_not}: everything but `safelaunch attach` works without it"
    return HostProbe("tmux", WARN, evidence, "install tmux there to attach to jobs")


def workdir(path: str, answer: FolderAnswer, *, is_set: bool) -> HostProbe:
    """Return whether projects can be stored: in `path`, or with `is_set` in just that folder."""
    hint = f"{'change' if is_set else 'set'} `workdir` in the hosts file, or make room there"
    probe = _folder("workdir", path if is_set else f"{path}/PROJECT", answer, hint)
    if is_set and answer.at != answer.path and probe.status != FAIL:
        return probe._replace(evidence=f"{probe.evidence}; is made at the first sync")
    return probe


def runs(answer: FolderAnswer) -> HostProbe:
    """Return whether runs can be stored."""
    hint = "make it writable for that user, or set SAFELAUNCH_HOME to another folder there"
    return _folder("runs", answer.path, answer, hint)


def _folder(name: str, shown: str, answer: FolderAnswer, hint: str) -> HostProbe:
    """Return whether a folder can be written, and how much space is free."""
    room = "free space unknown" if answer.free is None else f"{units.size(answer.free)} free"
    if answer.error:
        at = f" ({answer.at})" if answer.at != answer.path else ""
        evidence = f"{shown}{at} cannot be written: {answer.error}; {room}"
        return HostProbe(name, FAIL, evidence, hint)
    if answer.free is not None and answer.free < _LITTLE:
        return HostProbe(name, WARN, f"{shown}, only {room}", "checkpoints will not fit")
    return HostProbe(name, OK, f"{shown}, {room}")


def clock(text: str, before: float, after: float) -> tuple[HostProbe, float | None]:
    """Compare the clocks; a difference within the time of the question counts as none."""
    try:
        now = float(text)
    except ValueError:
        return HostProbe("clock", WARN, f"it cannot be read: {text}"), None
    offset = min(0.0, now - before) + max(0.0, now - after)
    if not offset:
        return HostProbe("clock", OK, f"as on this machine, within {after - before:.2f} s"), 0.0
    evidence = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this machine's"
    if abs(offset) < _CLOCKS_DIFFER:
        return HostProbe("clock", OK, evidence), round(offset, 3)
    hint = "set the clocks: `timedatectl` shows whether NTP runs"
    return HostProbe("clock", WARN, evidence, hint), round(offset, 3)


def gpu_names(result: CommandResult) -> list[str]:
    """Return the names of the GPUs that `nvidia-smi -L` lists."""
    return re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", result.out, re.MULTILINE)


def gpus(
    result: CommandResult, names: Sequence[str], expected: str | None, profile: str | None
) -> HostProbe:
    """Compare the GPUs with the pattern that the profile expects; None where it needs no GPUs."""
    if result.code == -1:
        hint = f"profile `{profile}` needs GPUs" if expected is not None else None
        return HostProbe("gpus", FAIL if hint else OK, "none: there is no nvidia-smi", hint)
    if result.code != 0 or not names:
        evidence = f"nvidia-smi says: {result.last_line or f'exit code {result.code}'}"
        hint = "the driver does not work: `nvidia-smi` and `dmesg` there say more"
        return HostProbe("gpus", FAIL if expected is not None else WARN, evidence, hint)
    evidence = ", ".join(f"{count} x {name}" for name, count in Counter(names).items())
    if any(expected and not re.fullmatch(expected, name) for name in names):
        hint = f"is `{profile}` its profile? safelaunch profiles lists them"
        return HostProbe("gpus", WARN, evidence, hint)
    return HostProbe("gpus", OK, evidence)
