"""Values of a start that are known only later: on the node of an engine, or once a run has waited.

The files of the start have placeholders for them, in the folder `unbound/`, from which
runtime/start/placeholders.py writes the files with the values.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.model import Plan, Slot


def placeholders(plan: Plan, run_id: str, slots: Iterable[Slot]) -> dict[Slot, str]:
    """Return what stands for the values: letters and digits, quoted as the values are."""
    text, number = repr(plan.nodes), zlib.crc32(run_id.encode())
    while f"{number:08x}" in text:
        number += 1
    names = {slot: slot.value.replace("-", "") for slot in slots}
    return {slot: f"safelaunch{name}{number:08x}" for slot, name in names.items()}
