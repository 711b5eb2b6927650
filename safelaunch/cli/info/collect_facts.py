"""The facts of machines, asked here or over SSH, and those that are kept."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.cli.output import say
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError, HostError, StartError
from safelaunch.hostfacts import assemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.remote.host_pool import HostPool

FOLDER = "facts"
FRESH = 600.0  # seconds for which the facts of a host are not asked anew


class Wanted(NamedTuple):
    """How facts are asked: those of another interpreter are others."""

    python: str | None = None
    deep: bool = False


class Told(NamedTuple):
    """What a probe told: the facts, its parts as they came, and the questions of checks in them."""

    facts: dict[str, Any]
    parts: Mapping[str, Any]
    questions: Sequence[Question] = ()


def here(home: str, wanted: Wanted) -> dict[str, Any]:
    """Return the facts of this machine. Raises StartError."""
    return aged(probe_here(home, wanted).facts)


def there(
    home: str, names: Sequence[str], hosts_path: str | None, wanted: Wanted, *, refresh: bool
) -> tuple[list[dict[str, Any] | HostError], tuple[str, ...]]:
    """Return the facts of hosts, or why there are none, asked beside each other, and their names.

    Raises ConfigError.
    """
    from safelaunch.cli.connections import host_pool  # noqa: PLC0415 - for hosts only
    from safelaunch.remote.parallel import together  # noqa: PLC0415 - as above

    pool = host_pool(hosts_path)
    hosts = pool.expand(names)
    if hosts_file.LOCAL in hosts:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine",
            hint="leave `--host` out: this machine is meant then",
        )

    def ask(host: str) -> dict[str, Any] | HostError:
        found = None if refresh else kept(home, host, wanted=wanted, max_age=FRESH)
        if found is not None:
            return aged(found)
        try:
            return aged(probe_there(pool, home, host, wanted).facts)
        except HostError as e:
            return e

    return together(ask, hosts), hosts


def probe_here(home: str, wanted: Wanted, **request: Any) -> Told:
    """Ask this machine; `request` says more of what. Raises StartError."""
    if sys.platform == "win32":
        raise StartError("Windows tells no facts", hint="--host NAME asks a host")
    from safelaunch.runtime.facts import probe as asked  # noqa: PLC0415 - subprocess: 10 ms

    python = wanted.python or active()
    words = {"cwd": os.getcwd(), **request, "python": python, "deep": wanted.deep}
    told = asked.probe(words, None)
    found = assemble.from_probe(hosts_file.LOCAL, told)
    if not request.get("quick"):
        keep(home, hosts_file.LOCAL, wanted, found)
    return Told(found, told["parts"])


def active() -> str | None:
    """Return the interpreter of the active environment, or python3; None: safelaunch's own."""
    prefix = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    candidate = os.path.join(prefix, "bin", "python") if prefix else None
    if candidate and os.access(candidate, os.X_OK):
        return candidate
    return shutil.which("python3")


def probe_there(pool: HostPool, home: str, host: str, wanted: Wanted, **request: Any) -> Told:
    """Ask a host; `request` says more of what. Raises HostError."""
    session = pool.session(host)
    own = session.host.interpreter
    python = wanted.python or (own.path if own else None)
    cwd = None if session.host.workdir is None else str(session.host.workdir)
    words = {"cwd": cwd, **request, "python": python, "deep": wanted.deep}
    told = pool.call(host, "facts.probe", **words)
    found = assemble.from_probe(host, told, round(pool.clock_offset(host), 3))
    keep(home, host, wanted, found)
    return Told(found, told["parts"])


# -- keeping ---------------------------------------------------------------------------------------


def _file(home: str, host: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - 4 ms, not before a start

    return os.path.join(home, FOLDER, quote(host, safe="") + ".json")


def keep(home: str, host: str, wanted: Wanted, found: dict[str, Any]) -> None:
    """Write the facts of a host down, whole or not at all; a full disk keeps none."""
    path = _file(home, host)
    part = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            json.dump({"asked": wanted._asdict(), "at": time.time(), "facts": found}, file)
        os.replace(part, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(part)
        say(f"the facts of {host} are not kept: {e.strerror or e}")


def kept(
    home: str, host: str, *, wanted: Wanted | None = None, max_age: float | None = None
) -> dict[str, Any] | None:
    """Return what is kept of a host; `kept_at` is when it was asked. None: nothing, or too old.

    With `wanted` only what was asked in the same way.
    """
    try:
        with open(_file(home, host), encoding="utf-8") as file:
            found = json.load(file)
        age = time.time() - found["at"]
        is_same = wanted is None or found["asked"] == wanted._asdict()
        known: dict[str, Any] = {**found["facts"], "kept_at": found["at"]}
        is_read = known["version"] == assemble.VERSION
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    is_old = age < 0 or (max_age is not None and age >= max_age)
    return known if is_same and is_read and not is_old else None


def aged(found: dict[str, Any]) -> dict[str, Any]:
    """Return facts with their age in seconds, by the clock here."""
    at = found.pop("kept_at", None)
    return {**found, "age": 0.0 if at is None else round(max(0.0, time.time() - at), 1)}
