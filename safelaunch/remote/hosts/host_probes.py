"""What a test of a host asks there, and what the answers mean."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.remote import agent_bootstrap
from safelaunch.runtime import backends, units
from safelaunch.runtime.packages import TRAINING
from safelaunch.ssh.keys import known_hosts
from safelaunch.ssh.keys.known_hosts import describe_key, without_fingerprint
from safelaunch.start.preflight import OLDEST_PYTHON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Interpreter
    from safelaunch.runtime.commands import CommandResult
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.connection import Connection

OK, WARN, FAIL = "ok", "warn", "fail"
_LITTLE = 2 << 30  # bytes free below which it is said
_CLOCKS_DIFFER = 2.0  # seconds: more confuses whoever compares logs, and Kerberos at 300

# Run by the agent's own Python, 3.8 or newer.
FOLDERS = """
import json, os, sys, tempfile
def look(path):
    path = at = os.path.expanduser(path)
    while not os.path.lexists(at) and os.path.dirname(at) != at:
        at = os.path.dirname(at)
    found = {"path": path, "at": at, "free": None, "error": None}
    try:
        info = os.statvfs(at)
        found["free"] = info.f_bavail * info.f_frsize
        with tempfile.TemporaryFile(dir=at) as file:
            file.write(bytes(65536))
    except OSError as e:
        found["error"] = e.strerror or str(e)
    return found
print(json.dumps([look(path) for path in sys.argv[1:]]))
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
    """A question to a host: `evidence` is its answer, `hint` what to do about it."""

    id: str
    status: str  # ok, warn, fail
    evidence: str
    hint: str | None = None


# -- the connection --------------------------------------------------------------------------------


def host_key(connection: Connection, user: LocalUser) -> HostProbe:
    """Tell the key that the host has shown, and where it is kept."""
    kind, blob = connection.host_key
    way = connection.target
    lines = known_hosts.read_entries((*way.known_hosts, *way.system_known_hosts))
    place = next((user.shown(line.where) for line in lines if line.blob == blob), None)
    if place is None:
        hint = f"it could not be kept in {way.known_hosts[0]}" if way.known_hosts else None
        return HostProbe(
            "host key", WARN, f"{describe_key(kind, blob)}, in no known_hosts file", hint
        )
    return HostProbe("host key", OK, f"{describe_key(kind, blob)}, in {place}")


def login(connection: Connection) -> HostProbe:
    """Tell what opened the door; a password would be asked for each time."""
    if "SHA256:" in connection.credential:
        return HostProbe("login", OK, f"with {without_fingerprint(connection.credential)}")
    if connection.credential.startswith("no proof"):
        return HostProbe("login", WARN, connection.credential)
    hint = f"safelaunch hosts add {connection.name} installs a key: it is the last time you type it"
    return HostProbe("login", WARN, f"with {connection.credential}, each time anew", hint)


def shell(connection: Connection) -> HostProbe:
    """Look what the login shell prints before a command: it gets in the way of scp and rsync."""
    with connection.exec("true") as channel:
        channel.close_stdin()
        out = b""
        while len(out) < agent_bootstrap.MOST_BEFORE and (part := channel.read(1 << 16)):
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
) -> tuple[HostProbe, dict[str, Any] | None]:
    """Judge what VERSIONS has said: of the entry's interpreter, or else of the agent's."""
    path = own.path if own else agents
    where = f"correct it in {own.origin}" if own else None
    lines = result.out.splitlines()
    if result.code != 0 or len(lines) < 2:  # noqa: PLR2004 - version and path
        why = result.last_line or f"exit code {result.code}"
        why = why.removeprefix(f"`{path}` cannot be run: ")
        return HostProbe("python", FAIL, f"{path} does not run: {why}", where), None
    number = {"path": lines[1] if not own else path, "version": lines[0]}
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if tuple(int(part) for part in lines[0].split(".")) < OLDEST_PYTHON:
        hint = where or "name a newer one in the hosts file: `python: /path/to/python3`"
        return HostProbe("python", FAIL, f"{path} is {lines[0]}; {oldest} is needed", hint), number
    found = ", ".join([f"{lines[0]}, {path}", *lines[2:]])
    if not own:
        found += " (the hosts file names none)"
    return HostProbe("python", OK, found), number


def bash(path: str | None) -> HostProbe:
    """Tell whether there is what runs a job's launch.sh."""
    if path is None:
        return HostProbe("bash", FAIL, "there is none", "install it: it runs a job's launch.sh")
    return HostProbe("bash", OK, path)


def tmux(result: CommandResult) -> HostProbe:
    """Tell what `tmux -V` has said."""
    why_not = backends.tmux.unusable(result)
    if why_not is None:
        return HostProbe("tmux", OK, result.out.strip())
    said = f"{why_not}: everything but `safelaunch attach` works without it"
    return HostProbe("tmux", WARN, said, "install tmux there to attach to jobs")


def workdir(said: str, found: dict[str, Any], *, given: bool) -> HostProbe:
    """Tell whether the project has a place; `said` is the one of the hosts file, if `given`."""
    check = folder("workdir", said if given else f"{said}/PROJECT", found)
    if check.status == FAIL:
        own = "change `workdir` in the hosts file, or"
        hint = f"{own if given else 'set `workdir` in the hosts file, or'} make room there"
        return check._replace(hint=hint)
    if given and found["at"] != found["path"]:
        return check._replace(evidence=f"{check.evidence}; is made at the first sync")
    return check


def runs(found: dict[str, Any]) -> HostProbe:
    """Tell whether runs have a place."""
    check = folder("runs", found["path"], found)
    if check.status == FAIL:
        hint = "make it writable for that user, or set SAFELAUNCH_HOME to another folder there"
        return check._replace(hint=hint)
    return check


def folder(what: str, shown: str, found: dict[str, Any]) -> HostProbe:
    """Tell what FOLDERS has found of a folder: written, and how much is free."""
    free = found["free"]
    room = f"{units.size(free)} free" if isinstance(free, int) else "free space unknown"
    if found["error"]:
        at = f" ({found['at']})" if found["at"] != found["path"] else ""
        said = f"{shown}{at} cannot be written: {found['error']}; {room}"
        return HostProbe(what, FAIL, said, "free some space, or ask who runs the machine")
    if isinstance(free, int) and free < _LITTLE:
        return HostProbe(what, WARN, f"{shown}, only {room}", "checkpoints will not fit")
    return HostProbe(what, OK, f"{shown}, {room}")


def clock(said: str, before: float, after: float) -> tuple[HostProbe, float | None]:
    """Compare the clocks: what is between asking and answer is the same, as far as is known."""
    try:
        now = float(said)
    except ValueError:
        return HostProbe("clock", WARN, f"it cannot be read: {said}"), None
    offset = min(0.0, now - before) + max(0.0, now - after)
    if not offset:
        return HostProbe("clock", OK, f"as here, to {after - before:.2f} s"), 0.0
    told = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this machine's"
    if abs(offset) < _CLOCKS_DIFFER:
        return HostProbe("clock", OK, told), round(offset, 3)
    hint = "set the clocks: `timedatectl` shows whether NTP runs"
    return HostProbe("clock", WARN, told, hint), round(offset, 3)


def cards(result: CommandResult) -> list[str]:
    """Return the names of the cards that `nvidia-smi -L` has told."""
    return re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", result.out, re.MULTILINE)


def gpus(
    result: CommandResult, names: Sequence[str], wanted: str | None, profile: str | None
) -> HostProbe:
    """Judge the cards; `wanted` is what the profile says of their names, None if it needs none."""
    if result.code == -1:
        hint = f"profile `{profile}` needs some" if wanted is not None else None
        return HostProbe("gpus", FAIL if hint else OK, "none: there is no nvidia-smi", hint)
    if result.code != 0 or not names:
        said = result.last_line or f"exit code {result.code}"
        hint = "the driver does not work: `nvidia-smi` and `dmesg` there say more"
        status = FAIL if wanted is not None else WARN
        return HostProbe("gpus", status, f"nvidia-smi says: {said}", hint)
    found = ", ".join(f"{count} x {name}" for name, count in Counter(names).items())
    if any(wanted and not re.fullmatch(wanted, name) for name in names):
        hint = f"is `{profile}` its profile? safelaunch profiles lists them"
        return HostProbe("gpus", WARN, found, hint)
    return HostProbe("gpus", OK, found)
