"""Host facts: how many recorded outputs are read as expected, and what a hang costs a probe."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kills import tests
from rows import SAFELAUNCH, Row, home
from timing import cost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MORE = "SAFELAUNCH_GPU_HOSTS"  # files of further records, which the parsers were not written with
HANG = 15.0  # seconds, with a part's own limit of 10


def facts() -> Iterator[Row]:
    """Yield how recorded outputs are read, and how long a probe with a hanging nvidia-smi takes."""
    hosts = tests("support.facts.gpu_host_records")
    records = hosts.records()
    yield _read("outputs of GPU hosts in tests/data/gpu-hosts read as expected", records)
    for path in filter(None, os.environ.get(MORE, "").split(os.pathsep)):
        others = [record for record in hosts.records(Path(path)) if record not in records]
        yield _read("outputs of GPU hosts kept apart read as expected", others)
    with home() as (folder, env):
        taken = cost([SAFELAUNCH, "facts", "--json"], env)
        yield Row(
            "CPU time of `facts` of this machine", f"{taken.cpu:.2f} s", "<= 1 s", taken.cpu <= 1
        )
        yield _hanging(folder, env)


def _read(what: str, records: Sequence[dict[str, Any]]) -> Row:
    hosts = tests("support.facts.gpu_host_records")
    wrong = [differences for differences in map(hosts.differences, records) if differences]
    for differences in wrong:
        print(*differences, sep="\n", file=sys.stderr)
    good = len(records) - len(wrong)
    return Row(what, f"{good}/{len(records)}", "all", bool(records) and not wrong)


def _hanging(folder: str, env: dict[str, str]) -> Row:
    program = os.path.join(folder, "nvidia-smi")
    with open(program, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexec sleep 600\n")
    os.chmod(program, stat.S_IRWXU)
    start = time.monotonic()
    path = folder + os.pathsep + env.get("PATH", os.defpath)
    cost([SAFELAUNCH, "facts", "--json"], {**env, "PATH": path})
    taken = time.monotonic() - start
    with open(os.path.join(folder, "facts", "localhost.json"), encoding="utf-8") as saved:
        late = json.load(saved)["facts"]["gpus"]["late"]
    ok = taken <= HANG and "did not end" in late.get("query", "")
    return Row("`facts` where nvidia-smi hangs", f"{taken:.1f} s", f"<= {HANG:.0f} s", ok)
