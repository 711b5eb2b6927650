"""`safelaunch report`: what maintainers ask for of a run, redacted, in one file to post."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from safelaunch.cli.completion import complete_run
from safelaunch.cli.connections import catalog
from safelaunch.cli.output import print_json, say
from safelaunch.cli.runs.failure_block import block
from safelaunch.cli.runs.follow import describe, fitted
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.hostfacts.saved import SavedFacts
from safelaunch.report import archive, bundle, collect
from safelaunch.report.redact.secret_patterns import is_secret, is_value
from safelaunch.runs import store
from safelaunch.runtime import units
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.report.collect import Part

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
    saved = SavedFacts(home)
    case = collect.collect_run(
        catalog().find(run), home, lambda host: saved.load(host or hosts_file.LOCAL)
    )
    made = bundle.make(
        case, _names(case.parts), describe(case.status), lambda failure: block(failure, _WIDTH)
    )
    path, size = _write(made, to, case.id)
    if as_json:
        print_json(_json(case.id, made, path, size))
    else:
        _tell(made, path, size)
    return 0


def _names(parts: Sequence[Part]) -> bundle.Names:
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


def _json(run_id: str, made: bundle.Bundle, path: str, size: int) -> dict[str, Any]:
    return {
        "version": 1,
        "id": run_id,
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
    counted = (
        ", ".join(quantity(count, _NAMES.get(kind, kind)) for kind, count in made.redacted.items())
        or "nothing"
    )
    click.echo(fitted(f"wrote {path} ({units.size(size)}); redacted: {counted}"))
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
