"""Values of a start that are known only later: on the node of an engine, or once a run has waited.

The files of the start have placeholders for them, in the folder `unbound/`, from which
runtime/start/placeholders.py writes the files with the values.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, cast

from safelaunch.model import Slot
from safelaunch.plan.members.words import late_values
from safelaunch.script import quoted_placeholder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from safelaunch.model import LateValue, Plan

# what each node of an engine fills in
OF_NODE = (Slot.MASTER_ADDR, Slot.PORT, Slot.INTERFACE, Slot.THREADS)


def of_waiting(plan: Plan, run_id: str, *, waits: bool) -> dict[Slot, str]:
    """Return what stands for the values of a plan on named machines that its supervisors fill in.

    A port that is free at the start may be another's after a wait. Of several nodes the rendezvous
    has been agreed on by then.
    """
    waits = waits or plan.queue is not None or bool(plan.services)
    slots = [Slot.PORT] if waits and len(plan.nodes) == 1 else []
    slots += [Slot.CARDS] if plan.queue is not None else []
    # the words of parts have other values in each
    words = [] if plan.fan_out is not None else late_values(plan)
    return placeholders(plan, run_id, [*slots, *words])


def placeholders(
    plan: Plan,
    run_id: str,
    slots: Iterable[Slot | LateValue],
    paths: Collection[Slot | LateValue] = (),
) -> dict[Slot, str]:
    """Return what stands for the values: a plain word, quoted as the values are.

    For `paths`, which may have blanks, it is a text that is always put into quotes.
    """
    text, number = repr(plan.nodes), zlib.crc32(run_id.encode())
    while f"{number:08x}" in text:
        number += 1
    # two late values may differ in a `-` alone
    names = {
        slot: slot.value.replace("-", "") if isinstance(slot, Slot) else slot.value
        for slot in slots
    }
    texts = {
        slot: quoted_placeholder(name) if slot in paths else f"safelaunch{name}"
        for slot, name in names.items()
    }
    texts = {slot: f"{name}{number:08x}" for slot, name in texts.items()}
    return cast("dict[Slot, str]", texts)  # a late value is bound as a slot is
