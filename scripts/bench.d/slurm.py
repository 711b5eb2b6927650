"""What becomes of runs on a real Slurm: their ends, stops at many moments, preemptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kills import case_row, tests
from rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

PREEMPTIONS = 10
ENDS_AT_A_TIME = 2


def slurm() -> Iterator[Row]:
    """Yield how many runs ended, stopped and went on as they should, with and without sacct."""
    tests("support.signals").restore_interrupts()
    support, runs = tests("support.slurm"), tests("support.faults.slurm_runs")
    for options, name in (((), "without accounting"), (("--accounting",), "with accounting")):
        what = f"ends of a job on Slurm, {name}: state and class"
        why = support.missing(accounting=bool(options))
        if why:
            yield Row(what, why, "all", None)
            continue
        with support.Slurm(*options) as cluster:
            # one after the other: a node that is down, and what is urgent, would disturb others
            yield case_row(
                what, [(str(c), lambda c: runs.run_end(c, cluster), c) for c in runs.ENDS], 1
            )
            if options:
                continue
            yield case_row(
                "stops at moments of a job on Slurm (pending, starting, running, restarting, "
                "requeued): stopped, no job, no process left",
                [(str(c), lambda c: runs.run_stop(c, cluster), c) for c in runs.STOPS],
                ENDS_AT_A_TIME,
            )
            yield case_row(
                "jobs on Slurm that are preempted at a random moment end as undisturbed ones",
                [
                    (f"preemption {n}", lambda n: runs.run_preemption(n, cluster), n)
                    for n in range(PREEMPTIONS)
                ],
                1,
            )
