"""Checks of the network: names, proxies, clocks, the ways between hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.checks import job_options
from safelaunch.checks.answers import Answer, Question, fail, ok, skip, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.checks.context import CheckContext, HostContext

_GLOO = "torch.distributed documentation, choosing the network interface"
_APART = 5.0  # seconds: further apart, the order of what happened on two hosts cannot be told


# -- names -----------------------------------------------------------------------------------------


def _masters(host: HostContext) -> list[tuple[str, str]]:
    """Return (host, what says it) of the addresses of node 0 that the job itself gives."""
    job = host.job
    return list(launchers.load(job.launcher).rendezvous(job, host.plan.env).addresses)


def _names(host: HostContext) -> Iterable[Question]:
    return [("name", name) for name, _ in _masters(host)]


@check("master-address", "network", asks=_names)
def master_address(host: HostContext) -> Iterator[Answer]:
    """Whether the address of node 0, where the job gives one, means that machine on every node."""
    several = host.job.topology.nodes > 1
    for name, by in _masters(host):
        told = host.answer("name", name)
        addresses = told["addresses"]
        hint = f"take it out of `{by.split(':')[0]}`: the address that all hosts reach is found"
        answer = fail if by.startswith("launcher_args") else warn
        if not addresses:
            yield answer(f"`{name}` ({by}) cannot be resolved: {told.get('why')}", hint)
        elif several and host.rank > 0 and all(_is_loopback(one) for one in addresses):
            source = "ms-swift issues 2485 and 6982"
            yield answer(f"`{name}` ({by}) means this very machine ({addresses[0]}), and node 0 "
                         "is another one", hint, source)  # fmt: skip
        else:
            yield ok(f"`{name}` ({by}) is {', '.join(addresses[:2])}")


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _own(host: HostContext) -> Iterable[Question]:
    return [("hostname",)] if host.job.topology.nodes > 1 else []


@check("own-name", "network", asks=_own)
def own_name(host: HostContext) -> Answer | None:
    """Whether the machine's own name is no loopback address, where other nodes are told it."""
    job = host.job
    if job.topology.nodes == 1:
        return None
    told = host.answer("hostname")
    found = told["addresses"]
    if found and not all(_is_loopback(one) for one in found):
        return ok(f"{told['name']} is {found[0]}")
    given = job_options.parse(job.launcher_args)
    dynamic = (
        job_options.first_value(given, "rdzv_backend") not in (None, "static")
        and "local_addr" not in given
    )
    is_named = "GLOO_SOCKET_IFNAME" in host.plan.env and (
        host.plan.env["GLOO_SOCKET_IFNAME"].value is not None
    )
    what = f"{told['name']} stands for {found[0] if found else 'nothing'} there"
    if dynamic:
        return warn(
            f"{what}, and torchrun tells the others that name (`rdzv_backend`)",
            "take `rdzv_backend` out of `launcher_args`: then they are given a numeric address",
            "pytorch issue 150532",
        )
    if not is_named:
        hint = "take GLOO_SOCKET_IFNAME: null out of `env`: then gloo is given the right interface"
        return warn(f"{what}, and gloo would take that", hint, _GLOO)
    return ok(f"{what}; NCCL and gloo are given an interface instead")


# -- proxies, clocks, ways -------------------------------------------------------------------------

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def _proxies(host: HostContext) -> dict[str, str]:
    """Return the proxies that the job will see, as far as they are known."""
    told = host.get("network", "proxies")
    kept = told if isinstance(told, dict) and host.plan.keep is None else {}
    found = {}
    for name in _PROXIES:
        planned = [host.plan.env.get(one) for one in (name, name.upper())]
        removed = [var for var in planned if var is not None and var.value is None]
        value = job_options.variable(host, name) or job_options.variable(host, name.upper())
        if not value and not (removed and len(removed) == len(planned)):
            value = kept.get(name)
        if value:
            found[name] = re.sub(r"//[^/@]*@", "//***@", value)
    return found


@check("proxies", "network")
def proxies(host: HostContext) -> Answer | None:
    """Whether no proxy stands between the job and its own machines and servers."""
    found = _proxies(host)
    if not found:
        return None
    shown = ", ".join(f"{name}={value}" for name, value in found.items())
    passed = _not_proxied(host)
    wanted = [*host.plan.direct, *(name for name in _asked(host) if name not in host.plan.direct)]
    through = [name for name in wanted if not _is_exempt(name, passed)]
    if through:
        names = ",".join(dict.fromkeys([*wanted, *passed]))
        return warn(
            f"{shown}: requests to {', '.join(through)} would go through it",
            f'env: {{no_proxy: "{names}", NO_PROXY: "{names}"}}',
            "ms-swift issue 5545",
        )
    return ok(f"{shown}; {', '.join(wanted[:4])} go past it (no_proxy)")


def _asked(host: HostContext) -> list[str]:
    """Return the hosts of servers that the job names by number or by a name without a dot."""
    from safelaunch.checks.network import fixed_ports  # noqa: PLC0415 - only where there is a proxy

    hosts = [server.host for server in fixed_ports.servers(host.job)]
    return [name for name in dict.fromkeys(hosts) if re.fullmatch(r"[\d.]+|[^.]+", name)]


def _not_proxied(host: HostContext) -> list[str]:
    """Return the entries of no_proxy that the job will see: a start adds its machines."""
    given = [host.plan.env.get(name) for name in ("no_proxy", "NO_PROXY")]
    own = [var for var in given if var is not None and not var.computed]
    text = ",".join(str(var.value) for var in own if isinstance(var.value, str))
    if not own:
        told = host.get("network", "proxies") or {}
        outside = job_options.inherited_environ(host)
        theirs = outside.get("no_proxy") or outside.get("NO_PROXY") or told.get("no_proxy") or ""
        text = ",".join([*host.plan.direct, theirs])
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _is_exempt(host: str, entries: list[str]) -> bool:
    """Whether a host is left out by no_proxy: by its name, its domain, or its network."""
    import ipaddress  # noqa: PLC0415 - only where there is a proxy

    for entry in entries:
        bare = entry.lstrip("*").lstrip(".")
        if entry == "*" or host == bare or (bare and host.endswith("." + bare)):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False


@check("socks", "network", asks=lambda _: [("module", "socks"), ("module", "socksio")])
def socks(host: HostContext) -> Answer | None:
    """Whether a SOCKS proxy has the packages that requests and httpx need for it."""
    found = {name: value for name, value in _proxies(host).items() if value.startswith("socks")}
    if not found:
        return None
    shown = ", ".join(f"{name}={value}" for name, value in found.items())
    needs = {"socks": "PySocks", "socksio": "httpx[socks]"}
    missing = [package for module, package in needs.items()
               if not host.answer("module", module)["found"]]  # fmt: skip
    if missing:
        return warn(
            f"{shown}, and the interpreter has no {' and no '.join(missing)}",
            f"{pip_commands.install(host, missing)}; or env: {{all_proxy: null, ALL_PROXY: null}}",
            "requests and httpx documentation, SOCKS",
        )
    return ok(f"{shown}; the packages for it are there")


@check("clocks", "network", once=True, job=False)
def clocks(context: CheckContext) -> Answer | None:
    """Whether the clocks of the machines agree."""
    known = {
        host.name: float(offset)
        for host in context.hosts
        if isinstance(offset := host.get("clock_offset"), (int, float))
    }
    if len(known) < 2:  # noqa: PLR2004 - two make a difference
        return None
    first, last = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    apart = known[last] - known[first]
    if apart > _APART:
        return warn(
            f"the clock of {last} is {apart:.1f} s ahead of that of {first}",
            f"`sudo timedatectl set-ntp true` on {first} and {last}",
        )
    return ok(f"the clocks differ by {apart:.1f} s at most")


@check("ways", "network", once=True)
def ways(context: CheckContext) -> Answer | None:
    """Whether each host reaches node 0, and a high port of each other one."""
    if context.plan is None or len(context.plan.nodes) == 1 or context.is_quick:
        return None
    found = context.routes
    if found is None:
        return skip("the network between the hosts was not tried")
    if found.error is not None:
        return fail(found.error, found.hint, "docs/remote.md, Several hosts")
    cards = ", ".join(dict.fromkeys(found.interfaces))
    return ok(f"all reach node 0 at {found.addresses[0]}, over {cards}")
