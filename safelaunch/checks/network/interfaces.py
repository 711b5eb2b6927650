"""Checks that the network interfaces of NCCL, gloo and the host's entry exist and are up."""

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

_SOURCES = {
    "NCCL_SOCKET_IFNAME": "NCCL user guide, NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME": "torch.distributed documentation, choosing the network interface",
}
_FOLDER = "/sys/class/net"


class _Selection(NamedTuple):
    """A variable that selects interfaces, as its library reads it."""

    name: str
    value: str
    tokens: tuple[str, ...]
    is_exact: bool = True
    is_excluded: bool = False

    def selects(self, interface: str) -> bool:
        """Whether an interface is selected."""
        prefixes = () if self.is_exact else self.tokens
        is_match = interface in self.tokens or interface.startswith(prefixes)
        return is_match != self.is_excluded

    def globs(self) -> list[str]:
        """Return the globs of the interfaces that may be selected."""
        if self.is_excluded:
            return [f"{_FOLDER}/*"]
        ending = "" if self.is_exact else "*"
        quoted = (re.sub(r"([*?[])", r"[\1]", token) for token in self.tokens if "/" not in token)
        return [f"{_FOLDER}/{token}{ending}" for token in quoted]


def _selections(host: HostContext) -> list[_Selection]:
    """Return what selects interfaces of a host: the plan, and the host's entry."""
    selections = []
    entry = host.entry.interface if host.job.topology.nodes > 1 else None
    derived = (entry, f"={entry}")  # the plan sets these from the entry
    value = _nccl_variable(host, "NCCL_SOCKET_IFNAME")
    if value and value not in derived:
        selections.append(_parse_nccl("NCCL_SOCKET_IFNAME", value))
    value = job_options.variable(host, "GLOO_SOCKET_IFNAME")
    if value and value not in derived:
        tokens = tuple(word.strip() for word in value.split(",") if word.strip())
        selections.append(_Selection("GLOO_SOCKET_IFNAME", value, tokens))
    if entry and not host.context.is_quick:  # a start checks it itself
        selections.append(_Selection("interface", entry, (entry,)))
    return selections


def _nccl_variable(host: HostContext, name: str) -> str | None:
    """Return a variable of NCCL, from its configuration files if the job does not set it."""
    value = job_options.variable(host, name)
    files, var = host.get("nccl_conf"), host.plan.env.get(name)
    if value or not isinstance(files, dict) or (var is not None and var.value is not None):
        return value
    pattern = re.compile(rf"^[ \t]*{name}=(\S+)", re.MULTILINE)
    matches = (pattern.search(str(text)) for text in files.values())
    return next((match[1] for match in matches if match), None)


def _parse_nccl(name: str, value: str) -> _Selection:
    """Parse a list as NCCL does: `^` excludes, then `=` asks for exact names."""
    included = value.removeprefix("^")
    exact = included.removeprefix("=")
    words = (word.strip().partition(":")[0] for word in exact.split(","))
    tokens = tuple(filter(None, words))
    return _Selection(name, value, tokens, exact != included, included != value)


def _interface_questions(host: HostContext) -> Iterable[Question]:
    return [("glob", pattern) for selection in _selections(host) for pattern in selection.globs()]


@check("interfaces", asks=_interface_questions, quick=True)
def interfaces(host: HostContext) -> Iterator[Answer]:
    """Whether the interfaces that NCCL, gloo and the hosts file name exist, with an address."""
    fine = []
    up = _up(host)
    for selection in _selections(host):
        name, setting = selection.name, f"{selection.name}={selection.value}"
        existing = _existing(host, selection)
        selected = [each for each in dict.fromkeys(existing) if selection.selects(each)]
        is_missing = name != "NCCL_SOCKET_IFNAME" and not set(selection.tokens) <= set(existing)
        if not selected or (is_missing and not selection.is_excluded):
            yield _no_interface(host, selection)
        elif up is not None and not {*up, "lo"}.intersection(selected):
            yield warn(
                f"{setting}: {', '.join(selected)} has no address that is up",
                f"`ip -br address` on {host.name} shows those that are up: name one of them",
                _SOURCES.get(name, ""),
            )
        else:
            fine.append(f"{setting} exists ({', '.join(selected[:3])})")
    if fine:
        yield ok("; ".join(fine))


def _existing(host: HostContext, selection: _Selection) -> list[str]:
    """Return the interfaces that a variable may select from. Raises NotKnown."""
    try:
        answers = [host.answer("glob", pattern)["found"] for pattern in selection.globs()]
    except NotKnown:  # the host's own variable: it was not known before the host was asked
        return list(host.fact("network", "links"))
    return [path.rpartition("/")[2] for paths in answers for path in paths]


def _no_interface(host: HostContext, selection: _Selection) -> Answer:
    name = selection.name
    up = _up(host) or []
    choice, shown = "NAME", ""
    if up:
        choice, shown = up[0], f"; up are {', '.join(up[:5])}"
    what = f"{selection.value}: no such interface{shown}"
    if name == "interface":
        return fail(f"interface: {what}", f"`interface: {choice}` in the host's entry")
    value = f"={choice}" if name.startswith("NCCL") else choice
    hint = f"env: {{{name}: {value}}}, a name of `ls {_FOLDER}` on {host.name}"
    if host.job.topology.nodes == 1:
        hint = f"env: {{{name}: null}}; one machine needs none"
    answer = fail if _is_fatal(host, name) else warn
    return answer(f"{name}={what}", hint, _SOURCES.get(name, ""))


def _is_fatal(host: HostContext, name: str) -> bool:
    """Whether several ranks certainly use the library: NCCL on GPUs, gloo without them."""
    profile, job = host.profile, host.job
    if profile is None or not launchers.load(job.launcher).STARTS_RANKS:
        return False
    several = job.topology.world_size is None or job.topology.world_size > 1
    return several and profile.accelerator == ("cuda" if name.startswith("NCCL") else "cpu")


def _up(host: HostContext) -> list[str] | None:
    """Return the interfaces with an address; None where they are not known."""
    addresses = host.get("network", "addresses")
    if addresses is None:
        return None
    return list(dict.fromkeys(str(address.get("interface")) for address in addresses))


@check("rdma-devices", needs=("network",))
def rdma_devices(host: HostContext) -> Answer | None:
    """Whether NCCL_IB_HCA selects an existing device with an active port."""
    value = _nccl_variable(host, "NCCL_IB_HCA")
    if not value or host.job.topology.nodes == 1:
        return None
    selection = _parse_nccl("NCCL_IB_HCA", value)
    devices = {str(device["name"]): device for device in host.get("network", "infiniband") or []}
    selected = [name for name in devices if selection.selects(name)]
    source = "NCCL user guide, NCCL_IB_HCA"
    if not selected:
        existing = ", ".join(devices) or "there are none"
        return warn(
            f"NCCL_IB_HCA={value} matches no device ({existing}): NCCL falls back to TCP",
            "name devices that `ls /sys/class/infiniband` shows, or `env: {NCCL_IB_HCA: null}`",
            source,
        )
    active = [
        name
        for name in selected
        if any("ACTIVE" in str(port.get("state")) for port in devices[name].get("ports") or [])
    ]
    if not active:
        return warn(
            f"NCCL_IB_HCA={value}: no port of {', '.join(selected)} is active",
            "env: {NCCL_IB_HCA: null} lets NCCL choose active ones; `ibstat` shows them",
            source,
        )
    return ok(f"NCCL_IB_HCA={value} selects {', '.join(active)}")
