"""The exit codes by which a supervisor reports the end of its node to the engine of the run.

An engine knows a job by nothing else: with 0 Slurm starts what waits for the job's success.
"""

from __future__ import annotations

SUCCEEDED, FAILED = 0, 1
STOPPED = 143  # 128 + SIGTERM, as of a program that the signal has ended
REQUEUE = 75  # EX_TEMPFAIL of sysexits.h: the run wants to go on in another allocation

_BY_STATE = {"succeeded": SUCCEEDED, "stopped": STOPPED, "pending": REQUEUE}


def of_state(state: str) -> int:
    """Return the exit code for the state that status.json ends with."""
    return _BY_STATE.get(state, FAILED)
