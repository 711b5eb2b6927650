"""This command's recorded runs and its connections to hosts, closed at its end."""

# ruff: noqa: PLC0415 - what talks to hosts: commands about runs of this machine do without its 30 ms

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from safelaunch.cli.output import say
from safelaunch.runs import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.runs.catalog import RunCatalog
    from safelaunch.remote.session import HostResolver


def catalog() -> RunCatalog:
    """Return the runs that this machine knows of."""
    from safelaunch.remote.runs.catalog import RunCatalog

    return RunCatalog(store.home(os.environ), host_pool)


def resolver(hosts_path: str | None, *, may_prompt: bool, step: Sequence[str] = ()) -> HostResolver:
    """Return what connects to hosts, with questions at the terminal and messages on stderr.

    `step` are the words that start an agent on another machine behind a host.
    """
    from safelaunch.remote.session import HostResolver
    from safelaunch.ssh.prompt import SharedAnswers, terminal_prompter

    home, ask = store.home(os.environ), terminal_prompter() if may_prompt else None
    answers = None if ask is None else SharedAnswers(ask)
    return HostResolver(
        home, os.environ, hosts_path=hosts_path, answers=answers, report=say, step=step
    )


def local_pool(hosts_path: str | None, step: Sequence[str] = ()) -> HostPool:
    """Return agents of this machine, or by the words of a `step` of another one, without SSH."""
    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.local_session import LocalResolver

    resolver = LocalResolver(
        store.home(os.environ), os.environ, hosts_path=hosts_path, report=say, step=step
    )
    pool = HostPool(resolver)
    click.get_current_context().call_on_close(pool.close)
    return pool


def host_pool(
    hosts_path: str | None, *, may_prompt: bool = True, step: Sequence[str] = ()
) -> HostPool:
    """Return the connections to hosts of a hosts file: one pool each until the command ends.

    `step` is that of `resolver`.
    """
    from safelaunch.remote.host_pool import HostPool

    context = click.get_current_context()
    pools: dict[object, HostPool] = context.meta.setdefault(__name__, {})
    key = hosts_path, tuple(step)
    if key not in pools:
        pool = HostPool(resolver(hosts_path, may_prompt=may_prompt, step=step))
        pools[key] = pool
        context.call_on_close(pool.close)
    return pools[key]
