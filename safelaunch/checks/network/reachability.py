"""Checks the network between hosts: names, proxies, clocks, routes."""

# ruff: noqa: PLC0415 - ipaddress: only with a proxy

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.checks import job_options
from safelaunch.checks.answers import Answer, fail, ok, skip, warn
from safelaunch.checks.environment import pip_commands
from safelaunch.checks.network.ports import servers_of
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.checks.context import CheckContext, HostContext

_GLOO = "torch.distributed documentation, choosing the network interface"
_MAX_OFFSET = 5.0  # seconds: beyond it, the order of events on two hosts cannot be told


def _master_addresses(host: HostContext) -> Iterable[tuple[str, str]]:
    """Return (name, its setting) of the addresses of node 0 that the job itself sets."""
    return launchers.load(host.job.launcher).rendezvous(host.job, host.plan.env).addresses


@check("master-address", asks=lambda host: [("name", n) for n, _ in _master_addresses(host)])
def master_address(host: HostContext) -> Iterator[Answer]:
    """Whether the job's own address of node 0 is that machine on every node."""
    for name, setting in _master_addresses(host):
        result = host.answer("name", name)
        addresses = result["addresses"]
        hint = (
            f"remove it from `{setting.split(':')[0]}`: safelaunch finds one that all hosts reach"
        )
        answer = fail if setting.startswith("launcher_args") else warn
        if host.job.starts_one_node:
            hint = "name an address of node 0 that this machine reaches"
        if not addresses:
            yield answer(f"`{name}` ({setting}) cannot be resolved: {result.get('why')}", hint)
        elif not host.is_first and all(map(_is_loopback, addresses)):
            # nodes that are started by hand may share a machine, to be tried
            yield (warn if host.job.starts_one_node else answer)(
                f"`{name}` ({setting}) is this machine ({addresses[0]}), and node 0 is another one",
                hint,
                "ms-swift issues 2485 and 6982",
            )
        else:
            yield ok(f"`{name}` ({setting}) is {', '.join(addresses[:2])}")


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


@check("own-name", asks=lambda host: [("hostname",)] if host.job.topology.nodes > 1 else [])
def own_name(host: HostContext) -> Answer | None:
    """Whether the machine's own name is no loopback address if other nodes use it."""
    job, env = host.job, host.plan.env
    if job.topology.nodes == 1:
        return None
    result = host.answer("hostname")
    name, addresses = result["name"], result["addresses"]
    if addresses and not all(map(_is_loopback, addresses)):
        return ok(f"{name} is {addresses[0]}")
    what = f"{name} resolves to {addresses[0] if addresses else 'nothing'} there"
    options = job_options.parse(job.launcher_args)
    is_static = job_options.first_value(options, "rdzv_backend") in (None, "static")
    if not is_static and "local_addr" not in options:
        return warn(
            f"{what}, and torchrun gives the others that name (`rdzv_backend`)",
            "remove `rdzv_backend` from `launcher_args`: then they get a numeric address",
            "pytorch issue 150532",
        )
    if "GLOO_SOCKET_IFNAME" not in env or env["GLOO_SOCKET_IFNAME"].value is None:
        hint = "remove GLOO_SOCKET_IFNAME: null from `env`: safelaunch sets the right interface"
        if job.starts_one_node:
            hint = "env: {GLOO_SOCKET_IFNAME: NAME}, the card on the way to the other nodes"
        return warn(f"{what}, and gloo would use that", hint, _GLOO)
    return ok(f"{what}; NCCL and gloo use an interface instead")


def _proxies(host: HostContext) -> dict[str, str]:
    """Return the proxies that the job will see, as far as they are known."""
    facts = host.get("network", "proxies")
    inherited = facts if isinstance(facts, dict) and host.plan.keep is None else {}
    proxies = {}
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        names = (name, name.upper())
        value = next(filter(None, (job_options.variable(host, each) for each in names)), None)
        # removed only if the plan removes both
        if not value and any(
            n not in host.plan.env or host.plan.env[n].value is not None for n in names
        ):
            value = inherited.get(name)
        if value:
            proxies[name] = re.sub(r"//[^/@]*@", "//***@", value)
    return proxies


def _shown(proxies: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in proxies.items())


@check("proxies")
def proxies(host: HostContext) -> Answer | None:
    """Whether no proxy is between the job and its own machines and servers."""
    proxies = _proxies(host)
    if not proxies:
        return None
    direct = [str(name) for name in host.plan.direct]
    # servers with a numeric address, or a name without a dot
    servers = [server.address for server in servers_of(host.job)]
    direct += [s for s in servers if re.fullmatch(r"[\d.]+|[^.]+", s)]
    direct = list(dict.fromkeys(direct))
    entries = _no_proxy(host)
    through = [address for address in direct if not _is_exempt(address, entries)]
    if through:
        names = ",".join(dict.fromkeys([*direct, *entries]))
        return warn(
            f"{_shown(proxies)}: requests to {', '.join(through)} would use it",
            f'env: {{no_proxy: "{names}", NO_PROXY: "{names}"}}',
            "ms-swift issue 5545",
        )
    return ok(f"{_shown(proxies)}; {', '.join(direct[:4])} bypass it (no_proxy)")


def _no_proxy(host: HostContext) -> list[str]:
    """Return the entries of no_proxy that the job will see: a start adds its machines."""
    names = ("no_proxy", "NO_PROXY")
    planned = [host.plan.env[name] for name in names if name in host.plan.env]
    own = [var for var in planned if not var.computed]
    text = ",".join(str(var.value) for var in own if isinstance(var.value, str))
    if not own:
        facts, inherited = host.get("network", "proxies") or {}, job_options.inherited_environ(host)
        values = (*(inherited.get(name) for name in names), facts.get("no_proxy"))
        text = ",".join([*map(str, host.plan.direct), next(filter(None, values), "")])
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _is_exempt(address: str, entries: list[str]) -> bool:
    """Whether no_proxy excludes a host: by its name, its domain, or its network."""
    import ipaddress

    for entry in entries:
        bare = entry.lstrip("*").lstrip(".")
        if entry == "*" or address == bare or (bare and address.endswith("." + bare)):
            return True
        try:
            if ipaddress.ip_address(address) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False


@check("socks", asks=lambda _: [("module", "socks"), ("module", "socksio")])
def socks(host: HostContext) -> Answer | None:
    """Whether requests and httpx have the packages that a SOCKS proxy needs."""
    proxies = {name: value for name, value in _proxies(host).items() if value.startswith("socks")}
    if not proxies:
        return None
    packages = {"socks": "PySocks", "socksio": "httpx[socks]"}
    missing = [packages[name] for name in packages if not host.answer("module", name)["found"]]
    if missing:
        return warn(
            f"{_shown(proxies)}, and the interpreter has no {' and no '.join(missing)}",
            f"{pip_commands.install(host, missing)}; or env: {{all_proxy: null, ALL_PROXY: null}}",
            "requests and httpx documentation, SOCKS",
        )
    return ok(f"{_shown(proxies)}; its packages are installed")


@check("clocks", once=True, job=False)
def clocks(context: CheckContext) -> Answer | None:
    """Whether the clocks of the machines agree."""
    offsets = {
        host.name: float(offset)
        for host in context.hosts
        if isinstance(offset := host.get("clock_offset"), (int, float))
    }
    if len(offsets) < 2:  # noqa: PLR2004 - two make a difference
        return None
    first, last = min(offsets, key=offsets.__getitem__), max(offsets, key=offsets.__getitem__)
    difference = offsets[last] - offsets[first]
    if difference > _MAX_OFFSET:
        return warn(
            f"the clock of {last} is {difference:.1f} s ahead of that of {first}",
            f"`sudo timedatectl set-ntp true` on {first} and {last}",
        )
    return ok(f"the clocks differ by {difference:.1f} s at most")


@check("ways", once=True)
def routes(context: CheckContext) -> Answer | None:
    """Whether each host reaches node 0, and a high port of every other host."""
    if context.plan is None or len(context.plan.nodes) == 1 or context.is_quick:
        return None
    report = context.routes
    if report is None:
        return skip("the network between the hosts was not tried")
    if report.error is not None:
        return fail(report.error, report.hint, "docs/remote.md, Several hosts")
    interfaces = ", ".join(dict.fromkeys(report.interfaces))
    return ok(f"all reach node 0 at {report.addresses[0]}, over {interfaces}")
