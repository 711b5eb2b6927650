"""Which failures below a shell the shell handles itself, by the text of the job's command.

Scripts that the command names are read once the job is over: one that was changed since its start
shows nothing. Never raises.
"""

from __future__ import annotations

import os
import stat

from safelaunch.runtime.records import PlannedNode, PlanRecord
from safelaunch.runtime.shell import failures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import RunRecord

SCRIPT_LIMIT = 1 << 20  # bytes
WAY_OUT = "`set -o pipefail`, `&&` or `|| exit 1` in the command passes it on"


class ShellVerdict:
    """The verdicts on the programs of one run's command."""

    def __init__(self, node_dir: str, run: RunRecord, attempt: int) -> None:
        plan = PlanRecord.read(node_dir) or PlanRecord()
        node = plan.nodes[0] if plan.nodes else PlannedNode()
        self.argv = (attempt > 1 and node.resume_argv) or node.argv
        self.setup = "\n".join(node.setup)
        self.cwd = run.cwd or "/"
        self.created_at = run.created_at

    def handles(self, program: str) -> bool | None:
        """Return whether the shell handles a failure of a program; None where that is unknown."""
        if not program or not self.argv:
            return None
        return failures.handles(self.setup, self.argv, program, self._read)

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
