"""What a job asks of the queue for the cards of its machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError
from safelaunch.runtime.start.accelerators import DEVICE_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import CardQueue, Host, Origin, Profile, Topology


def read_queue(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    tree: Node,
    topology: Topology,
    engine: str | None,
) -> CardQueue | None:
    """Return what a job asks of the queue, None where it does not wait. Raises ConfigError."""
    queue: CardQueue | None = values.get("queue")
    if queue is None:
        return None
    where = origins.get("queue")
    if engine is not None:
        title = engine.capitalize()
        hint = "leave it out (--set queue=false)"
        raise ConfigError(f"`queue`, where {title} has one of its own", where=where, hint=hint)
    if topology.nodes > 1:
        hint = "it is of one machine: two jobs would each have a part of what the other waits for"
        raise ConfigError("`queue` and several nodes", where=where, hint=hint)
    gpus, node = values.get("gpus", ()), tree.get("gpus")
    if not gpus or gpus == ("auto",) or (node is not None and node.kind == "list"):
        what = "`queue` without the number of cards that it waits for"
        if node is not None and node.kind == "list":
            what = f"`queue` and `gpus: [{', '.join(gpus)}]`: the queue chooses the cards"
        hint = f"gpus: {len(gpus) if gpus not in ((), ('auto',)) else 'N'}"
        raise ConfigError(what, where=where, hint=hint)
    own = next((var for var in values.get("env", ()) if var.name in DEVICE_VARIABLES), None)
    if own is not None:
        what = f"`{own.name}` and `queue`, which chooses the cards"
        raise ConfigError(what, where=own.origin, hint="leave one of them out")
    return replace(queue, count=len(gpus))


def check_queue(
    queue: CardQueue | None, origin: Origin, machine: Host, profile: Profile | None, *, boxed: bool
) -> None:
    """Refuse a queue where there are no cards, or in a container. Raises ConfigError."""
    if queue is None:
        return
    if profile is not None and profile.accelerator == "cpu":
        raise ConfigError(
            f"`queue`, and profile `{profile.name}` has no cards to wait for",
            where=origin,
            hint="leave it out (--set queue=false)",
        )
    if boxed or machine.container is not None:
        raise ConfigError(
            "`queue` and `container`: what runs in it does not see who else has the cards",
            where=origin,
            hint="leave one of them out",
        )
