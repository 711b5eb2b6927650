"""Reads when a line was written, to compare lines of several logs."""

from __future__ import annotations

import re

_DATE = re.compile(
    r"\b\d{4}[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # ISO, logging, NCCL, Ray
    r"|\[[EWIF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)"  # c10d
    r"|\b[EWIF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)"  # glog
    r"|\b(?:ERROR|WARNING|INFO|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # vLLM
    r"|^\[?(\d\d)/(\d\d)/\d{4} (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # transformers' examples
)
FAR = 60  # lines above in which a time is looked for
_FIELDS = 6


def written(lines: list[str], index: int) -> str:
    """Return the time of a line as sortable text `MM-DD hh:mm:ss.ffffff`, "" where none is told.

    That of the nearest line above counts for a line without one. The year is left out: few logs
    of glog's kind have it, and no run is told apart by it.
    """
    for above in range(index, max(-1, index - FAR), -1):
        found = _DATE.search(lines[above][:200])
        if found is None:
            continue
        parts = [part for part in found.groups() if part is not None]
        month, day, hour, minute, second = parts[:5]
        fraction = parts[5] if len(parts) == _FIELDS else "0"
        return f"{month}-{day} {hour}:{minute}:{second}.{fraction[:6]:0<6}"
    return ""
