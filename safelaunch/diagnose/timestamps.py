"""Parses the timestamps of log lines, to compare lines of several logs."""

from __future__ import annotations

import re

_TIMESTAMP = re.compile(
    r"\b\d{4}[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # ISO, logging, NCCL, Ray
    r"|\[[EWIF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)"  # c10d
    r"|\b[EWIF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)"  # glog
    r"|\b(?:ERROR|WARNING|INFO|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # vLLM
    r"|^\[?(\d\d)/(\d\d)/\d{4} (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # transformers' examples
)
MAX_LINES_ABOVE = 60  # searched for a timestamp
_FIELDS = 6


def parse_timestamp(lines: list[str], index: int) -> str:
    """Return the time of a line as sortable text `MM-DD hh:mm:ss.ffffff`, "" if there is none.

    A line without one has that of the nearest line above. The year is left out: few logs in glog
    format have it, and runs do not differ by it.
    """
    for position in range(index, max(-1, index - MAX_LINES_ABOVE), -1):
        match = _TIMESTAMP.search(lines[position][:200])
        if match is None:
            continue
        parts = [part for part in match.groups() if part is not None]
        month, day, hour, minute, second = parts[:5]
        fraction = parts[5] if len(parts) == _FIELDS else "0"
        return f"{month}-{day} {hour}:{minute}:{second}.{fraction[:6]:0<6}"
    return ""
