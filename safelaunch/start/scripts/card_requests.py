"""What run.json says of the cards of the machine that a run takes, or waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch import environ
from safelaunch.runtime.records import CardRequest
from safelaunch.runtime.start.accelerators import DEVICE_VARIABLES, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.model import NodePlan, Plan


def requests(
    plan: Plan, node: NodePlan, gpus: Sequence[str] | None, environ_: Mapping[str, str]
) -> tuple[CardRequest | None, CardRequest | None]:
    """Return what a node waits for in the queue of its machine, and what it takes without one.

    `gpus` are the cards that it sees. The starter adds the folder of the machine's claims.
    """
    if plan.engine is not None or node.container is not None:
        return None, None
    if plan.queue is None:
        words = {n: node.env[n].value for n in DEVICE_VARIABLES if n in node.env}
        planned = {n: None if word is None else str(word) for n, word in words.items()}
        kind = kind_of(planned or {n: environ_.get(n) for n in DEVICE_VARIABLES})
        takes_all = gpus is None and node.processes is None  # `gpus: auto`
        return None, CardRequest(kind=kind) if gpus or takes_all else None
    inherited = {
        name: environ_[name]
        for name in DEVICE_VARIABLES
        if name in environ_ and (node.keep is None or environ.matches(name, node.keep))
    }
    queue = plan.queue
    request = CardRequest(
        kind=queue.kind, count=plan.queued_cards, priority=queue.priority, environ=inherited
    )
    return request, None
