"""Values of a start that are known only later: on the node of an engine, or once a run has waited.

The files of the start have placeholders for them, in the folder `unbound/`, from which
runtime/start/placeholders.py writes the files with the values.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from safelaunch.model import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.model import Plan


def of_waiting(plan: Plan, run_id: str, *, waits: bool) -> dict[Slot, str]:
    """Return what stands for the values of a plan on named machines that its supervisors fill in.

    A port that is free at the start may be another's after a wait. Of several nodes the rendezvous
    has been agreed on by then.
    """
    slots = [Slot.PORT] if waits and len(plan.nodes) == 1 else []
    return placeholders(plan, run_id, slots)


def placeholders(plan: Plan, run_id: str, slots: Iterable[Slot]) -> dict[Slot, str]:
    """Return what stands for the values: letters and digits, quoted as the values are."""
    text, number = repr(plan.nodes), zlib.crc32(run_id.encode())
    while f"{number:08x}" in text:
        number += 1
    names = {slot: slot.value.replace("-", "") for slot in slots}
    return {slot: f"safelaunch{name}{number:08x}" for slot, name in names.items()}
