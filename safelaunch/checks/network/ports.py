"""Checks of ports: those that a job must bind are free, and servers that it asks are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.checks.answers import Answer, Question, fail, ok, warn
from safelaunch.checks.network import fixed_ports
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.checks.context import HostContext


def _ports(host: HostContext) -> Iterable[Question]:
    return [("port", entry.port) for entry in fixed_ports.fixed_ports(host)]


@check("ports", "network", asks=_ports, quick=True)
def ports(host: HostContext) -> Iterator[Answer]:
    """Whether fixed ports that the job, its launcher or its engines bind are free."""
    free = []
    for entry in fixed_ports.fixed_ports(host):
        state = host.answer("port", entry.port)
        if state["free"]:
            free.append(str(entry.port))
            continue
        hint = entry.remedy.replace("{free}", str(state.get("instead") or "another number"))
        # without a listener it is closing, and servers may have it all the same (SO_REUSEADDR)
        is_taken = state.get("listens") is not False
        answer = fail if entry.required and is_taken else warn
        yield answer(f"port {entry.port} is {_holder(state)}; {entry.setting}", hint, entry.source)
    if free:
        yield ok(f"port {', '.join(free)} can be bound")


def _holder(told: Mapping[str, Any]) -> str:
    holders = told.get("holders") or []
    if told.get("listens") is False and not holders:
        return "still closing (TIME_WAIT): it is free within a minute"
    if not holders:
        return "taken"
    first = holders[0]
    if "pid" not in first:
        return f"taken by a process of user {first['user']}"
    return f"taken by `{first['command'][:60]}` (pid {first['pid']} of {first['user']})"


def _servers(host: HostContext) -> Iterable[Question]:
    if host.rank != 0 or any("&" in line for line in host.plan.setup):
        return []  # `setup` may start it
    return [("reach", one.host, one.port) for one in fixed_ports.servers(host.job)]


@check("servers", "network", asks=_servers)
def servers(host: HostContext) -> Iterator[Answer]:
    """Whether somebody listens at the addresses of servers that the job's arguments name."""
    reached = []
    for _, address, port in _servers(host):
        told = host.answer("reach", address, port)
        where = f"{address}:{port}"
        if told["reached"]:
            reached.append(where)
            continue
        by = next(
            o.setting for o in fixed_ports.servers(host.job) if (o.host, o.port) == (address, port)
        )
        yield warn(
            f"no server answers at {where} (`{by}`): {told['why']}",
            f"start it first, and wait until `curl http://{where}/health` answers"
            if fixed_ports.is_local(address)
            else f"start the server on {address} first, and open port {port} there",
        )
    if reached:
        yield ok(f"a server answers at {', '.join(reached)}")
