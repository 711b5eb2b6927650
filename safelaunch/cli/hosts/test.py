"""`safelaunch hosts test`: connects to hosts in parallel, and shows what each has and lacks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from safelaunch.cli.output import print_check, print_json, say
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.reader import hosts_file_path
from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.remote.hosts.host_probes import FAIL, OK, WARN
from safelaunch.remote.hosts.host_test import HostTest, one_at_a_time
from safelaunch.remote.session import HostResolver
from safelaunch.runs import store
from safelaunch.runtime.units import quantity
from safelaunch.ssh.config import local_user
from safelaunch.ssh.prompt import terminal_prompter

if TYPE_CHECKING:
    from collections.abc import Sequence

_LABEL = 9  # columns of a check's name
_FAILURES = {  # by the check that failed
    "reached": "cannot be reached",
    "host key": "is not trusted",
    "login": "login failed",
}


def run(names: Sequence[str], hosts_path: str | None, *, as_json: bool, timeout: float) -> int:
    """Test hosts, print the results, and return the exit code. Raises ConfigError."""
    home, user = store.home(os.environ), local_user.current_user(os.environ)
    ask = one_at_a_time(terminal_prompter())
    resolver = HostResolver(home, os.environ, hosts_path=hosts_path, ask=ask, report=say)
    file = hosts_file_path(home, hosts_path)
    tests = [HostTest(resolver, name, file, user) for name in _names(names, resolver.hosts)]
    for test in tests:
        test.start()
    for test in tests:
        test.await_end(timeout)
        if not as_json:
            _show(test)
    if as_json:
        print_json({"version": 1, "hosts": [test.json() for test in tests]})
    usable = sum(test.usable for test in tests)
    if len(tests) > 1 and not as_json:
        say(f"{usable} of {len(tests)} hosts can be used")
    if not all(test.is_in for test in tests):
        return HostError.exit_code
    return 0 if usable == len(tests) else Refused.exit_code


def _names(names: Sequence[str], hosts: hosts_file.Hosts) -> tuple[str, ...]:
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


def _show(test: HostTest) -> None:
    warnings = sum(check.status == WARN for check in test.checks)
    if test.usable:
        verdict = "can be used" + f", {quantity(warnings, 'warning')}" * bool(warnings)
    elif test.is_in:
        verdict = "is reachable, but jobs cannot run there yet"
    else:
        failed = next(check.id for check in test.checks if check.status == FAIL)
        verdict = _FAILURES.get(failed, "is reachable, but cannot be used")
    click.echo(f"{test.host.name}: {verdict}")
    for check in test.checks:
        hint = check.hint if check.status != OK else None
        print_check(check.status, f"{check.id:<{_LABEL}} ", check.evidence, hint)
