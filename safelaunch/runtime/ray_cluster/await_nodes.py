"""Waits until all nodes are alive in a Ray, and prints what they have; 1 where some do not come.

    python await_nodes.py ADDRESS NODES SECONDS

It imports Ray while the head starts, and nothing of safelaunch.
"""

# ruff: noqa: PLC0415 - only the interpreter of the job has it

from __future__ import annotations

import os
import socket
import sys
import time

PLACE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != PLACE]  # its modules are ours
SHOWN = ("CPU", "GPU", "NPU", "TPU", "HPU")
PAUSE = 0.25


def main(address: str, count: int, limit: float) -> int:
    """Return 0 once so many nodes are alive."""
    import ray

    deadline, alive = time.monotonic() + limit, []  # type: tuple[float, list[str]]
    while time.monotonic() < deadline:
        try:
            if not ray.is_initialized():
                _connect(ray, address)
            alive = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
            if len(alive) >= count:
                _print(ray.cluster_resources(), alive)
                return 0
        except (OSError, RuntimeError):  # ConnectionError, of Ray too: the head is not there yet
            pass
        time.sleep(PAUSE)
    sys.stderr.write(
        f"{len(alive)} of {count} nodes have come within {limit:.0f} s: "
        f"{', '.join(alive) or 'none'}\n"
    )
    return 1


def _connect(ray: object, address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), 5).close()  # Ray itself would wait and warn
    ray.init(address=address, log_to_driver=False, logging_level="error")  # type: ignore[attr-defined]


def _print(resources: dict[str, float], alive: list[str]) -> None:
    counts = [f"{name} {resources[name]:g}" for name in SHOWN if name in resources]
    nodes = "1 node" if len(alive) == 1 else f"{len(alive)} nodes"
    print(f"Ray is up, {nodes} ({', '.join(alive)}): {', '.join(counts)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
