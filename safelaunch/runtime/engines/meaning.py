"""What is shown of a run on an engine, and what its own record says of its end."""

from __future__ import annotations

from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import Nullable, Status


class Meaning(Record):
    """What is shown of a run, by the engine's word and its own record."""

    state: str = "unknown"  # pending, running, succeeded, failed, stopped, lost or unknown
    reason: str = ""  # why, in words
    class_name: Nullable[str] = None  # failure class
    remedy: str = ""  # what to do


def is_by_signal(status: Status) -> bool:
    """Whether a signal has stopped it that our own `stop` did not bring, such as a preemption's."""
    is_signal = (status.stopped_by or "").startswith("SIG")
    return is_signal and not (status.stop_origin or "").startswith("`safelaunch stop`")


def failure_class(status: Status) -> str | None:
    """Return the failure class of a run's last attempt."""
    return status.attempts[-1].class_name if status.attempts else None
