"""Services of a job: each is a job of its own, with what the job says of machine and project."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file.reader import LOCAL
from safelaunch.config.members.order import OrderCycle, in_order
from safelaunch.config.members.presets import PRESETS, with_preset
from safelaunch.config.schema.members.services import SERVICE
from safelaunch.config.schema.members.words import LateWord, late_words
from safelaunch.config.yaml_io.node import Node, leaves, mapping, overlay
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.model import EnvVar, Ready
from safelaunch.runtime.start.accelerators import ACCELERATORS, DEVICE_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.config.hosts_file.reader import Hosts
    from safelaunch.model import Host, Job, Origin, Profile

# keys of the job that hold for its services too, unless they say otherwise
SHARED = frozenset((
    *("profile", "python", "venv", "conda", "conda_root", "workdir", "pythonpath", "env"),
    *("env_from", "inherit", "setup", "hosts", "capture", "container"),
))  # fmt: skip
_WORD = re.compile(r"(?<!\$)\{services\.([^.{}]*)\.([^{}]*)\}")
_FIELDS = ("host", "port", "url")


def trees(tree: Node, *, is_shared: bool = False) -> list[tuple[str, Node]]:
    """Return name and keys of each service of a job; `is_shared`: on several machines."""
    block = tree.get("services")
    items = block.items if block is not None else ()
    own = {key.name for key in SERVICE.keys}
    base = replace(tree, items=tuple(item for item in tree.items if item[0].text in SHARED))
    pairs = []
    for name, keys in items:
        job_keys = replace(keys, items=tuple(i for i in keys.items if i[0].text not in own))
        gpus, queue = keys.get("gpus"), tree.get("queue")
        if queue is not None and gpus is not None and not gpus.is_null:
            job_keys = overlay(mapping({"queue": queue}, queue.origin), job_keys)
        preset = keys.get("preset")
        if preset is not None and not preset.is_null:
            job_keys = with_preset(name.text, job_keys, preset.text, is_shared=is_shared)
        pairs.append((name.text, overlay(base, job_keys)))
    return pairs


def hosts(
    services: Mapping[str, Mapping[str, Any]], tree: Node, machines: Hosts, *, remote: bool
) -> list[str]:
    """Return the hosts that services name. Raises ConfigError."""
    names = []
    for service, keys in services.items():
        name = keys.get("host")
        if name is None:
            continue
        title, where = f"`host` of service `{service}`", _key(tree, service, "host").origin
        if not remote:
            hint = f"safelaunch remote --host HOST runs the job there, and this service on {name}"
            raise ConfigError(f"{title}, of a job on this machine", where=where, hint=hint)
        if name == LOCAL or name in machines.groups:
            what = "this machine" if name == LOCAL else "a group"
            hint = "one host: its name in the hosts file or in ~/.ssh/config"
            raise ConfigError(f"{title}: {name} is {what}", where=where, hint=hint)
        names.append(name)
    return names


def readiness(keys: Mapping[str, Any]) -> Ready:
    """Return when a service is ready: as it says, else as its preset does."""
    ready: Ready = keys.get("ready", Ready())
    preset = keys.get("preset")
    is_open = ready.http is None and ready.log is None and not ready.command
    if preset is None or not is_open:
        return ready
    return replace(ready, http=PRESETS[preset].http)


def without_cards(job: Job, profile: Profile | None, origin: Origin) -> Job:
    """Return the job of a service that asks for no cards, beside one that the queue gives some.

    It sees none: any card may be another run's. Raises ConfigError where it names some itself.
    """
    kind = "cuda" if profile is None else profile.accelerator
    own = next((var for var in job.env if var.name in DEVICE_VARIABLES), None)
    if own is not None and own.value:
        what = f"`{own.name}` of a service and `queue`, which chooses the cards"
        raise ConfigError(what, where=own.origin, hint="gpus: N in the service")
    if job.queue is not None or own is not None or kind == "cpu":
        return job
    why = "it asks for no cards of the queue"
    hidden = EnvVar(ACCELERATORS[kind].devices, "", origin, why=why)
    return replace(job, env=(*job.env, hidden))


def check(
    services: Mapping[str, Mapping[str, Any]], tree: Node, job: Job, hosts: Sequence[Host]
) -> None:
    """Check what services, job and the hosts of its nodes say of each other. Raises ConfigError."""
    where = job.origin("services")
    if job.engine is not None:
        hint = "start the server in the job itself"
        raise ConfigError(f"`services` and --on {job.engine}", where=where, hint=hint)
    for host in hosts:
        _check_container(job, host)
    elsewhere = next((name for name, keys in services.items() if "host" in keys), None)
    if elsewhere is not None and job.queue is not None:
        raise ConfigError(
            f"`host` of service `{elsewhere}` and `queue`, which is that of one machine",
            where=_key(tree, elsewhere, "host").origin,
            hint="name the cards: `gpus: [0, 1]`",
        )
    if job.starts_one_node:
        hint = "start all nodes at once: `safelaunch remote --host FIRST --host SECOND`"
        what = "`services` of a job whose nodes are started by hand"
        raise ConfigError(what, where=where, hint=hint)
    _check_order(services, tree)
    for word in _words(tree):
        name, field, origin = word.match[1], word.match[2], word.node.origin
        if name not in services:
            hint = did_you_mean(name, services) or "known: " + ", ".join(services)
            raise ConfigError(f"no service `{name}`", where=origin, hint=hint)
        if field not in _FIELDS:
            hint = ", ".join(f"{{services.{name}.{field}}}" for field in _FIELDS)
            raise ConfigError(f"a service has no `{field}`", where=origin, hint=hint)
    _check_ports(services, tree)
    if job.queue is None:  # which gives each others
        ranks = [host.name for host in hosts[: job.topology.nodes]]
        _check_gpus(tree, ranks)


def _check_container(job: Job, host: Host) -> None:
    """Refuse a job that runs in a container of its own, or of its host."""
    own, of_host = job.container, host.container
    if own is not None and own.off:
        return
    where, hint = job.origin("services"), "start the server in the job itself"
    if own is not None:
        raise ConfigError("`services` and a container", where=where, hint=hint)
    if of_host is not None and not of_host.off:
        message = f"`services` and the container of the host {host.name}"
        raise ConfigError(message, where=where, hint=f"{hint}, or leave it out: --container off")


def _block(tree: Node) -> Node:
    block = tree.get("services")
    if block is None:
        raise TypeError("a job without services")
    return block


def _key(tree: Node, name: str, key: str) -> Node:
    """Return a key of a service that is there."""
    service = _block(tree).get(name)
    node = None if service is None else service.get(key)
    if node is None:
        raise TypeError(f"service {name} without {key}")
    return node


def _words(tree: Node) -> Iterator[LateWord]:
    """Yield the words of the job and of all services that stand for the address of a service."""
    yield from late_words(tree, _WORD)
    for _, keys in trees(tree):
        yield from late_words(keys, _WORD)
    for _, keys in _block(tree).items:
        ready = keys.get("ready")
        for leaf in leaves(ready) if ready is not None else ():
            yield from (LateWord("ready", leaf, match) for match in _WORD.finditer(leaf.text))


def _check_order(services: Mapping[str, Mapping[str, Any]], tree: Node) -> None:
    for name, keys in services.items():
        for other in keys.get("after", ()):
            if other not in services:
                hint = did_you_mean(other, services) or "known: " + ", ".join(services)
                where = _key(tree, name, "after").origin
                raise ConfigError(f"no service `{other}`", where=where, hint=hint)
    try:
        in_order({name: keys.get("after", ()) for name, keys in services.items()})
    except OrderCycle as e:
        where = _key(tree, e.path[0], "after").origin
        raise ConfigError(f"services wait for each other: {e}", where=where) from None


def _check_ports(services: Mapping[str, Mapping[str, Any]], tree: Node) -> None:
    ports: dict[tuple[str, int], str] = {}
    for name, keys in services.items():
        port = keys.get("port")
        if port is None:
            continue
        where = _key(tree, name, "port").origin
        place = (keys.get("host", ""), port)
        if place in ports:
            raise ConfigError(
                f"port {port} of service `{name}` is that of `{ports[place]}`",
                where=where,
                hint="leave `port` out: each service gets a free one",
            )
        ports[place] = name


def _cards(node: Node | None) -> set[str] | None:
    """Return the cards of a `gpus:` key; None where there is none, or it says auto."""
    if node is None or node.is_null or node.text == "auto":
        return None
    if node.kind == "list":
        return {item.text for item in node.items}
    return {str(card) for card in range(int(node.text))}


def _check_gpus(tree: Node, ranks: Sequence[str]) -> None:
    """Refuse a card that two of them have on one host; the ranks have theirs on each of `ranks`."""
    by_host: dict[str, list[tuple[str, Node]]] = {}
    for name, keys in _block(tree).items:
        host = keys.get("host")
        place = ranks[0] if host is None or host.is_null else host.text
        by_host.setdefault(place, []).append((f"service `{name.text}`", keys))
    for host, parts in by_host.items():
        _check_gpus_of_host(tree, [("the job", tree), *parts] if host in ranks else parts)


def _check_gpus_of_host(tree: Node, parts: Sequence[tuple[str, Node]]) -> None:
    owners: dict[str, str] = {}
    named = [title for title, keys in parts if _cards(keys.get("gpus")) is not None]
    for title, keys in parts:
        node = keys.get("gpus")
        cards = _cards(node)
        if cards is None and title == "the job" and named:
            raise ConfigError(
                f"{named[0]} has cards of its own, and the job takes all",
                where=_block(tree).origin,
                hint="give the job `gpus: [..]` too",
            )
        for card in sorted(cards or ()):
            if card in owners:
                raise ConfigError(
                    f"card {card} of {title} is that of {owners[card]}",
                    where=None if node is None else node.origin,
                    hint="name cards that no other one has: `gpus: [2, 3]`",
                )
            owners[card] = title
