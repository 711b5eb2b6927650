"""Stands in for torch.distributed.run where a test is about ranks and logs, not training.

Starts `--nproc_per_node` ranks as torchrun does: RANK in the environment, output inherited."""

import os
import signal
import subprocess
import sys


def stop(signum: int, _frame: object) -> None:
    """End as torch.distributed.run does, whose handler raises in the middle of its work."""
    raise InterruptedError(f"SignalException: got signal: {signum}")


if os.environ.get("FAKE_SIGNALS"):
    signal.signal(signal.SIGTERM, stop)
words = sys.argv[1:]
count, pipe, nodes, node = 1, False, 1, 0
shared = {}
while words and words[0].startswith("--"):
    name, value = words[0], words[1]
    words = words[2:]
    if name == "--nproc_per_node":
        count = int(value)
    if name == "--nnodes":
        nodes = int(value)
    if name == "--node_rank":
        node = int(value)
    if name in ("--master_addr", "--master_port"):
        shared[name[2:].upper()] = value
    if name == "--tee":
        pipe = True
sys.stdout.write(f"launcher: starting {count}\n")
sys.stdout.flush()
ranks = [
    subprocess.Popen(
        [sys.executable, *words],
        env={
            **os.environ,
            **shared,
            "RANK": str(node * count + rank),
            "WORLD_SIZE": str(nodes * count),
            "LOCAL_RANK": str(rank),
        },
        stdout=subprocess.PIPE if pipe else None,
    )
    for rank in range(count)
]
for rank in ranks:
    if rank.stdout is not None:
        sys.stdout.buffer.write(b"teed: " + rank.stdout.read())
sys.stdout.flush()


def wait(pid: int) -> int:
    """Wait for the end of a rank, and leave its exit status to be read: here no block tells it."""
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert info is not None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


code = max(wait(rank.pid) for rank in ranks)
sys.stdout.flush()
os._exit(code & 0xFF)  # without a wait for them, which would take the status
