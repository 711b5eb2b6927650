"""Stands in for torch.distributed.run where a test is about ranks and logs, not training.

Starts `--nproc_per_node` ranks as torchrun does: RANK in the environment, output inherited."""

import os
import subprocess
import sys

words = sys.argv[1:]
count, pipe = 1, False
while words and words[0].startswith("--"):
    name, value = words[0], words[1]
    words = words[2:]
    if name == "--nproc_per_node":
        count = int(value)
    if name == "--tee":
        pipe = True
sys.stdout.write(f"launcher: starting {count}\n")
sys.stdout.flush()
ranks = [
    subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)},
        stdout=subprocess.PIPE if pipe else None,
    )
    for rank in range(count)
]
if pipe:
    for rank in ranks:
        sys.stdout.buffer.write(b"teed: " + rank.communicate()[0])
sys.stdout.flush()
sys.exit(max(rank.wait() for rank in ranks))
