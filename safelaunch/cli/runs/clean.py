"""`safelaunch clean`: removes copies of projects, of ended runs, and of the runtime on hosts."""

# ruff: noqa: PLC0415 - what talks to hosts: `--help` does without its 30 ms

from __future__ import annotations

import os
from typing import Any

import click

from safelaunch.cli.connections import host_pool
from safelaunch.cli.output import print_json, report, say
from safelaunch.errors import HostError
from safelaunch.runs import mirror, store
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.records import RunRecord
from safelaunch.runtime.start import runtime_copy
from safelaunch.runtime.units import quantity, transfer_size

_REASONS = {
    "living": "the run has not ended",
    "resume": "the run has not succeeded, and may be resumed; --all removes it",
}
_SHOWN = 3  # files by name


@click.command("clean")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Host to clean, of all clients."
)
@click.option("--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own.")
@click.option("--all", "-a", "remove_all", is_flag=True, help="Also those that may be resumed.")
@click.option("--force", is_flag=True, help="Also those with files that are nowhere else.")
@click.option("--dry-run", is_flag=True, help="Remove nothing, and show what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(hosts: tuple[str, ...], hosts_path: str | None, **options: Any) -> int:
    """Remove the copies of projects that ended runs have on their hosts, and of old versions.

    A run gets a copy where another one uses the project's folder, or where `rerun` needs older
    code. What it has made on a host is moved into that folder first. By default the hosts of the
    runs that this machine has started are asked, and this machine is cleaned.
    """
    from safelaunch.remote.parallel import together

    by_file = {hosts_path: list(hosts)} if hosts else _own_hosts()
    pools = {path: host_pool(path) for path in by_file}
    pairs = [(pools[p], name) for p, names in by_file.items() for name in pools[p].expand(names)]
    request = {"all": options["remove_all"], "force": options["force"]}
    request["dry_run"] = options["dry_run"]

    def ask(pair: Any) -> Any:
        pool, host = pair
        try:
            trees = pool.call(host, "trees.clean", **request)["trees"]
            return trees, pool.call(host, "start.sweep", dry_run=request["dry_run"])["copies"]
        except HostError as e:
            return e

    answers = together(ask, pairs) if pairs else []
    rows = [
        {"host": host, **row}
        for (_, host), answer in zip(pairs, answers, strict=True)
        for row in ([] if isinstance(answer, HostError) else answer[0])
    ]
    own = [] if hosts else _own_copies(is_dry=options["dry_run"])
    rows += [] if hosts else _own_trees(options)
    packs, size = (0, 0) if hosts else _own_contents(is_dry=options["dry_run"])
    copies = own + [
        {"host": host, "folder": printable(folder)}
        for (_, host), answer in zip(pairs, answers, strict=True)
        for folder in ([] if isinstance(answer, HostError) else answer[1])
    ]
    if options["as_json"]:
        contents = {"packs": packs, "size": size}
        print_json({"version": 1, "trees": rows, "copies": copies, "contents": contents})
    for row in () if options["as_json"] else rows:
        click.echo(_line(row, is_dry=options["dry_run"]))
    for copy in () if options["as_json"] else copies:
        verb = "would be removed" if options["dry_run"] else "removed"
        click.echo(f"{copy['host']}:{copy['folder']}: {verb} (an earlier version of safelaunch)")
    if packs and not options["as_json"]:
        verb = "would be removed" if options["dry_run"] else "removed"
        click.echo(f"stored code that no recorded run uses: {verb} ({transfer_size(size)})")
    errors = [answer for answer in answers if isinstance(answer, HostError)]
    for error in errors:
        report(error)
    if not rows and not copies and not packs and not errors and not options["as_json"]:
        say("no run has a copy of a project on " + (", ".join(n for _, n in pairs) or "any host"))
    return errors[0].exit_code if errors else 0


def _own_hosts() -> dict[str | None, list[str]]:
    """Return {hosts file: names} of the hosts on which runs of this machine had a copy."""
    hosts: dict[str | None, list[str]] = {}
    for run in store.all_runs(store.home(os.environ)):
        pointer = mirror.pointer(run)
        for place in () if pointer is None else pointer.places:
            record = RunRecord.read(store.node_dir(run, place.node))
            if pointer is not None and record is not None and record.tree:
                hosts.setdefault(pointer.hosts_file, []).append(place.host)
    return {path: list(dict.fromkeys(names)) for path, names in hosts.items()}


def _own_copies(*, is_dry: bool) -> list[dict[str, str]]:
    """Return the copies of the runtime on this machine that nobody uses; removes them."""
    home = store.home(os.environ)
    folders = runtime_copy.unused(home, 0.0)
    if not is_dry:
        runtime_copy.sweep(home, 0.0)
    return [{"host": "localhost", "folder": folder} for folder in folders]


def _own_trees(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the copies of projects that `rerun` has made on this machine; removes them."""
    from safelaunch.start.code.clean_code import clean_trees

    trees = clean_trees(
        store.home(os.environ),
        remove_all=options["remove_all"],
        force=options["force"],
        is_dry=options["dry_run"],
    )
    return [{"host": "localhost", **row} for row in trees]


def _own_contents(*, is_dry: bool) -> tuple[int, int]:
    """Return number and bytes of the packs of code that no run here has; removes them."""
    from safelaunch.start.code.clean_code import clean_contents

    return clean_contents(store.home(os.environ), is_dry=is_dry)


def _line(row: dict[str, Any], *, is_dry: bool) -> str:
    tree = f"{row['host']}:{printable(row['tree'])}"
    if not row["kept"]:
        verb = "would be removed" if is_dry else "removed"
        return f"{tree}: {verb} ({transfer_size(row['size'])})"
    if row["kept"] == "files":
        names = ", ".join(map(printable, row["files"][:_SHOWN]))
        count = quantity(len(row["files"]) + row["more_files"], "file")
        return f"{tree}: kept: {count} nowhere else: {names}; --force removes it"
    return f"{tree}: kept: {_REASONS.get(row['kept'], row['kept'])}"
