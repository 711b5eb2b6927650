"""`safelaunch hosts`: the user's machines: which there are, whether they work, and a new one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli.output import print_json, say, wrap
from safelaunch.cli.table import width
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.reader import file_of
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.runs import store
from safelaunch.ssh.config import reader as ssh_config
from safelaunch.ssh.config.local_user import current_user
from safelaunch.ssh.config.target import format_route, resolve_target

if TYPE_CHECKING:
    from safelaunch.model import Host
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.config.target import Target

_GAP = "  "
_hosts = click.option(
    "--hosts", "hosts_path", metavar="FILE", help="Hosts file, instead of your own."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def complete_host(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    """Return the hosts and groups of the user's file."""
    try:
        hosts = hosts_file.load_own(store.home(os.environ))
    except ConfigError:
        return []
    return [name for name in (*hosts.machines, *hosts.groups) if name.startswith(begun)]


class _Group(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a host's name in its place gets a hint."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            near = did_you_mean(args[0], self.commands)
            hint = near or f"safelaunch hosts test {args[0]}"
            raise ConfigError(f"no command `hosts {args[0]}`", hint=hint)
        return super().resolve_command(ctx, args)


@click.group("hosts", cls=_Group, invoke_without_command=True)
@_hosts
@_json
@click.pass_context
def command(context: click.Context, hosts_path: str | None, as_json: bool) -> int:
    """List your machines, test whether they can be used, add one.

    Without a command: list.
    """
    if context.invoked_subcommand is None:
        return _list(hosts_path, as_json)
    if hosts_path is not None or as_json:
        given = "--hosts" if hosts_path is not None else "--json"
        hint = f"safelaunch hosts {context.invoked_subcommand} {given} ..."
        raise ConfigError(f"`{given}` stands behind the command", hint=hint)
    return 0


@command.command("list")
@_hosts
@_json
def list_(hosts_path: str | None, as_json: bool) -> int:
    """List the machines of the hosts file, and how each is reached. Connects to nothing."""
    return _list(hosts_path, as_json)


@command.command("test", short_help="Connect to machines and say what each has and lacks.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_host)
@_hosts
@_json
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=45.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a host may take; while you are asked, time stands still.",
)
def test(names: tuple[str, ...], hosts_path: str | None, as_json: bool, timeout: float) -> int:
    """Connect to hosts or groups (all, if none is named) and say what there is and what is missing.

    Exit code 0: all can be used; 4: one cannot be reached, or not be used by safelaunch; 3: one is
    reached, and jobs cannot run there as it is.
    """
    from safelaunch.cli.hosts import test as hosts_test  # noqa: PLC0415 - the list needs none of it

    return hosts_test.run(names, hosts_path, as_json=as_json, patience=timeout)


@command.command("add")
@click.argument("name", shell_complete=complete_host)
@click.argument("address", required=False, metavar="[[USER@]ADDRESS]")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of the SSH server.")
@click.option("--identity", metavar="FILE", help="Key file on this machine; made if there is none.")
@click.option("--profile", metavar="NAME", help="Hardware profile of the machine.")
@click.option("--workdir", metavar="DIR", help="Working directory there; ~/ is the home there.")
@click.option("--python", metavar="PATH", help="Interpreter of the jobs there.")
@click.option("--force", is_flag=True, help="Change an entry that says otherwise.")
@_hosts
def add(name: str, address: str | None, hosts_path: str | None, **options: Any) -> int:
    """Let a key open a machine, and write it into the hosts file.

    Asks for the password once, makes a key if you have none, installs its public half, proves that
    the key alone opens the machine, and writes the entry. Where a key opens it already, nothing is
    asked. Without ADDRESS, NAME is looked up in the hosts file and ~/.ssh/config.
    """
    from safelaunch.cli.hosts import add as hosts_add  # noqa: PLC0415
    from safelaunch.remote.hosts import new_entry  # noqa: PLC0415

    return hosts_add.run(new_entry.HostRequest(name, address, hosts_path, **options))


# -- what the commands share -----------------------------------------------------------------------


# -- list ------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A host as the list shows it."""

    host: Host
    ways: tuple[Target, ...]  # none: the machine itself, or `error` says why
    error: ConfigError | None

    @property
    def reached(self) -> str:
        """How it is reached, in words."""
        if self.error is not None:
            return "?"
        if not self.ways:
            return "this machine"
        alias = f" (ssh {self.host.ssh})" if self.host.ssh else ""
        more = f", or {', '.join(map(format_route, self.ways[1:]))}" if self.ways[1:] else ""
        return format_route(self.ways[0]) + alias + more

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The columns of the table."""
        return (self.host.name, self.reached, self.host.profile or "-", self.host.workdir or "-")


def _list(hosts_path: str | None, as_json: bool) -> int:
    local = current_user(os.environ)
    path = file_of(store.home(os.environ), hosts_path)
    shown = local.shown(path)
    is_there = hosts_path is not None or os.path.lexists(path)
    hosts = hosts_file.load_file(path, shown) if is_there else hosts_file.Hosts({}, {})
    rows = [_row(host, local) for host in hosts.machines.values()]
    others = _others(hosts, local)
    if as_json:
        file = path if is_there else None
        groups = {name: list(members) for name, members in hosts.groups.items()}
        listed = [_row_json(row, hosts) for row in rows]
        print_json(
            {"version": 1, "file": file, "hosts": listed, "groups": groups, "ssh_config": others}
        )
        return 0
    for line in _table(rows, width()):
        click.echo(line)
    _footnotes(hosts, shown if is_there else None, others)
    for row in rows:
        if row.error is not None:
            say(f"{row.host.name}: {row.error}" + f"; {row.error.hint}" * bool(row.error.hint))
    return 0


def _row(host: Host, local: LocalUser) -> _Row:
    if host.name == hosts_file.LOCAL:
        return _Row(host, (), None)
    try:
        found = resolve_target(host.name, host, local)
    except ConfigError as e:
        return _Row(host, (), e)
    return _Row(host, (found, *found.others), None)


def _others(hosts: hosts_file.Hosts, local: LocalUser) -> list[str]:
    """Return the names of ~/.ssh/config that no entry uses."""
    used = {*hosts.machines, *(host.ssh for host in hosts.machines.values())}
    return [name for name in ssh_config.declared_hosts(local) if name not in used]


def _table(rows: list[_Row], columns: int) -> list[str]:
    """Return the lines; where they do not fit, each host has lines of its own."""
    if not rows:
        return []
    cells = [("HOST", "REACHED AS", "PROFILE", "WORKDIR"), *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) <= columns:
        return [
            _GAP.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
    lines = []
    for name, reached, profile, workdir in cells[1:]:
        lines.append(name)
        lines += wrap(reached, columns, "  ", "    ")
        more = [f"profile {profile}" * (profile != "-"), f"workdir {workdir}" * (workdir != "-")]
        lines += wrap(", ".join(filter(None, more)), columns, "  ", "    ")
    return lines


def _footnotes(hosts: hosts_file.Hosts, shown: str | None, others: list[str]) -> None:
    for name, members in hosts.groups.items():
        for line in wrap(f"group {name}: {', '.join(members)}", width(), "", "  "):
            click.echo(line)
    if shown is None:
        say("no hosts file yet; add a machine: safelaunch hosts add NAME USER@ADDRESS")
    else:
        say(f"from {shown}")
    if others:
        text = f"also in ~/.ssh/config, usable as they are: {', '.join(others)}"
        for line in wrap(text, width(), "", "  "):
            say(line)


def _row_json(row: _Row, hosts: hosts_file.Hosts) -> dict[str, Any]:
    host = row.host
    return {
        "name": host.name,
        "reached": [
            {
                "user": way.user,
                "address": way.address,
                "port": way.port,
                "jumps": [format_route(jump) for jump in way.jumps],
                "proxy_command": way.proxy_command,
            }
            for way in row.ways
        ],
        "ssh": host.ssh,
        "identity": host.identity,
        "profile": host.profile,
        "python": host.interpreter.path if host.interpreter else None,
        "workdir": host.workdir,
        "groups": [name for name, members in hosts.groups.items() if host.name in members],
        "error": str(row.error) if row.error is not None else None,
    }
