"""Which failures below a shell the shell handles itself, by the text of the job's command.

Scripts that the command names are read once the job is over: one that was changed since its start
shows nothing. Never raises.
"""

# ruff: noqa: PLC0415 - the reader of shell scripts, 10 ms: only where a program has failed

from __future__ import annotations

import os
import stat

from safelaunch.runtime.rank_exits import STEP
from safelaunch.runtime.records import PlannedNode, PlanRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.runtime.failure.rank_ends import ProcessEnd
    from safelaunch.runtime.records import RunRecord

SCRIPT_LIMIT = 1 << 20  # bytes
WAY_OUT = "`set -o pipefail`, `&&` or `|| exit 1` in the command passes it on"


class ShellVerdict:
    """The verdicts on the programs of one run's command; `starts` are those of an attempt."""

    def __init__(
        self, node_dir: str, run: RunRecord, attempt: int, starts: Sequence[ProcessEnd]
    ) -> None:
        plan = PlanRecord.read(node_dir) or PlanRecord()
        node = plan.nodes[0] if plan.nodes else PlannedNode()
        self.argv = (attempt > 1 and node.resume_argv) or node.argv
        self.setup = "\n".join(node.setup)
        self.cwd = run.cwd or "/"
        self.created_at = run.created_at
        self.starts = starts

    def handles(self, end: ProcessEnd) -> bool | None:
        """Return whether the shell handles a program's failure; None where that is unknown."""
        if not end.program or not self.argv:
            return None
        from safelaunch.runtime.shell import failures

        return failures.handles(self.setup, self.argv, end.program, self._read, self._turn(end))

    def _turn(self, end: ProcessEnd) -> tuple[int, int]:
        """Return the number of a program's start among all, and of these; (0, 0) if unknown.

        The ranks of one `torchrun` are one start.
        """
        name = os.path.basename(end.program)
        steps: dict[int, list[int]] = {}
        for start in self.starts:
            if os.path.basename(start.program) == name:
                steps.setdefault(start.rank, []).append(start.number // STEP)
        numbers = sorted(steps.get(end.rank, ()))
        is_known = all(sorted(others) == numbers for others in steps.values())
        if not is_known or end.number // STEP not in numbers:
            return 0, 0
        return numbers.index(end.number // STEP), len(numbers)

    def _read(self, name: str) -> str | None:
        path = os.path.join(self.cwd, name)
        try:
            info = os.stat(path)
            is_newer = self.created_at is not None and info.st_mtime > self.created_at
            if is_newer or not stat.S_ISREG(info.st_mode):  # a pipe would block
                return None
            with open(path, "rb") as file:
                return file.read(SCRIPT_LIMIT).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None
