"""What the samples of a run say that its owner would want to know, in sentences.

Read by whoever shows a run. A note is for what costs hours or ends the run: cards that wait, memory
or a disk that will be full.
"""

from __future__ import annotations

import csv

from safelaunch.runtime.units import BYTES, brief_duration, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Series: TypeAlias = list[tuple[float, float]]

IDLE = 5.0  # per cent: a desktop or a display on a card costs less
WORKING = 20.0
IDLE_FOR = 300.0  # seconds: longer than an evaluation on one rank, or a checkpoint, mostly takes
ALL_IDLE_FOR = 600.0  # and longer than a model takes to load, or a data set to be read, mostly
LOW, LOW_FOR = 30.0, 1800.0  # per cent, seconds
FIT_FOR, FIT_ROWS = 3600.0, 10  # seconds, rows: start-up is over, and noise does not tilt the line
STRAIGHT = 0.9  # R^2: memory that goes up and down with each batch stays far below
GROWN = 0.02  # of the total: less is the page tables and the allocator
MEMORY_HORIZON, DISK_HORIZON = 24 * 3600.0, 6 * 3600.0  # a leak kills overnight, a disk by evening
LITTLE_MIB, LITTLE_SHARE = 5 * 1024, 0.01  # a checkpoint of 1e9 parameters with Adam has 12 GB


def notes(path: str) -> list[str]:
    """Return sentences about the samples in `samples.csv`; none where nothing is remarkable."""
    rows = _read(path)
    if len(rows) < 2:  # noqa: PLR2004
        return []
    return _cards(rows) + _memory(rows) + _disks(rows)


def _read(path: str) -> list[dict[str, float]]:
    rows = []
    try:
        with open(path, newline="", errors="replace") as file:
            for line in csv.DictReader(file):  # one by one: those before a broken one are kept
                rows += [{k: float(v) for k, v in line.items() if _is_number(k, v)}]
    except (OSError, ValueError, csv.Error):
        pass  # half a row at the end, or none at all: what was read before counts
    return [row for row in rows if "elapsed_s" in row]


def _is_number(key: object, value: object) -> bool:
    text = value if isinstance(value, str) and isinstance(key, str) else ""
    return text.replace(".", "", 1).replace("-", "", 1).isdigit()


def _series(rows: list[dict[str, float]], name: str, seconds: float) -> Series:
    """Return (time, value) of the last `seconds`."""
    begin = rows[-1]["elapsed_s"] - seconds
    return [(r["elapsed_s"], r[name]) for r in rows if name in r and r["elapsed_s"] >= begin]


def _median(series: Series) -> float:
    values = sorted(value for _, value in series)
    return values[len(values) // 2]


# -- cards -----------------------------------------------------------------------------------------


def _cards(rows: list[dict[str, float]]) -> list[str]:
    names = sorted({n for row in rows for n in row if n.startswith("gpu") and n.endswith("_util")})
    idle = {name[3:-5]: _idle_for(rows, name) for name in names}
    if not idle:
        return []
    if min(idle.values()) >= ALL_IDLE_FOR:
        who = "the card has" if len(idle) == 1 else "all %d cards have" % len(idle)
        return ["%s been idle for %s" % (who, brief_duration(min(idle.values())))]
    recent = {card: _series(rows, "gpu%s_util" % card, IDLE_FOR) for card in idle}
    if any(series and _median(series) >= WORKING for series in recent.values()):
        lazy = [card for card, seconds in idle.items() if seconds >= IDLE_FOR]
        if lazy:
            since = brief_duration(min(idle[card] for card in lazy))
            who = "card %s has" % lazy[0] if len(lazy) == 1 else "cards %s have" % ", ".join(lazy)
            return ["%s been idle for %s while the others work" % (who, since)]
    return _low(rows, names)


def _idle_for(rows: list[dict[str, float]], name: str) -> float:
    """Return for how many seconds, to the last sample, a card has done nothing."""
    begin = None
    for row in reversed(rows):
        if name not in row:
            continue  # nvidia-smi did not answer
        if row[name] >= IDLE:
            break
        begin = row["elapsed_s"]
    return 0.0 if begin is None else rows[-1]["elapsed_s"] - begin


def _low(rows: list[dict[str, float]], names: list[str]) -> list[str]:
    every = [point for name in names for point in _series(rows, name, LOW_FOR)]
    span = rows[-1]["elapsed_s"] - min((at for at, _ in every), default=rows[-1]["elapsed_s"])
    if span < IDLE_FOR or _median(every) >= LOW or _median(every) < IDLE:
        return []
    said = "low load: the cards do %.0f %% (median of %s); they may wait for data or for each other"
    return [said % (_median(every), brief_duration(span))]


# -- what runs full --------------------------------------------------------------------------------


def _memory(rows: list[dict[str, float]]) -> list[str]:
    series = _series(rows, "host_mem_used_mib", FIT_FOR)
    total = rows[-1].get("host_mem_total_mib", 0.0)
    slope = _slope(series, GROWN * total)
    if slope is None or slope <= 0 or not total:
        return []
    left = max(0.0, total - series[-1][1]) / slope
    if left > MEMORY_HORIZON:
        return []
    rate = slope * 3600 / 1024
    return [
        "host memory grows by %.1f GiB an hour: full in about %s" % (rate, brief_duration(left))
    ]


def _disks(rows: list[dict[str, float]]) -> list[str]:
    found: list[str] = []
    seen = set()
    for place, words in (("cwd", "the job's folder"), ("run", "the run directory")):
        free, total = rows[-1].get("%s_free_mib" % place), rows[-1].get("%s_total_mib" % place)
        if free is None or not total or (free, total) in seen:
            continue
        seen.add((free, total))
        series = _series(rows, "%s_free_mib" % place, FIT_FOR)
        slope = _slope(series, min(GROWN * total, 1024.0))
        left = free / -slope if slope is not None and slope < 0 else DISK_HORIZON + 1
        if free < min(LITTLE_MIB, max(LITTLE_SHARE * total, 1024.0)):
            found.append(
                "the disk of %s is nearly full: %s left" % (words, size(free * BYTES["MiB"]))
            )
        elif left <= DISK_HORIZON:
            found.append("the disk of %s will be full in about %s" % (words, brief_duration(left)))
    return found


def _slope(series: Series, least: float) -> float | None:
    """Return the units per second of a series that goes steadily one way by at least `least`."""
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
    return slope if abs(slope) * (times[-1] - times[0]) >= least else None
