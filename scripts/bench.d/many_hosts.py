"""What a list of the runs of thirty hosts takes beside thirty times `ssh HOST true` at once."""

from __future__ import annotations

import os
import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING

from latency import far_server
from rows import SAFELAUNCH, Row
from timing import median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOSTS = 30
PAIRS = 3
RATIO = 1.5
DELAY = 0.1  # seconds each way


def many_hosts() -> Iterator[Row]:
    """Yield the wall time of `ps` of many hosts on a long line, and its CPU time."""
    with far_server("many hosts over sshd", f"<= {RATIO}", {"MaxStartups": "500"}) as far:
        if isinstance(far, Row):
            yield far
            return
        folder, environ, server, line = far
        line.delay = DELAY
        names = [f"gpu{number:02}" for number in range(HOSTS)]
        alias = f"HostKeyAlias [{server.address}]:{server.port}"
        hosts = server.ssh_config(" ".join(names)).replace(
            f"Port {server.port}", f"Port {line.port}"
        )
        config = os.path.join(folder, ".ssh", "config")
        os.mkdir(os.path.dirname(config), 0o700)
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"{hosts}  {alias}\n")
        listing = [SAFELAUNCH, "ps", *(word for name in names for word in ("--host", name))]
        ssh = ["ssh", "-F", config, "-o", "LogLevel=ERROR"]
        measured = pairs(
            PAIRS,
            lambda: _at_once([listing], environ),
            lambda: _at_once([[*ssh, name, "true"] for name in names], environ),
        )
    ours, theirs = (median(column) for column in zip(*measured, strict=True))
    ratio = median_ratio(measured)
    yield Row(
        f"`ps` of {HOSTS} hosts, {2000 * DELAY:.0f} ms away: wall time / {HOSTS} times `ssh HOST "
        f"true` at once, median of {PAIRS} pairs",
        f"{ratio:.2f} ({ours:.1f} s / {theirs:.1f} s)",
        f"<= {RATIO}",
        ratio <= RATIO,
    )


def _at_once(commands: Sequence[Sequence[str]], env: Mapping[str, str]) -> float:
    """Return the seconds until all of some commands have ended."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    started = [subprocess.Popen(words, env=env, stdout=quiet, stderr=quiet) for words in commands]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"exit codes {codes} of {' '.join(commands[0])}")
    return time.perf_counter() - start
