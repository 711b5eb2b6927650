"""Check the world of processes at the start of a job and take it down at the end."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import torch.distributed.nn.functional  # noqa: F401  (imported early on purpose, see close)

if TYPE_CHECKING:
    from accelerate import Accelerator


def check_world_size(accelerator: Accelerator, expected: int) -> None:
    """Refuse to train in the wrong world.

    Processes that do not join one world do not fail: each trains alone, on all of the data, and
    reports a result that looks right.
    """
    if accelerator.num_processes != expected:
        raise RuntimeError(
            f"expected a world of {expected} processes, but this process is in a world of "
            f"{accelerator.num_processes}: check how the job was launched, or pass --world-size"
        )


def close(accelerator: Accelerator) -> None:
    """Destroy the process group for good, before Python itself shuts down.

    A gloo thread that still releases a tensor while Python shuts down aborts the process, after a
    run that went well (pytorch issue 190489). Destroying the group ends its threads, but only once
    nothing refers to the group. The wrapped model does, until it is collected; so would the default
    arguments in torch.distributed.nn.functional, which DDP imports, if that were imported only
    after the group was made.
    """
    accelerator.free_memory()
    gc.collect()
    accelerator.end_training()
