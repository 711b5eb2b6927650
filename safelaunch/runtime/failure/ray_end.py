"""How the Ray that was started for a job has failed, as start_cluster.py has recorded it.

It comes before all else: what the program says of it, and its own end, only follow.
"""

from __future__ import annotations

import os

from safelaunch.runtime.failure.blame import ProcessFailure
from safelaunch.runtime.monitor import oom_kills
from safelaunch.runtime.records import RayFailure
from safelaunch.runtime.signatures import classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.failure.rank_ends import ProcessEnd
    from safelaunch.runtime.monitor.oom_kills import Kills


def find(node_dir: str, attempt: int, launcher: ProcessEnd, kills: Kills) -> ProcessFailure | None:
    """Return how Ray has failed on this node; None where it has not."""
    folder = os.path.join(node_dir, "ray", f"attempt-{attempt}")
    record = RayFailure.read(folder)
    if record is None:
        return None
    failure = ProcessFailure(launcher)
    failure.rank, failure.role, failure.what = None, "root", record.what
    failure.signal, failure.code = record.signal, None if record.pid else launcher.code
    failure.time_ns = int(record.time * 1e9)
    if record.class_name in classes.TABLE:
        failure.name = record.class_name
    # a raylet logs much that has not ended it
    lines = [record.what] if record.part else [*record.last_lines, record.what]
    match = None if record.signal else classes.classify("\n".join(lines))
    if match is not None and match.role == "root":
        failure.add_match(match)
    failure.proof = oom_kills.proof(kills, [record.pid]) if record.signal == "SIGKILL" else None
    if failure.proof:
        failure.name = "host-oom"
    log = os.path.join(folder, record.log)
    if record.log and os.path.exists(log):
        failure.log = log
        if failure.recognised is None and not failure.proof:
            failure.advice = f"Ray's own logs have more; their ends are in {folder}"
    return failure
