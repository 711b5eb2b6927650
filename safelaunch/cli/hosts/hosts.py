"""`safelaunch hosts`: lists the user's machines, tests them, and adds one."""

# ruff: noqa: PLC0415 - what connects to hosts is imported for `test` and `add` only

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from safelaunch.cli.output import print_check, print_json, say, table, terminal_width, warn, wrap
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.reader import hosts_file_path
from safelaunch.errors import ConfigError, HostError, Refused, did_you_mean
from safelaunch.runs import store
from safelaunch.runtime.units import quantity
from safelaunch.ssh.config import reader as ssh_config
from safelaunch.ssh.config.local_user import current_user
from safelaunch.ssh.config.target import format_route, resolve_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Host
    from safelaunch.remote.hosts.host_test import HostTest
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.config.target import Target

_hosts = click.option(
    "--hosts", "hosts_path", metavar="FILE", help="Hosts file instead of your own."
)
_LABEL = 9  # columns of a check's name
_TEST_FAILURES = {  # by the check that failed
    "reached": "cannot be reached",
    "host key": "is not trusted",
    "login": "login failed",
}
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def complete_host(_context: click.Context, _argument: click.Parameter, prefix: str) -> list[str]:
    """Return the hosts and groups of the user's file."""
    try:
        hosts = hosts_file.load_default(store.home(os.environ))
    except ConfigError:
        return []
    return [name for name in (*hosts.machines, *hosts.groups) if name.startswith(prefix)]


class _HostsGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a host's name in its place gets a hint."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            near = did_you_mean(args[0], self.commands)
            hint = near or f"safelaunch hosts test {args[0]}"
            raise ConfigError(f"no command `hosts {args[0]}`", hint=hint)
        return super().resolve_command(ctx, args)


@click.group("hosts", cls=_HostsGroup, invoke_without_command=True)
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
        option = "--hosts" if hosts_path is not None else "--json"
        hint = f"safelaunch hosts {context.invoked_subcommand} {option} ..."
        raise ConfigError(f"`{option}` must follow the command", hint=hint)
    return 0


@command.command("list")
@_hosts
@_json
def list_(hosts_path: str | None, as_json: bool) -> int:
    """List the machines of the hosts file and their addresses. Connects to nothing."""
    return _list(hosts_path, as_json)


@command.command("test", short_help="Connect to machines, and check what jobs need there.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_host)
@_hosts
@_json
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=45.0,
    show_default=True,
    metavar="SECONDS",
    help="Limit for each host; time spent at prompts does not count.",
)
def test(names: tuple[str, ...], hosts_path: str | None, as_json: bool, timeout: float) -> int:
    """Connect to hosts or groups (default: all), and check what jobs need there.

    Exit code 0: all can be used; 3: jobs cannot run on one of them yet; 4: one cannot be reached,
    or safelaunch cannot run there.
    """
    from safelaunch.remote.hosts.host_test import HostTest, paused, run_tests
    from safelaunch.remote.session import HostResolver
    from safelaunch.ssh.prompt import SharedAnswers, terminal_prompter

    home, user = store.home(os.environ), current_user(os.environ)
    ask = terminal_prompter()
    answers = None if ask is None else SharedAnswers(ask, paused)
    resolver = HostResolver(home, os.environ, hosts_path=hosts_path, answers=answers, report=say)
    file, hosts = hosts_file_path(home, hosts_path), _hosts_to_test(names, resolver.hosts)
    tests = [HostTest(resolver, name, file, user) for name in hosts]
    for host_test in run_tests(tests, timeout):
        if not as_json:
            _show_test(host_test)
    if as_json:
        print_json({"version": 1, "hosts": [host_test.json() for host_test in tests]})
    usable = sum(host_test.usable for host_test in tests)
    if len(tests) > 1 and not as_json:
        say(f"{usable} of {len(tests)} hosts can be used")
    if not all(host_test.is_in for host_test in tests):
        return HostError.exit_code
    return 0 if usable == len(tests) else Refused.exit_code


@command.command("add", short_help="Set up login with a key, and write the hosts file.")
@click.argument("name", shell_complete=complete_host)
@click.argument("address", required=False, metavar="[[USER@]ADDRESS]")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of the SSH server.")
@click.option("--identity", metavar="FILE", help="Local key file; created if it does not exist.")
@click.option(
    "--transport",
    type=click.Choice(("paramiko", "ssh")),
    help="What connects: Paramiko, or the system's ssh; default: what ~/.ssh/config needs.",
)
@click.option("--profile", metavar="NAME", help="Hardware profile of the machine.")
@click.option("--workdir", metavar="DIR", help="Working directory there; ~/ is the home there.")
@click.option("--python", metavar="PATH", help="Python interpreter of the jobs there.")
@click.option("--force", is_flag=True, help="Change an existing entry that differs.")
@_hosts
def add(name: str, address: str | None, hosts_path: str | None, **options: Any) -> int:
    """Set up login with a key on a machine, and write it into the hosts file.

    Asks for the password once, creates a key if you have none, installs its public half, verifies
    that the key alone logs in, and writes the entry. If a key logs in already, nothing is asked.
    Without ADDRESS, NAME is looked up in the hosts file and ~/.ssh/config.
    """
    from safelaunch.remote.hosts.add_host import add_host
    from safelaunch.remote.hosts.new_entry import HostRequest
    from safelaunch.ssh.prompt import terminal_prompter

    request = HostRequest(name, address, hosts_path, **options)
    local, home = current_user(os.environ), store.home(os.environ)
    add_host(request, local, home, ask=terminal_prompter(), say=say, warn=warn)
    say(f"next: safelaunch hosts test {name}")
    return 0


# -- test ------------------------------------------------------------------------------------------


def _hosts_to_test(names: Sequence[str], hosts: hosts_file.Hosts) -> tuple[str, ...]:
    """Return the hosts to test, groups expanded. Raises ConfigError."""
    if hosts_file.LOCAL in names:
        raise ConfigError(
            f"`{hosts_file.LOCAL}` is this machine: there is nothing to connect to",
            hint="safelaunch run starts jobs here",
        )
    hosts_or_groups = [name for name in names or hosts.machines if name != hosts_file.LOCAL]
    if not hosts_or_groups:
        raise ConfigError(
            "no hosts to test: the hosts file has none",
            hint="add one: safelaunch hosts add NAME USER@ADDRESS",
        )
    return tuple(dict.fromkeys(hosts_file.expand(hosts, tuple(hosts_or_groups))))


def _show_test(test: HostTest) -> None:
    warnings = sum(check.status == "warn" for check in test.checks)
    if test.usable:
        verdict = "can be used" + f", {quantity(warnings, 'warning')}" * bool(warnings)
    elif test.is_in:
        verdict = "is reachable, but jobs cannot run there yet"
    else:
        failed = next(check.id for check in test.checks if check.status == "fail")
        verdict = _TEST_FAILURES.get(failed, "is reachable, but cannot be used")
    click.echo(f"{test.host.name}: {verdict}")
    for check in test.checks:
        hint = check.hint if check.status != "ok" else None
        print_check(check.status, f"{check.id:<{_LABEL}} ", check.evidence, hint)


# -- list ------------------------------------------------------------------------------------------


class _HostRow(NamedTuple):
    """A host as the list shows it."""

    host: Host
    targets: tuple[Target, ...]  # empty for this machine, a cluster, or if there is an error
    error: ConfigError | None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The columns of the table."""
        place = "Kubernetes" if self.host.is_kubernetes else "this machine"
        route, *others = map(format_route, self.targets) if self.targets else [place]
        route = route if self.error is None else "?"
        route += f" (ssh {self.host.ssh})" if self.targets and self.host.ssh else ""
        route += f", or {', '.join(others)}" if others else ""
        return (self.host.name, route, self.host.profile or "-", self.host.workdir or "-")

    def json(self, hosts: hosts_file.Hosts) -> dict[str, Any]:
        """Return the host as --json shows it."""
        host = self.host
        return {
            "name": host.name,
            "reached": [
                {
                    "user": target.user,
                    "address": target.address,
                    "port": target.port,
                    "jumps": [format_route(jump) for jump in target.jumps],
                    "proxy_command": target.proxy_command,
                }
                for target in self.targets
            ],
            "ssh": host.ssh,
            "identity": host.identity,
            "profile": host.profile,
            "python": host.interpreter.path if host.interpreter else None,
            "workdir": host.workdir,
            "groups": [name for name, members in hosts.groups.items() if host.name in members],
            "error": str(self.error) if self.error is not None else None,
        }


def _list(hosts_path: str | None, as_json: bool) -> int:
    local = current_user(os.environ)
    path = hosts_file_path(store.home(os.environ), hosts_path)
    shown = local.shown(path)
    has_file = hosts_path is not None or os.path.lexists(path)
    hosts = hosts_file.load_file(path, shown) if has_file else hosts_file.Hosts({}, {})
    rows = [_row(host, local) for host in hosts.machines.values()]
    used = {*hosts.machines, *(host.ssh for host in hosts.machines.values())}
    others = [name for name in ssh_config.declared_hosts(local) if name not in used]
    if as_json:
        print_json(
            {
                "version": 1,
                "file": path if has_file else None,
                "hosts": [row.json(hosts) for row in rows],
                "groups": {name: list(members) for name, members in hosts.groups.items()},
                "ssh_config": others,
            }
        )
        return 0
    columns = terminal_width()
    for line in _table([row.cells for row in rows], columns):
        click.echo(line)
    for name, members in hosts.groups.items():
        for line in wrap(f"group {name}: {', '.join(members)}", columns, "", "  "):
            click.echo(line)
    no_file = "no hosts file yet; add a machine: safelaunch hosts add NAME USER@ADDRESS"
    say(f"from {shown}" if has_file else no_file)
    if others:
        text = f"also usable, from ~/.ssh/config: {', '.join(others)}"
        say("\n".join(wrap(text, columns, "", "  ")))
    for row in rows:
        if row.error is not None:
            say(f"{row.host.name}: {row.error}" + f"; {row.error.hint}" * bool(row.error.hint))
    return 0


def _row(host: Host, local: LocalUser) -> _HostRow:
    if host.name == hosts_file.LOCAL or host.is_kubernetes:
        return _HostRow(host, (), None)
    try:
        target = resolve_target(host.name, host, local)
    except ConfigError as e:
        return _HostRow(host, (), e)
    return _HostRow(host, (target, *target.others), None)


def _table(rows: list[tuple[str, str, str, str]], columns: int) -> list[str]:
    """Return the lines; if they do not fit the columns, several for each host."""
    if not rows:
        return []
    lines = table([("HOST", "ADDRESS", "PROFILE", "WORKDIR"), *rows])
    if max(map(len, lines)) <= columns:
        return lines
    lines = []
    for name, route, profile, workdir in rows:
        lines.append(name)
        lines += wrap(route, columns, "  ", "    ")
        more = [f"profile {profile}" * (profile != "-"), f"workdir {workdir}" * (workdir != "-")]
        lines += wrap(", ".join(filter(None, more)), columns, "  ", "    ")
    return lines
