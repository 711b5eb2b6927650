"""What Slurm says of the machines that it has given to a run, seen from one of them."""

from __future__ import annotations

from safelaunch.runtime import commands
from safelaunch.runtime.engines.allocation import Allocation, JoinError
from safelaunch.runtime.engines.slurm import node_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESS_LIMIT = 20.0  # seconds for scontrol


def of_step(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation that the variables of a step describe. Raises JoinError.

    The variables are those of srun(1): in the batch script some mean other things.
    """
    text = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
    number = environ.get("SLURM_NODEID", "")
    if not text or not number.isdigit():
        raise JoinError("SLURM_NODEID and SLURM_STEP_NODELIST are not set: srun starts this")
    try:
        nodes = node_list.expand(text)
    except ValueError as e:
        raise JoinError(str(e)) from None
    node = int(number)
    own = environ.get("SLURMD_NODENAME")
    if node >= len(nodes) or (own and nodes[node] != own):
        raise JoinError(f"node {node} of `{text}` is not {own}")
    return Allocation(
        nodes,
        node,
        _count(environ, "SLURM_RESTART_COUNT") or 0,
        _count(environ, "SLURM_CPUS_PER_TASK"),
        _address,
        # of a task of an array the name of the whole
        job=environ.get("SLURM_ARRAY_JOB_ID") or environ.get("SLURM_JOB_ID", ""),
        environ=environ,
        part=_count(environ, "SLURM_ARRAY_TASK_ID"),
    )


def _count(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isdigit() else None


def _address(name: str) -> str | None:
    """Return the address of a node in Slurm's configuration; None where it does not answer."""
    argv = ("scontrol", "show", "node", name, "--oneliner")
    answer = commands.RunningCommand(argv).result(ADDRESS_LIMIT)
    for word in answer.out.split() if answer.code == 0 else ():
        key, _, value = word.partition("=")
        if key == "NodeAddr":
            return value
    return None
