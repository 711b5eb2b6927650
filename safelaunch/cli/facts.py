"""`safelaunch facts`: what a host has, as the job's interpreter sees it there."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from safelaunch import runs
from safelaunch.cli import print_json, say, warn
from safelaunch.cli.facts_shown import lines
from safelaunch.cli.looking import looker
from safelaunch.config import hosts as hosts_file
from safelaunch.errors import ConfigError, HostError, StartError
from safelaunch.hostfacts import facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.look import Looker

FOLDER = "facts"
FRESH = 600.0  # seconds for which the facts of a host are not asked anew
_UNREACHABLE = 4  # exit code
_CLOCKS = 3  # looks at a host's clock: the quickest one tells most


@click.command("facts")
@click.option(
    "--host", "names", multiple=True, metavar="NAME", help="A host or group (again for more)."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option(
    "--python", metavar="PATH", help="The job's interpreter there, instead of the host entry's."
)
@click.option("--deep", is_flag=True, help="Import torch as well, and let it tell of itself.")
@click.option("--refresh", is_flag=True, help="Ask now, also where it was asked lately.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    names: tuple[str, ...],
    hosts_path: str | None,
    python: str | None,
    deep: bool,
    refresh: bool,
    as_json: bool,
) -> int:
    """Show what this machine, or hosts, have: cards, memory, disks, network, Python, torch, NCCL.

    Nothing is changed there. What is asked of a host is kept for ten minutes; --refresh asks anew.
    """
    home = runs.home(os.environ)
    wanted = {"python": python, "deep": deep}
    if not names:
        found: list[dict[str, Any] | HostError] = [_here(home, wanted)]
        hosts: Sequence[str] = (hosts_file.LOCAL,)
    else:
        found, hosts = _there(home, names, hosts_path, wanted, refresh=refresh)
    if as_json:
        pairs = zip(hosts, found, strict=True)
        print_json({"version": 1, "hosts": [_json(host, one) for host, one in pairs]})
    else:
        _show(hosts, found)
    return _UNREACHABLE if any(isinstance(one, HostError) for one in found) else 0


def _json(host: str, found: dict[str, Any] | HostError) -> dict[str, Any]:
    if isinstance(found, HostError):
        return {"host": host, "error": str(found), "hint": found.hint}
    return found


def _show(hosts: Sequence[str], found: Sequence[dict[str, Any] | HostError]) -> None:
    width = min(shutil.get_terminal_size((80, 24)).columns, 120)
    is_first = True
    for host, one in zip(hosts, found, strict=True):
        if isinstance(one, HostError):
            warn(f"{host}: {one.message}" + (f"; {one.hint}" if one.hint else ""))
            continue
        if not is_first:
            click.echo()
        is_first = False
        for line in lines(one, width):
            click.echo(line)


# -- asking ----------------------------------------------------------------------------------------


def _here(home: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of this machine. Raises StartError."""
    if sys.platform == "win32":
        raise StartError("Windows tells no facts", hint="safelaunch facts --host NAME asks a host")
    from safelaunch.runtime import facts as asked  # noqa: PLC0415 - subprocess: 10 ms

    python = wanted["python"] or _active()
    told = asked.probe({**wanted, "python": python, "cwd": os.getcwd()}, None)
    found = facts.from_probe(hosts_file.LOCAL, told)
    _keep(home, hosts_file.LOCAL, wanted, found)
    return _aged(found)


def _active() -> str | None:
    """Return the interpreter of the active environment, or python3; None: safelaunch's own."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    candidate = os.path.join(active, "bin", "python") if active else None
    if candidate and os.access(candidate, os.X_OK):
        return candidate
    return shutil.which("python3")


def _there(
    home: str,
    names: Sequence[str],
    hosts_path: str | None,
    wanted: dict[str, Any],
    *,
    refresh: bool,
) -> tuple[list[dict[str, Any] | HostError], tuple[str, ...]]:
    """Return the facts of hosts, or why there are none, asked beside each other, and their names.

    Raises ConfigError.
    """
    from safelaunch.remote.together import together  # noqa: PLC0415 - for hosts only

    one = looker(hosts_path)
    hosts = one.expand(names)
    if hosts_file.LOCAL in hosts:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine",
            hint="safelaunch facts, without --host, asks it",
        )

    def ask(host: str) -> dict[str, Any] | HostError:
        kept = None if refresh else _kept(home, host, wanted)
        if kept is not None:
            return _aged(kept)
        try:
            found = _ask(one, host, wanted)
        except HostError as e:
            return e
        _keep(home, host, wanted, found)
        return _aged(found)

    return together(ask, hosts), hosts


def _ask(one: Looker, host: str, wanted: dict[str, Any]) -> dict[str, Any]:
    session = one.session(host)
    own = session.host.interpreter
    python = wanted["python"] or (own.path if own else None)
    cwd = None if session.host.workdir is None else str(session.host.workdir)
    told = one.call(host, "facts.probe", **{**wanted, "python": python, "cwd": cwd})
    return facts.from_probe(host, told, _offset(one, host))


def _offset(one: Looker, host: str) -> float | None:
    """Return how far a host's clock is ahead, as exactly as the way there lets it be told."""
    best: tuple[float, float] | None = None
    for _ in range(_CLOCKS):
        begun = time.time()
        now = one.call(host, "begin.clock").get("now")
        ended = time.time()
        if isinstance(now, (int, float)) and (best is None or ended - begun < best[0]):
            best = ended - begun, now - (begun + ended) / 2
    return None if best is None else round(best[1], 3)


# -- keeping ---------------------------------------------------------------------------------------


def _file(home: str, host: str) -> str:
    return os.path.join(home, FOLDER, quote(host, safe="") + ".json")


def _keep(home: str, host: str, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Write the facts of a host down, whole or not at all; a full disk keeps none."""
    path = _file(home, host)
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            json.dump({"asked": wanted, "at": time.time(), "facts": found}, file)
        os.replace(part, path)
    except OSError as e:
        say(f"the facts of {host} are not kept: {e.strerror or e}")


def _kept(home: str, host: str, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return facts of a host that are fresh, and were asked in the same way."""
    try:
        with open(_file(home, host), encoding="utf-8") as file:
            kept = json.load(file)
        age = time.time() - kept["at"]
        is_same = kept["asked"] == wanted and kept["facts"]["version"] == facts.VERSION
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not is_same or not 0 <= age < FRESH:
        return None
    found: dict[str, Any] = {**kept["facts"], "kept_at": kept["at"]}
    return found


def _aged(found: dict[str, Any]) -> dict[str, Any]:
    """Return facts with their age in seconds, by the clock here."""
    at = found.pop("kept_at", None)
    return {**found, "age": 0.0 if at is None else round(max(0.0, time.time() - at), 1)}
