"""CPU and wall time of commands, and interleaved pairs: what disturbs one half disturbs both."""

from __future__ import annotations

import os
import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Cost(NamedTuple):
    """What a command took, in seconds: its processes' CPU, and the clock's time."""

    cpu: float
    wall: float


def cost(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end and return what it took. Its output goes nowhere."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode} of {' '.join(argv)}")
    return Cost(used.ru_utime + used.ru_stime, wall)


def first_line(argv: Sequence[str], mark: bytes, env: Mapping[str, str], cwd: str) -> float:
    """Return the seconds until a line with the mark can be read; then wait for the end."""
    start = time.perf_counter()
    process = subprocess.Popen(
        argv, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    seconds = 0.0
    for line in process.stdout or ():
        if not seconds and mark in line:
            seconds = time.perf_counter() - start
    if process.wait() != 0 or not seconds:
        raise SystemExit(f"exit code {process.returncode}, or no line, of {' '.join(argv)}")
    return seconds


def pairs(
    count: int, first: Callable[[], float], other: Callable[[], float]
) -> list[tuple[float, float]]:
    """Measure both in turns, after one unmeasured turn that warms the caches."""
    first(), other()
    return [(first(), other()) for _ in range(count)]


def median_ratio(measured: Sequence[tuple[float, float]]) -> float:
    """Return the median of the pairs' ratios."""
    return median(a / b for a, b in measured)


def median_difference(measured: Sequence[tuple[float, float]]) -> float:
    """Return the median of the pairs' differences."""
    return median(a - b for a, b in measured)
