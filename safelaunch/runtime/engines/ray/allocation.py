"""What the driver of a job tells each node: the names of all, and which one it is."""

from __future__ import annotations

import os

from safelaunch.runtime.engines.allocation import Allocation, JoinError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NODES, NODE, CORES = "SAFELAUNCH_RAY_NODES", "SAFELAUNCH_RAY_NODE", "SAFELAUNCH_RAY_CORES"
# by these Ray tells a worker its devices (ray/_private/accelerators); no other of its variables is
# meant for the ranks: OMP_NUM_THREADS is that of the actor, PATH that of the raylet
DEVICES = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR", "HABANA_VISIBLE_MODULES",
)  # fmt: skip


def of_actor(environ: Mapping[str, str]) -> Allocation:
    """Return the allocation that the driver has told an actor. Raises JoinError."""
    nodes = [name for name in environ.get(NODES, "").split(",") if name]
    number = environ.get(NODE, "")
    if not number.isdigit() or int(number) >= len(nodes):
        raise JoinError(f"{NODE} and {NODES} are not set: the driver of a Ray's job starts this")
    cores = environ.get(CORES, "")
    return Allocation(
        nodes,
        int(number),
        0,  # Ray starts no job again
        int(cores) if cores.isdigit() else None,
        lambda _: None,
        environ={name: environ[name] for name in DEVICES if name in environ},
    )


def node_name(environ: Mapping[str, str]) -> str:
    """Return Ray's name of this machine: its address."""
    nodes, number = environ.get(NODES, "").split(","), environ.get(NODE, "")
    is_named = number.isdigit() and int(number) < len(nodes)
    return nodes[int(number)] if is_named else os.uname().nodename
