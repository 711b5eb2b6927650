"""The limits in time of a whole run: its `max_duration`, and the time that its budget pays for."""

from __future__ import annotations

from safelaunch.runtime.units import job_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import RunRecord

DURATION, BUDGET = "max_duration", "max_cost"
LIMITS = (DURATION, BUDGET)


def first(run: RunRecord) -> tuple[float, str]:
    """Return after how many seconds from its start a run is stopped, and by which limit."""
    limits = [(float("inf"), "")]
    if run.max_duration is not None:
        limits.append((run.max_duration, DURATION))
    if run.max_cost is not None:
        limits.append((run.max_cost.seconds, BUDGET))
    return min(limits, key=lambda limit: limit[0])


def reason(name: str, run: RunRecord) -> str:
    """Return why a run was stopped, as its status says it."""
    if name == BUDGET and run.max_cost is not None:
        cost, time = run.max_cost, job_duration(round(run.max_cost.seconds))
        budget = f"its budget of {cost.total or 0:g} is used up"
        return f"{budget} ({time} at {cost.per_hour or 0:g} an hour)"
    return f"its max_duration of {job_duration(run.max_duration or 0.0)} had passed"


def warning(name: str, run: RunRecord) -> str:
    """Return why a run is being stopped, as its log says it."""
    if name == BUDGET:
        return reason(name, run)
    return f"max_duration of {job_duration(run.max_duration or 0.0)} reached"
