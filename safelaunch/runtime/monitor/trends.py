"""Turns the samples of a run into warnings for its owner, one sentence each.

A warning is for what costs hours or ends the run: idle GPUs, memory or a disk that fills up.
"""

from __future__ import annotations

import csv

from safelaunch.runtime.units import BYTES, brief_duration, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Series: TypeAlias = list[tuple[float, float]]

IDLE = 5.0  # per cent: a desktop or a display on a GPU costs less
WORKING = 20.0  # per cent
IDLE_FOR = 300.0  # seconds: longer than an evaluation on one rank, or a checkpoint, mostly takes
ALL_IDLE_FOR = 600.0  # seconds: longer than loading a model or reading a data set mostly takes
LOW, LOW_FOR = 30.0, 1800.0  # per cent, seconds
# seconds, rows of a fitted line: start-up is over, and noise does not tilt the line
FIT_FOR, FIT_ROWS = 3600.0, 10
STRAIGHT = 0.9  # R^2: memory that goes up and down with each batch stays far below
MIN_GROWTH = 0.02  # of the total: the page tables and the allocator account for less
MEMORY_HORIZON, DISK_HORIZON = 24 * 3600.0, 6 * 3600.0  # a leak kills overnight, a disk by evening
LITTLE_MIB, LITTLE_SHARE = 5 * 1024, 0.01  # a checkpoint of 1e9 parameters with Adam has 12 GB


def warnings(path: str) -> list[str]:
    """Return warnings about the samples in `samples.csv`; none where all is normal."""
    rows = _read(path)
    if len(rows) < 2:  # noqa: PLR2004
        return []
    return _gpus(rows) + _memory(rows) + _disks(rows)


def _read(path: str) -> list[dict[str, float]]:
    rows = []
    try:
        with open(path, newline="", errors="replace") as file:
            for line in csv.DictReader(file):  # row by row: the rows before a broken one are used
                rows += [{k: float(v) for k, v in line.items() if _is_number(k, v)}]
    except (OSError, ValueError, csv.Error):
        pass  # half a row at the end, or no file: use the rows that were read
    return [row for row in rows if "elapsed_s" in row]


def _is_number(key: object, value: object) -> bool:
    text = value if isinstance(value, str) and isinstance(key, str) else ""
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()


def _series(rows: list[dict[str, float]], name: str, seconds: float) -> Series:
    """Return (time, value) of the last `seconds`."""
    start = rows[-1]["elapsed_s"] - seconds
    return [(r["elapsed_s"], r[name]) for r in rows if name in r and r["elapsed_s"] >= start]


def _median(series: Series) -> float:
    values = sorted(value for _, value in series)
    return values[len(values) // 2]


# -- GPUs ------------------------------------------------------------------------------------------


def _gpus(rows: list[dict[str, float]]) -> list[str]:
    names = sorted({n for row in rows for n in row if n.startswith("gpu") and n.endswith("_util")})
    idle = {name[3:-5]: _idle_for(rows, name) for name in names}
    if not idle:
        return []
    if min(idle.values()) >= ALL_IDLE_FOR:
        who = "the GPU has" if len(idle) == 1 else f"all {len(idle)} GPUs have"
        return [f"{who} been idle for {brief_duration(min(idle.values()))}"]
    recent = {gpu: _series(rows, f"gpu{gpu}_util", IDLE_FOR) for gpu in idle}
    if any(series and _median(series) >= WORKING for series in recent.values()):
        idle_gpus = [gpu for gpu, seconds in idle.items() if seconds >= IDLE_FOR]
        if idle_gpus:
            since = brief_duration(min(idle[gpu] for gpu in idle_gpus))
            who = (
                f"GPU {idle_gpus[0]} has"
                if len(idle_gpus) == 1
                else f"GPUs {', '.join(idle_gpus)} have"
            )
            return [f"{who} been idle for {since} while the others work"]
    return _low(rows, names)


def _idle_for(rows: list[dict[str, float]], name: str) -> float:
    """Return for how many seconds, up to the last sample, a GPU has been idle."""
    idle_since = None
    for row in reversed(rows):
        if name not in row:
            continue  # nvidia-smi did not answer
        if row[name] >= IDLE:
            break
        idle_since = row["elapsed_s"]
    return 0.0 if idle_since is None else rows[-1]["elapsed_s"] - idle_since


def _low(rows: list[dict[str, float]], names: list[str]) -> list[str]:
    every = [point for name in names for point in _series(rows, name, LOW_FOR)]
    span = rows[-1]["elapsed_s"] - min((at for at, _ in every), default=rows[-1]["elapsed_s"])
    if span < IDLE_FOR or _median(every) >= LOW or _median(every) < IDLE:
        return []
    load = f"{_median(every):.0f} % (median of {brief_duration(span)})"
    return [f"low GPU load: {load}; the GPUs may be waiting for data or for each other"]


# -- memory and disks ------------------------------------------------------------------------------


def _memory(rows: list[dict[str, float]]) -> list[str]:
    series = _series(rows, "host_mem_used_mib", FIT_FOR)
    total = rows[-1].get("host_mem_total_mib", 0.0)
    slope = _slope(series, MIN_GROWTH * total)
    if slope is None or slope <= 0 or not total:
        return []
    left = max(0.0, total - series[-1][1]) / slope
    if left > MEMORY_HORIZON:
        return []
    rate = slope * 3600 / 1024
    return [f"host memory grows by {rate:.1f} GiB an hour: full in about {brief_duration(left)}"]


def _disks(rows: list[dict[str, float]]) -> list[str]:
    warnings: list[str] = []
    checked = set()
    for prefix, folder in (("cwd", "the job's folder"), ("run", "the run directory")):
        free, total = rows[-1].get(f"{prefix}_free_mib"), rows[-1].get(f"{prefix}_total_mib")
        if free is None or not total or (free, total) in checked:
            continue
        checked.add((free, total))
        series = _series(rows, f"{prefix}_free_mib", FIT_FOR)
        slope = _slope(series, min(MIN_GROWTH * total, 1024.0))
        left = free / -slope if slope is not None and slope < 0 else DISK_HORIZON + 1
        if free < min(LITTLE_MIB, max(LITTLE_SHARE * total, 1024.0)):
            warnings.append(
                f"the disk of {folder} is nearly full: {size(free * BYTES['MiB'])} left"
            )
        elif left <= DISK_HORIZON:
            warnings.append(f"the disk of {folder} will be full in about {brief_duration(left)}")
    return warnings


def _slope(series: Series, minimum: float) -> float | None:
    """Return the slope per second of a straight series that changes by at least `minimum`."""
    if len(series) < FIT_ROWS:
        return None
    times, values = [at for at, _ in series], [value for _, value in series]
    mean_t, mean_v = sum(times) / len(times), sum(values) / len(values)
    tt = sum((t - mean_t) ** 2 for t in times)
    vv = sum((v - mean_v) ** 2 for v in values)
    tv = sum((t - mean_t) * (v - mean_v) for t, v in series)
    if not tt or not vv or tv * tv / (tt * vv) < STRAIGHT:
        return None
    slope = tv / tt
    return slope if abs(slope) * (times[-1] - times[0]) >= minimum else None
