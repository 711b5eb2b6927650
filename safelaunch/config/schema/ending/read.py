"""What follows the end of a run, from the values of a job or of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.model import Ending, EndKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("on_success", "on_failure", "on_end", "end_timeout", "upload", "pull", "shutdown")


def read_ending(values: Mapping[str, Any]) -> Ending | None:
    """Return what the keys of a job or of a host say; None where there is none of them."""
    own = {key: values[key] for key in KEYS if key in values}
    if not own:
        return None
    if "end_timeout" in own:
        own["timeout"] = own.pop("end_timeout")
    return Ending(**own)


def take_end_keys(fields: dict[str, Any]) -> EndKeys | None:
    """Take the keys out of those of a host, and return them; None where there is none."""
    ending = read_ending(fields)
    cost, preemption = fields.pop("max_cost", None), fields.pop("preemption", None)
    for key in KEYS:
        fields.pop(key, None)
    if ending is None and cost is None and preemption is None:
        return None
    return EndKeys(ending or Ending(), cost, preemption)
