"""`safelaunch report`: what maintainers ask for of a run, redacted, in one file to post."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.info.collect_facts import kept as kept_facts
from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs import access
from safelaunch.cli.runs.failure_block import block
from safelaunch.cli.runs.follow import describe, fitted
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.errors import HostError
from safelaunch.report import archive, bundle, collect
from safelaunch.report.redact.secret_patterns import is_secret, is_value
from safelaunch.report.run_files import Here, There
from safelaunch.runs import mirror, store
from safelaunch.runtime import json_files

if TYPE_CHECKING:
    from safelaunch.report.collect import Part
    from safelaunch.report.run_files import Files
    from safelaunch.runs.store import Run

_WIDTH = 80
_SHOWN = 30  # files that are listed
_OWN = 8  # characters from which on the value of any variable of env_from is no common word
_NAMES = {"ip": "IP address", "mac": "MAC address", "email": "e-mail address", "gpu": "GPU id",
          "uuid": "UUID", "serial": "serial number", "guid": "GUID", "id": "machine id",
          "ssh-key": "SSH key"}  # fmt: skip


@click.command("report")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-o", "--output", "to", metavar="PATH", help="This .zip, or with DIR/ a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, to: str | None, as_json: bool) -> int:
    """Write what a bug report needs of a run into one .zip, with secrets and names redacted.

    What happened, versions, plan and variables with origins, events, head and tail of each log, how
    to reproduce it, and what was tried before. Nothing of the run is changed.
    """
    home = store.home(os.environ)
    found = store.find(home, run)
    status = access.judge(found)
    parts, missing = _parts(home, found)
    failure = store.failure(found, status)
    tried = [collect.recorded(one) for one in collect.earlier(home, found)]
    case = collect.Case(
        found.id, found.name, status, failure, tuple(parts), tuple(tried), tuple(missing)
    )
    made = bundle.make(case, _names(parts), describe(status), lambda told: block(told, _WIDTH))
    path, size = _write(made, to, found.id)
    if as_json:
        print_json(_json(found, made, path, size))
    else:
        _tell(made, path, size)
    return 0


# -- reading ---------------------------------------------------------------------------------------


def _parts(home: str, run: Run) -> tuple[list[Part], list[str]]:
    """Return the nodes of a run, from their hosts where it is on others, and what is missing."""
    at = mirror.pointer(run) if access.is_remote(run) else None
    places = {place.node: place for place in at.places} if at is not None else {}
    parts, missing = [], []
    for number in store.node_numbers(run):
        known = Here(os.path.join(run.folder, f"node-{number}"))
        place = places.get(number)
        host = place.host if place else _host(known.folder)
        files: Files = known
        if at is not None and place is not None:
            try:
                agent = access.looker(at.hosts_file).session(place.host).agent
                files = There(agent, run.id, number, place.run_dir)
            except HostError as e:
                missing.append(f"{place.host} does not answer ({e.message}): its logs are missing")
        facts = kept_facts(home, place.host if place else hosts_file.LOCAL)
        part, less = collect.part(number, host, files, facts, known)
        ahead = (store.mirrored(run, number) or {}).get("ahead")
        is_known = isinstance(ahead, (int, float))
        parts.append(part._replace(ahead=float(ahead) if is_known and ahead else 0.0))
        missing += [f"{host}: {one}" for one in less]
    return parts, missing


def _host(folder: str) -> str:
    run = json_files.read_json(os.path.join(folder, "run.json")) or {}
    status = json_files.read_json(os.path.join(folder, "status.json")) or {}
    return str(run.get("hostname") or status.get("hostname") or "localhost")


def _names(parts: list[Part]) -> bundle.Names:
    """Return what this machine knows of names: the user's, the homes, its own, secret variables."""
    environ = os.environ
    users = [environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    homes = [environ.get("HOME", ""), os.path.expanduser("~")]
    hosts = [environ.get("HOSTNAME", ""), environ.get("COMPUTERNAME", "")]
    if sys.platform != "win32":
        hosts.append(os.uname().nodename)
        with contextlib.suppress(ImportError, KeyError):
            import pwd  # noqa: PLC0415 - not on Windows

            own = pwd.getpwuid(os.getuid())
            users.append(own.pw_name)
            homes.append(own.pw_dir)
    asked = {name for part in parts for name in _env_from(part)}
    values = [
        environ[name]
        for name in sorted(environ)
        if (is_secret(name) and is_value(name, environ[name]))
        or (name in asked and len(environ[name]) >= _OWN)
    ]
    return bundle.Names(
        tuple(filter(None, users)),
        tuple(filter(None, homes)),
        tuple(filter(None, hosts)),
        tuple(values),
    )


def _env_from(part: Part) -> list[str]:
    """Return the variables that a plan takes from the caller's environment: it says no values."""
    nodes = part.of("plan.json").get("nodes")
    found = []
    for node in nodes if isinstance(nodes, list) else ():
        env = node.get("env") if isinstance(node, dict) else None
        for name, told in env.items() if isinstance(env, dict) else ():
            if isinstance(told, dict) and told.get("origin") == "env_from":
                found.append(str(name))
    return found


# -- telling ---------------------------------------------------------------------------------------


def _write(made: bundle.Bundle, to: str | None, run_id: str) -> tuple[str, int]:
    if to is None:
        path = archive.free_name("", run_id, os.listdir("."))
        return path, archive.write_zip(made.files, path)
    if to.endswith(("/", os.sep)) or os.path.isdir(to):
        return to, archive.write_folder(made.files, to)
    return to, archive.write_zip(made.files, to)


def _json(run: Run, made: bundle.Bundle, path: str, size: int) -> dict[str, Any]:
    return {
        "version": 1,
        "id": run.id,
        "path": os.path.abspath(path),
        "size": size,
        "files": [
            {"name": name, "size": len(data), "about": made.about.get(name, "")}
            for name, data in made.files.items()
        ],
        "redacted": made.redacted,
        "missing": list(made.missing),
        "left_out": list(made.left_out),
    }


def _tell(made: bundle.Bundle, path: str, size: int) -> None:
    counted = ", ".join(_counted(*one) for one in made.redacted.items()) or "nothing"
    click.echo(fitted(f"wrote {path} ({_size(size)}); redacted: {counted}"))
    names = list(made.files)
    width = max(len(name) for name in names[:_SHOWN])
    for name in names[:_SHOWN]:
        text = f"  {name:<{width}}  {made.about.get(name, '')}"
        click.echo(text if len(text) <= _WIDTH else f"  {name}\n      {made.about.get(name, '')}")
    if len(names) > _SHOWN:
        click.echo(f"  and {len(names) - _SHOWN} more")
    for label, notes in (("missing", made.missing), ("left out", made.left_out)):
        for note in notes:
            click.echo(fitted(f"{label}: {note}"))
    say(
        fitted("look through it before you post it: redaction knows many forms of secrets, not all")
    )


def _counted(kind: str, count: int) -> str:
    name = _NAMES.get(kind, kind)
    return f"{count} {name}" + ("" if count == 1 else "es" if name.endswith("s") else "s")


def _size(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
