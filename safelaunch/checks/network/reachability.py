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

    from safelaunch.checks.context import Case, Site

_GLOO = "torch.distributed documentation, choosing the network interface"
_APART = 5.0  # seconds: further apart, the order of what happened on two hosts cannot be told


# -- names -----------------------------------------------------------------------------------------


def _masters(site: Site) -> list[tuple[str, str]]:
    """Return (host, what says it) of the addresses of node 0 that the job itself gives."""
    job = site.case.job
    return list(launchers.load(job.launcher).rendezvous(job, site.plan.env).addresses)


def _names(site: Site) -> Iterable[Question]:
    return [("name", host) for host, _ in _masters(site)]


@check("master-address", "network", asks=_names)
def master_address(site: Site) -> Iterator[Answer]:
    """Whether the address of node 0, where the job gives one, means that machine on every node."""
    several = site.case.job.topology.nodes > 1
    for host, by in _masters(site):
        told = site.told("name", host)
        addresses = told["addresses"]
        hint = f"take it out of `{by.split(':')[0]}`: the address that all hosts reach is found"
        answer = fail if by.startswith("launcher_args") else warn
        if not addresses:
            yield answer(f"`{host}` ({by}) cannot be resolved: {told.get('why')}", hint)
        elif several and site.rank > 0 and all(_is_loopback(one) for one in addresses):
            source = "ms-swift issues 2485 and 6982"
            yield answer(f"`{host}` ({by}) means this very machine ({addresses[0]}), and node 0 "
                         "is another one", hint, source)  # fmt: skip
        else:
            yield ok(f"`{host}` ({by}) is {', '.join(addresses[:2])}")


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _own(site: Site) -> Iterable[Question]:
    return [("hostname",)] if site.case.job.topology.nodes > 1 else []


@check("own-name", "network", asks=_own)
def own_name(site: Site) -> Answer | None:
    """Whether the machine's own name is no loopback address, where other nodes are told it."""
    job = site.case.job
    if job.topology.nodes == 1:
        return None
    told = site.told("hostname")
    found = told["addresses"]
    if found and not all(_is_loopback(one) for one in found):
        return ok(f"{told['name']} is {found[0]}")
    given = job_options.of_args(job.launcher_args)
    dynamic = (
        job_options.first_value(given, "rdzv_backend") not in (None, "static")
        and "local_addr" not in given
    )
    is_named = "GLOO_SOCKET_IFNAME" in site.plan.env and (
        site.plan.env["GLOO_SOCKET_IFNAME"].value is not None
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


def _proxies(site: Site) -> dict[str, str]:
    """Return the proxies that the job will see, as far as they are known."""
    told = site.known("network", "proxies")
    kept = told if isinstance(told, dict) and site.plan.keep is None else {}
    found = {}
    for name in _PROXIES:
        planned = [site.plan.env.get(one) for one in (name, name.upper())]
        removed = [var for var in planned if var is not None and var.value is None]
        value = job_options.variable(site, name) or job_options.variable(site, name.upper())
        if not value and not (removed and len(removed) == len(planned)):
            value = kept.get(name)
        if value:
            found[name] = re.sub(r"//[^/@]*@", "//***@", value)
    return found


@check("proxies", "network")
def proxies(site: Site) -> Answer | None:
    """Whether no proxy stands between the job and its own machines and servers."""
    found = _proxies(site)
    if not found:
        return None
    shown = ", ".join(f"{name}={value}" for name, value in found.items())
    passed = _not_proxied(site)
    wanted = [*site.plan.direct, *(host for host in _asked(site) if host not in site.plan.direct)]
    through = [host for host in wanted if not _is_exempt(host, passed)]
    if through:
        names = ",".join(dict.fromkeys([*wanted, *passed]))
        return warn(
            f"{shown}: requests to {', '.join(through)} would go through it",
            f'env: {{no_proxy: "{names}", NO_PROXY: "{names}"}}',
            "ms-swift issue 5545",
        )
    return ok(f"{shown}; {', '.join(wanted[:4])} go past it (no_proxy)")


def _asked(site: Site) -> list[str]:
    """Return the hosts of servers that the job names by number or by a name without a dot."""
    from safelaunch.checks.network import fixed_ports  # noqa: PLC0415 - only where there is a proxy

    hosts = [server.host for server in fixed_ports.servers(site.case.job)]
    return [host for host in dict.fromkeys(hosts) if re.fullmatch(r"[\d.]+|[^.]+", host)]


def _not_proxied(site: Site) -> list[str]:
    """Return the entries of no_proxy that the job will see: a start adds its machines."""
    given = [site.plan.env.get(name) for name in ("no_proxy", "NO_PROXY")]
    own = [var for var in given if var is not None and not var.computed]
    text = ",".join(str(var.value) for var in own if isinstance(var.value, str))
    if not own:
        told = site.known("network", "proxies") or {}
        outside = job_options.outside(site)
        theirs = outside.get("no_proxy") or outside.get("NO_PROXY") or told.get("no_proxy") or ""
        text = ",".join([*site.plan.direct, theirs])
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
def socks(site: Site) -> Answer | None:
    """Whether a SOCKS proxy has the packages that requests and httpx need for it."""
    found = {name: value for name, value in _proxies(site).items() if value.startswith("socks")}
    if not found:
        return None
    shown = ", ".join(f"{name}={value}" for name, value in found.items())
    needs = {"socks": "PySocks", "socksio": "httpx[socks]"}
    missing = [package for module, package in needs.items()
               if not site.told("module", module)["found"]]  # fmt: skip
    if missing:
        return warn(
            f"{shown}, and the interpreter has no {' and no '.join(missing)}",
            f"{pip_commands.install(site, missing)}; or env: {{all_proxy: null, ALL_PROXY: null}}",
            "requests and httpx documentation, SOCKS",
        )
    return ok(f"{shown}; the packages for it are there")


@check("clocks", "network", once=True, job=False)
def clocks(case: Case) -> Answer | None:
    """Whether the clocks of the machines agree."""
    known = {
        site.name: float(offset)
        for site in case.sites
        if isinstance(offset := site.known("clock_offset"), (int, float))
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
def ways(case: Case) -> Answer | None:
    """Whether each host reaches node 0, and a high port of each other one."""
    if case.plan is None or len(case.plan.nodes) == 1 or case.is_quick:
        return None
    found = case.routes
    if found is None:
        return skip("the network between the hosts was not tried")
    if found.error is not None:
        return fail(found.error, found.hint, "docs/remote.md, Several hosts")
    cards = ", ".join(dict.fromkeys(found.interfaces))
    return ok(f"all reach node 0 at {found.addresses[0]}, over {cards}")
