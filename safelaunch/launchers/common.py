"""What several launchers say alike: the program itself, and the address of node 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.model import Job, Slot, Word, text

if TYPE_CHECKING:
    from collections.abc import Iterable


def module_or_script(job: Job, module_flag: str) -> tuple[str, ...]:
    """Return the words that name the program: `train.py`, or the flag and a module."""
    if job.module is not None:
        return (module_flag, job.module)
    script = job.script or ""
    return (f"./{script}" if script.startswith("-") else script,)


def master_addr(job: Job) -> Word:
    """Return the rendezvous address: loopback on one node, else node 0's, known at the start."""
    return "127.0.0.1" if job.topology.nodes == 1 else text(Slot.MASTER_ADDR)


def for_elastic(words: Iterable[str]) -> tuple[str, ...]:
    """Return words so that torch's elastic agent hands them on unchanged.

    It sends each word behind the launcher's flags through string.Template
    (torch/distributed/elastic/utils/api.py): `$$` would become `$`, `${local_rank}` a number.
    """
    return tuple(w.replace("$", "$$") if "$$" in w or "local_rank" in w else w for w in words)


def one_process(job: Job) -> None:
    """Refuse a job that asks a launcher without ranks for several processes."""
    if job.topology.processes != 1:
        raise ConfigError(
            f"launcher `{job.launcher}` starts one process",
            where=job.origin("processes"),
            hint="use torchrun or accelerate",
        )
