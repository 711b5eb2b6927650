"""How far what follows the end of a run is, in words."""

from __future__ import annotations

from safelaunch.runtime.units import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import StatusSummary

SCRIPT = "end.sh"  # the job's own directory, set-up and variables around a command
RUNNING, WAITING, GRACE = "running", "waiting", "grace"
DONE, FAILED, STOPPED, LOST = "done", "failed", "stopped", "lost"


def describe(status: StatusSummary, run_id: str, now: float) -> str:
    """Return what is to be said of it, for people; "" where all is done."""
    ending = status.ending
    if ending is None or ending.state == DONE:
        return ""
    if ending.state == GRACE:
        left = (ending.shutdown_at or now) - now
        keeps = f"safelaunch stop {run_id} keeps the machine on"
        off = "the machine is shut down"
        return f"the machine shuts down in {duration(left)}: {keeps}" if left > 0 else off
    words = {WAITING: "the machine stays on", FAILED: "AT ITS END FAILED"}
    return f"{words.get(ending.state, 'at its end')}: {ending.what}"


def short(status: StatusSummary, now: float) -> str:
    """Return the same for a column of a table."""
    ending = status.ending
    if ending is None or ending.state in (DONE, STOPPED):
        return ""
    if ending.state == GRACE:
        left = (ending.shutdown_at or now) - now
        return f"shuts down in {duration(left)}" if left > 0 else "shut down"
    failed = [step.name for step in ending.steps if step.state == FAILED]
    last = failed[0] if failed else ending.steps[-1].name if ending.steps else "end"
    words = {RUNNING: f"{last} runs", WAITING: "stays on", FAILED: f"{last.upper()} FAILED"}
    return words.get(ending.state, "end lost")
