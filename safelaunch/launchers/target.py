"""What several launchers say alike: the program itself, and the address of node 0."""

from __future__ import annotations

from safelaunch.model import Job, Slot, Word, text


def module_or_script(job: Job, module_flag: str) -> tuple[str, ...]:
    """Return the words that name the program: `train.py`, or the flag and a module."""
    if job.module is not None:
        return (module_flag, job.module)
    script = job.script or ""
    return (f"./{script}" if script.startswith("-") else script,)


def master_addr(job: Job) -> Word:
    """Return the rendezvous address: loopback on one node, else node 0's, known at the start."""
    return "127.0.0.1" if job.topology.nodes == 1 else text(Slot.MASTER_ADDR)
