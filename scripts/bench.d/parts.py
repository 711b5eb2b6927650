"""A run of many short parts, and what safelaunch adds to each; services, and the wait for them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kills import tests
from rows import Row
from timing import cost

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = 1000
SECONDS = 0.1  # that each part sleeps
AT_ONCE = 2
OVERHEAD = 0.15  # seconds
READY = 0.3  # seconds from a service's readiness to the job's start
PORT_OPENS = """\
import socket, sys, time
time.sleep(1)
server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
with open("ready", "w") as file:
    print(time.time(), file=file)
while True:
    server.accept()
"""
SAYS_WHEN = "import time\nprint(time.time(), flush=True)\n"


def parts() -> Iterator[Row]:
    """Yield what a part costs, and how soon a job begins once its service is ready."""
    tests("support.signals").restore_interrupts()
    workspace = tests("support.workspace")
    with tempfile.TemporaryDirectory(prefix="safelaunch-bench-") as folder:
        place = workspace.Place(Path(folder))
        job = place.shell(f"sleep {SECONDS}", shards=PARTS, at_once=AT_ONCE)
        took, cpu = _watched(place, place.start(job))
        place.close()
    each = took / PARTS - SECONDS / AT_ONCE
    yield Row(
        f"{PARTS:,} parts that sleep {SECONDS:g} s, {AT_ONCE} at once: time of the run for each "
        f"part - {SECONDS / AT_ONCE:g} s",
        f"{each:.3f} s ({took:.0f} s in all)",
        f"<= {OVERHEAD:g} s",
        each <= OVERHEAD,
    )
    yield Row(
        "processor time of it for each part (of that `bash -c 'sleep ...'` alone)",
        f"{cpu / PARTS:.3f} s ({_bare():.3f} s)",
        "-",
        True,
    )
    with tempfile.TemporaryDirectory(prefix="safelaunch-bench-") as folder:
        place = workspace.Place(Path(folder))
        waits = [_wait(place) for _ in range(5)]
        place.close()
    middle = sorted(waits)[len(waits) // 2]
    yield Row(
        f"from the open port of a service to the first line of the job, median of {len(waits)}",
        f"{middle:.2f} s",
        f"<= {READY:g} s",
        middle <= READY,
    )


def _watched(place: Any, run: str) -> tuple[float, float]:
    """Return how long a run took, and the processor time of its coordinator and all its parts."""
    coordinator = place.status(run)["launcher"]["pid"]
    cpu = 0.0
    while (status := place.status(run))["state"] == "running":
        cpu = max(cpu, _processor_time(coordinator))
        time.sleep(0.05)
    return status["elapsed"], cpu


def _processor_time(pid: int) -> float:
    """Return the seconds of a process and of all that it has waited for; 0 once it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    # utime, stime, and those of children (proc(5))
    return sum(map(int, text.rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


def _bare() -> float:
    """Return the processor time of the program of a part alone, the mean of 50."""
    return sum(cost(["bash", "-c", f"sleep {SECONDS}"]).cpu for _ in range(50)) / 50


def _wait(place: Any) -> float:
    """Return the seconds from the readiness of a service to the first line of its job."""
    place.write("server.py", PORT_OPENS)
    server = {"launcher": "python", "script": "server.py", "args": {"port": "{services.a.port}"}}
    job = place.job(SAYS_WHEN, services={"a": server})
    run = place.start(job)
    place.ended(run)
    line = place.cli("logs", run, "--tail", "1").stdout
    return float(line) - float((place.project / "ready").read_text())
