"""`safelaunch report`: writes a redacted bundle of a run for a bug report."""

# ruff: noqa: PLC0415 - pwd: not on Windows

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
from safelaunch.cli.runs.follow import describe, fold
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.hostfacts.saved import SavedFacts
from safelaunch.report import archive, bundle, collect
from safelaunch.report.redact.secret_patterns import is_secret, is_value
from safelaunch.runs import store
from safelaunch.runtime import units
from safelaunch.runtime.records import PlanRecord
from safelaunch.runtime.units import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.report.collect import CollectedNode

_WIDTH = 80
_MAX_FILES = 30  # listed
# characters; a shorter value of a variable in env_from may be a common word
_MIN_VALUE_LENGTH = 8
_KIND_NAMES = {"ip": "IP address", "mac": "MAC address", "email": "e-mail address", "gpu": "GPU id",
          "uuid": "UUID", "serial": "serial number", "guid": "GUID", "id": "machine id",
          "ssh-key": "SSH key"}  # fmt: skip


@click.command("report")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("-o", "--output", metavar="PATH", help="Path of the .zip, or DIR/ for a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str | None, output: str | None, as_json: bool) -> int:
    """Write a bug report of a run into one .zip, with secrets and names redacted.

    It has the failure, versions, plan and variables with origins, events, head and tail of each
    log, how to reproduce it, and earlier attempts. The run is not changed.
    """
    home = store.home(os.environ)
    saved = SavedFacts(home)
    collected = collect.collect_run(
        catalog().find(run), home, lambda host: saved.load(host or hosts_file.LOCAL)
    )
    bundle_data = bundle.make_bundle(
        collected,
        _names(collected.nodes),
        describe(collected.status),
        lambda failure: block(failure, _WIDTH),
    )
    path = archive.free_name("", collected.id, os.listdir(".")) if output is None else output
    is_folder = output is not None and (output.endswith(("/", os.sep)) or os.path.isdir(output))
    size = (archive.write_folder if is_folder else archive.write_zip)(bundle_data.files, path)
    if as_json:
        print_json(_json(collected.id, bundle_data, path, size))
    else:
        _print_summary(bundle_data, path, size)
    return 0


def _names(nodes: Sequence[CollectedNode]) -> bundle.KnownNames:
    """Return the names and secrets of this machine: users, homes, hosts, secret variables."""
    environ = os.environ
    users = [environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")]
    homes = [environ.get("HOME", ""), os.path.expanduser("~")]
    hosts = [environ.get("HOSTNAME", ""), environ.get("COMPUTERNAME", "")]
    if sys.platform != "win32":
        hosts.append(os.uname().nodename)
        with contextlib.suppress(ImportError, KeyError):
            import pwd

            account = pwd.getpwuid(os.getuid())
            users.append(account.pw_name)
            homes.append(account.pw_dir)
    forwarded = {name for node in nodes for name in _env_from(node)}
    values = [
        environ[name]
        for name in sorted(environ)
        if (is_secret(name) and is_value(name, environ[name]))
        or (name in forwarded and len(environ[name]) >= _MIN_VALUE_LENGTH)
    ]
    users, homes, hosts = (list(filter(None, names)) for names in (users, homes, hosts))
    return bundle.KnownNames(tuple(users), tuple(homes), tuple(hosts), tuple(values))


def _env_from(node: CollectedNode) -> list[str]:
    """Return the variables that a plan takes from the environment of the caller, without values."""
    plan = node.record(PlanRecord) or PlanRecord()
    variables = [item for planned in plan.nodes for item in planned.env.items()]
    return [name for name, variable in variables if variable.origin == "env_from"]


# -- output ---------------------------------------------------------------------------------------


def _json(run_id: str, bundle_data: bundle.Bundle, path: str, size: int) -> dict[str, Any]:
    return {
        "version": 1,
        "id": run_id,
        "path": os.path.abspath(path),
        "size": size,
        "files": [
            {"name": name, "size": len(data), "about": bundle_data.about.get(name, "")}
            for name, data in bundle_data.files.items()
        ],
        "redacted": bundle_data.redacted,
        "missing": list(bundle_data.missing),
        "left_out": list(bundle_data.left_out),
    }


def _print_summary(bundle_data: bundle.Bundle, path: str, size: int) -> None:
    counts = [quantity(n, _KIND_NAMES.get(kind, kind)) for kind, n in bundle_data.redacted.items()]
    redacted = ", ".join(counts) or "nothing"
    click.echo(fold(f"wrote {path} ({units.size(size)}); redacted: {redacted}"))
    names = list(bundle_data.files)
    width = max(len(name) for name in names[:_MAX_FILES])
    for name in names[:_MAX_FILES]:
        about = bundle_data.about.get(name, "")
        text = f"  {name:<{width}}  {about}"
        click.echo(text if len(text) <= _WIDTH else f"  {name}\n      {about}")
    if len(names) > _MAX_FILES:
        click.echo(f"  and {len(names) - _MAX_FILES} more")
    for label, notes in (("missing", bundle_data.missing), ("left out", bundle_data.left_out)):
        for note in notes:
            click.echo(fold(f"{label}: {note}"))
    say(fold("read it before you post it: redaction finds many forms of secrets, not all"))
