"""The command that opens a shell on a node of a job."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.records import EngineJob


def command(job: EngineJob, host: str) -> tuple[str, ...]:
    """Return the words that open a shell on a node, beside the steps of its job."""
    cluster = [f"--clusters={job.cluster}"] if job.cluster else []
    words = ["--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--pty", "bash"]
    return (*job.prefix, "srun", *cluster, f"--jobid={job.job}", *words)
