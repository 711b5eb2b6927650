"""The facts of machines, asked on this one or over SSH, and saved."""

# ruff: noqa: PLC0415 - probe: it imports subprocess, 10 ms

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import ConfigError, HostError, StartError
from safelaunch.hostfacts import assemble
from safelaunch.hostfacts.saved import with_age
from safelaunch.remote.parallel import together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.hostfacts.saved import ProbeOptions, SavedFacts
    from safelaunch.remote.host_pool import HostPool

FRESH = 600.0  # seconds for which saved facts of a host are used


class ProbeResult(NamedTuple):
    """The facts of a machine, and the parts of the probe's answer that they were read from."""

    facts: dict[str, Any]
    parts: Mapping[str, Any]


def probe_local(
    saved: SavedFacts, options: ProbeOptions, environ: Mapping[str, str], **request: Any
) -> ProbeResult:
    """Probe this machine; `request` has further keys of the request. Raises StartError."""
    if sys.platform == "win32":
        raise StartError(
            "facts of a Windows machine cannot be read", hint="--host NAME asks a host"
        )
    from safelaunch.runtime.facts.probe import probe

    python = options.python or active_python(environ)
    answer = probe({"cwd": os.getcwd(), **request, "python": python, "deep": options.deep}, None)
    facts = assemble.from_probe(hosts_file.LOCAL, answer)
    if not request.get("quick"):
        saved.save(hosts_file.LOCAL, options, facts)
    return ProbeResult(facts, answer["parts"])


def probe_host(
    pool: HostPool, saved: SavedFacts, host: str, options: ProbeOptions, **request: Any
) -> ProbeResult:
    """Probe a host; `request` has further keys of the request. Raises HostError."""
    session = pool.session(host)
    interpreter = session.host.interpreter
    python = options.python or (interpreter.path if interpreter else None)
    cwd = None if session.host.workdir is None else str(session.host.workdir)
    words = {"cwd": cwd, **request, "python": python, "deep": options.deep}
    answer = pool.call(host, "facts.probe", **words)
    facts = assemble.from_probe(host, answer, round(pool.clock_offset(host), 3))
    saved.save(host, options, facts)
    return ProbeResult(facts, answer["parts"])


def local_facts(
    saved: SavedFacts, options: ProbeOptions, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the facts of this machine with their age. Raises StartError."""
    return with_age(probe_local(saved, options, environ).facts)


def facts_of_hosts(
    pool: HostPool,
    saved: SavedFacts,
    hosts: Sequence[str],
    options: ProbeOptions,
    *,
    refresh: bool,
) -> list[dict[str, Any] | HostError]:
    """Return the facts of hosts with their age, or why there are none; asked in parallel.

    Raises ConfigError.
    """
    if hosts_file.LOCAL in hosts:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine",
            hint="leave `--host` out: this machine is meant then",
        )

    def ask(host: str) -> dict[str, Any] | HostError:
        facts = None if refresh else saved.load(host, options, FRESH)
        if facts is not None:
            return with_age(facts)
        try:
            return with_age(probe_host(pool, saved, host, options).facts)
        except HostError as e:
            return e

    return together(ask, hosts)


def active_python(environ: Mapping[str, str]) -> str | None:
    """Return the interpreter of the active environment, or python3; None: safelaunch's own."""
    prefix = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
    candidate = os.path.join(prefix, "bin", "python") if prefix else None
    if candidate and os.access(candidate, os.X_OK):
        return candidate
    return shutil.which("python3")
