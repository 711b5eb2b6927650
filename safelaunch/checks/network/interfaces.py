"""Checks of the cards that NCCL, gloo and the host's entry name: they are there and are up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.checks import job_options
from safelaunch.checks.answers import Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.checks.context import HostContext

_NCCL = "NCCL user guide, NCCL_SOCKET_IFNAME"
_GLOO = "torch.distributed documentation, choosing the network interface"
_FOLDER = "/sys/class/net"


class _Named(NamedTuple):
    """A variable that names cards, as its library reads it."""

    name: str
    value: str
    tokens: tuple[str, ...]
    is_exact: bool = True
    is_excluded: bool = False

    def takes(self, card: str) -> bool:
        """Whether a card is chosen."""
        is_match = any(card == t or (not self.is_exact and card.startswith(t)) for t in self.tokens)
        return is_match != self.is_excluded


def _named(host: HostContext) -> list[_Named]:
    """Return what names interfaces on a machine: the plan, and the host's entry."""
    found = []
    entry = host.entry.interface if host.job.topology.nodes > 1 else None
    derived = (entry, f"={entry}")  # what the plan makes of it says no more than it does
    value = _of_library(host, "NCCL_SOCKET_IFNAME")
    if value and value not in derived:
        found.append(_of_nccl("NCCL_SOCKET_IFNAME", value))
    value = job_options.variable(host, "GLOO_SOCKET_IFNAME")
    if value and value not in derived:
        tokens = tuple(word.strip() for word in value.split(",") if word.strip())
        found.append(_Named("GLOO_SOCKET_IFNAME", value, tokens))
    if entry and not host.context.is_quick:  # a start looks for it itself
        found.append(_Named("interface", entry, (entry,)))
    return found


def _of_library(host: HostContext, name: str) -> str | None:
    """Return a variable of NCCL's; its configuration files count where the job has none."""
    value = job_options.variable(host, name)
    files, var = host.get("nccl_conf"), host.plan.env.get(name)
    if value or not isinstance(files, dict) or (var is not None and var.value is not None):
        return value
    for text in files.values():
        match = re.search(rf"^[ \t]*{name}=(\S+)", str(text), re.MULTILINE)
        if match is not None:
            return match[1]
    return None


def _of_nccl(name: str, value: str) -> _Named:
    """Return a list as NCCL reads it: `^` excludes, then `=` asks for exact names."""
    rest = value.removeprefix("^")
    exact = rest.removeprefix("=")
    tokens = (word.strip().partition(":")[0] for word in exact.split(","))
    kept = tuple(token for token in tokens if token)
    return _Named(name, value, kept, exact != rest, rest != value)


def _pattern(token: str, *, is_exact: bool) -> str:
    quoted = re.sub(r"([*?[])", r"[\1]", token)
    return f"{_FOLDER}/{quoted}" + ("" if is_exact else "*")


def _patterns(named: _Named) -> list[str]:
    """Return the globs that show which cards a variable may choose."""
    if named.is_excluded:
        return [f"{_FOLDER}/*"]
    return [_pattern(token, is_exact=named.is_exact) for token in named.tokens if "/" not in token]


def _interfaces(host: HostContext) -> Iterable[Question]:
    return [("glob", pattern) for named in _named(host) for pattern in _patterns(named)]


@check("interfaces", "network", asks=_interfaces, quick=True)
def interfaces(host: HostContext) -> Iterator[Answer]:
    """Whether the interfaces that NCCL, gloo and the hosts file name are there, with an address."""
    fine = []
    for named in _named(host):
        cards = _cards(host, named)
        chosen = [card for card in dict.fromkeys(cards) if named.takes(card)]
        missing = [t for t in named.tokens if t not in cards and named.name != "NCCL_SOCKET_IFNAME"]
        if not chosen or (missing and not named.is_excluded):
            yield _no_card(host, named)
            continue
        silent = _without_address(host, chosen)
        if len(silent) == len(chosen) and "lo" not in chosen:
            hint = f"`ip -br address` on {host.name} shows those that are up: name one of them"
            yield warn(f"{named.name}={named.value}: {', '.join(silent)} has no IPv4 address that "
                       "is up", hint, _source(named))  # fmt: skip
            continue
        fine.append(f"{named.name}={named.value} is there ({', '.join(chosen[:3])})")
    if fine:
        yield ok("; ".join(fine))


def _cards(host: HostContext, named: _Named) -> list[str]:
    """Return the interfaces that a variable may choose from. Raises NotKnown."""
    try:
        found = [host.answer("glob", pattern)["found"] for pattern in _patterns(named)]
    except NotKnown:  # the machine's own variable: it was not known when it was asked
        return list(host.fact("network", "links"))
    return [path.rpartition("/")[2] for paths in found for path in paths]


def _no_card(host: HostContext, named: _Named) -> Answer:
    what = f"{named.name}={named.value}: no such interface"
    up = _up(host)
    choice = up[0] if up else "NAME"
    shown = f"; up are {', '.join(up[:5])}" if up else ""
    if named.name == "interface":
        return fail(
            what.replace("=", ": ", 1) + shown, f"`interface: {choice}` in the host's entry"
        )
    value = f"={choice}" if named.name.startswith("NCCL") else choice
    hint = f"env: {{{named.name}: {value}}}, a name of `ls {_FOLDER}` on {host.name}"
    if host.job.topology.nodes == 1:
        hint = f"env: {{{named.name}: null}}; one machine needs none"
    return (fail if _is_fatal(host, named) else warn)(what + shown, hint, _source(named))


def _is_fatal(host: HostContext, named: _Named) -> bool:
    """Whether the library is used for sure: NCCL by several ranks with cards, gloo without."""
    profile, job = host.profile, host.job
    if profile is None or not launchers.load(job.launcher).STARTS_RANKS:
        return False
    several = job.topology.world_size is None or job.topology.world_size > 1
    needed = "cuda" if named.name.startswith("NCCL") else "cpu"
    return several and profile.accelerator == needed


def _source(named: _Named) -> str:
    return {"NCCL_SOCKET_IFNAME": _NCCL, "GLOO_SOCKET_IFNAME": _GLOO}.get(named.name, "")


def _up(host: HostContext) -> list[str]:
    """Return the interfaces with an IPv4 address, as far as they are known."""
    addresses = host.get("network", "addresses") or []
    return list(dict.fromkeys(str(one.get("interface")) for one in addresses))


def _without_address(host: HostContext, cards: list[str]) -> list[str]:
    if host.get("network", "addresses") is None:
        return []
    up = _up(host)
    return [card for card in cards if card not in up]


@check("rdma-devices", "network", needs=("network",))
def rdma_devices(host: HostContext) -> Answer | None:
    """Whether NCCL_IB_HCA chooses a device that is there, with a port that is active."""
    value = _of_library(host, "NCCL_IB_HCA")
    if not value or host.job.topology.nodes == 1:
        return None
    named = _of_nccl("NCCL_IB_HCA", value)
    devices = {str(one["name"]): one for one in host.get("network", "infiniband") or []}
    chosen = [name for name in devices if named.takes(name)]
    source = "NCCL user guide, NCCL_IB_HCA"
    if not chosen:
        has = ", ".join(devices) or "none"
        return warn(
            f"NCCL_IB_HCA={value} fits no device, there is {has}: NCCL falls back to TCP",
            "name devices that `ls /sys/class/infiniband` shows, or `env: {NCCL_IB_HCA: null}`",
            source,
        )
    active = [name for name in chosen if _is_active(devices[name].get("ports") or [])]
    if not active:
        return warn(
            f"NCCL_IB_HCA={value}: no port of {', '.join(chosen)} is active",
            "env: {NCCL_IB_HCA: null} lets NCCL take those that are; `ibstat` shows them",
            source,
        )
    return ok(f"NCCL_IB_HCA={value} takes {', '.join(active)}")


def _is_active(ports: list[dict[str, str]]) -> bool:
    return any("ACTIVE" in str(port.get("state")) for port in ports)
