"""Durations, sizes and counts as people and job files write them."""

from __future__ import annotations

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Sequence


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `8.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if 0 < seconds < 0.9995:  # noqa: PLR2004 - what rounds to 1000 ms is 1 s
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes} min {int(seconds % 60)} s"
    if days == 0:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def brief_duration(seconds: float) -> str:
    """Return a duration in one unit, from two of it on: `40 s`, `12 min`, `5 h`, `3 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def job_duration(seconds: float) -> str:
    """Return a duration as a job file writes it: 90 is `1m30s`."""
    text, rest = "", seconds
    for unit, size in SECONDS.items():
        count, rest = divmod(rest, size) if size > 1 else (rest, 0)
        text += f"{count:g}{unit}" if count else ""
    return text or "0s"


def size(count: float) -> str:
    """Return bytes in binary units: `812 B`, `23.6 GiB`, `2 TiB`."""
    return _scaled(count, 1024, ("B", *BYTES))


def job_size(count: float) -> str:
    """Return bytes as a job file writes them: `23.6GiB`."""
    return _scaled(count / 1024, 1024, tuple(BYTES)).replace(" ", "")


def transfer_size(count: float) -> str:
    """Return bytes in decimal units, as network speeds are given: `812 B`, `36.2 MB`."""
    return _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB"))


def _scaled(count: float, step: int, units: Sequence[str]) -> str:
    index = 0
    while count >= step - 0.05 and index < len(units) - 1:  # what rounds to a step is one
        count /= step
        index += 1
    number = f"{count:.1f}".rstrip("0").rstrip(".")
    return f"{number} {units[index]}"


def quantity(number: int | None, noun: str) -> str:
    """Return a number of things: `1 file`, `2,345 files`, `0 processes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number or 0:,} {noun}{ending}"


def name_ranks(ranks: Iterable[int]) -> str:
    """Return `rank 1`, or `ranks 0, 2-5`."""
    numbers = sorted(ranks)
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"rank{'s' if len(numbers) > 1 else ''} {words}"


def starter(start: str | None) -> str:
    """Return what starts the ranks of a run, as messages call it; `start` is that of run.json."""
    return "the launcher" if start is None else "the starter of the ranks"
