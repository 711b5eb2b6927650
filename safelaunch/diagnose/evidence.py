"""Selects the log lines shown as evidence: the error, its traceback, its context, what followed."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime.failure import library_frames, log_tails
from safelaunch.runtime.signatures import activity, classes, conditions, tracebacks
from safelaunch.runtime.signatures import match as signatures_match

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.diagnose.logs.sources import LogSource
    from safelaunch.diagnose.scan import Excerpt
    from safelaunch.runtime.records import LibraryFrame
    from safelaunch.runtime.signatures.classes import Match

MIN_LINES, MAX_LINES = 3, 8  # of evidence
MAX_TRACEBACK_LINES = 400  # lines above an exception in which its traceback may start
MAX_LINE_LENGTH = 400  # characters
MAX_LINE_GAP = 40  # lines of other ranks between two lines of one message
MAX_MESSAGE_LINES = 2  # lines of a message shown below its first
_TRACEBACK_START = "Traceback (most recent call last)"
_CHAIN_MARKERS = (
    "direct cause of the following exception",
    "During handling of the above exception",
)
# `torch.distributed.checkpoint` quotes the traceback of another rank
_QUOTED = re.compile(r"most recent call last\): \(RANK (\d{1,6})\)")
_QUOTING = re.compile(r"Original Traceback|\(RANK \d")


class Frame(NamedTuple):
    """A frame of a traceback; `own` where it is in the user's code."""

    file: str
    line: int
    function: str
    code: str
    own: bool


class EvidenceLine(NamedTuple):
    """A line of a log."""

    path: str
    number: int
    text: str


def find_user_frame(candidate: Candidate, roots: list[str]) -> Frame | None:
    """Return the innermost frame of the user's own code, else the innermost frame.

    Chained tracebacks count too: an exception that a library re-raised came from the same call.
    """
    first: Frame | None = None
    for indexes in _chain(candidate):
        frames = [
            Frame(f.file, f.line, f.function, f.code, _is_own(f.file, roots))
            for f in log_tails.frames("\n".join(candidate.excerpt.lines[i] for i in indexes))
        ]
        own = next((frame for frame in reversed(frames) if frame.own), None)
        if own:
            return own
        first = first or (frames[-1] if frames else None)
    return first


def quoted_rank(candidate: Candidate) -> int | None:
    """Return the rank whose traceback another rank has printed; None for a rank's own traceback."""
    indexes = _traceback(candidate)
    match = _QUOTED.search(candidate.excerpt.lines[indexes[0]]) if indexes else None
    return int(match[1]) if match else None


def _is_own(file: str, roots: list[str]) -> bool:
    if roots:
        return log_tails.is_own(file, roots)
    return file.endswith(".py") and not library_frames.is_library(file)


def _chain(candidate: Candidate) -> Iterator[list[int]]:
    """Yield the line indexes of the traceback that ends at a candidate, then of chained ones.

    Of those, first the traceback that quotes it, then the ones below.
    """
    yield (own := _traceback(candidate))
    stream, all_lines = candidate.stream_indexes, candidate.excerpt.lines
    if own and _QUOTING.search(all_lines[own[0]]):
        above = stream[: bisect_left(stream, own[0])][-MAX_TRACEBACK_LINES:]
        starts = (n for n, index in enumerate(above) if _TRACEBACK_START in all_lines[index])
        yield above[max(starts, default=len(above)) :]
    below = stream[bisect_right(stream, candidate.index) :][:MAX_TRACEBACK_LINES]
    lines = [all_lines[index] for index in below]
    last = 0
    for end in tracebacks.exceptions(lines):
        if not any(marker in line for line in lines[last:end] for marker in _CHAIN_MARKERS):
            return
        yield below[last : end + 1]
        last = end + 1


def _traceback(candidate: Candidate) -> list[int]:
    """Return the line indexes, in its own stream, of the traceback that ends at a candidate."""
    stream, lines = candidate.stream_indexes, candidate.excerpt.lines
    position = bisect_left(stream, candidate.index)
    above = stream[max(0, position - MAX_TRACEBACK_LINES) : position]
    start = next((index for index in reversed(above) if _TRACEBACK_START in lines[index]), None)
    if start is None:
        return []
    indexes = stream[bisect_left(stream, start) : position + 1]
    # not where another exception ends inside: frames may follow one that wraps another (Ray's)
    ends = tracebacks.exceptions([lines[index] for index in indexes])
    return indexes if all(end == len(indexes) - 1 for end in ends) else []


def evidence_lines(candidate: Candidate, ordered: list[Candidate]) -> tuple[EvidenceLine, ...]:
    """Return the evidence for a cause, three to ten lines: its traceback, itself, what followed."""
    chosen: dict[tuple[str, int], EvidenceLine] = {}

    def add(origin: Candidate, index: int) -> None:
        line = _line(origin, index)
        chosen.setdefault((line.path, line.number), line)

    message = _message(candidate)[:MAX_MESSAGE_LINES]
    for index in (candidate.index, *_shown_frames(candidate), *message):
        add(candidate, index)
    shown_keys = {_dedup_key(candidate)}
    for other in ordered:
        if len(chosen) >= MAX_LINES:
            break
        # one line is enough where eight ranks print the same
        if not _is_irrelevant(other, candidate) and _dedup_key(other) not in shown_keys:
            shown_keys.add(_dedup_key(other))
            add(other, other.index)
    if len(chosen) < MIN_LINES:  # the lines just above, if not blank
        for index in range(candidate.index - 1, max(-1, candidate.index - 3), -1):
            if candidate.excerpt.raw[index].strip():
                add(candidate, index)
    order = sorted(chosen, key=lambda key: (key[0] != candidate.excerpt.source.name, key))
    return tuple(chosen[key] for key in order)


def _is_irrelevant(other: Candidate, candidate: Candidate) -> bool:
    """Whether a line is no evidence: a false alarm, or a mere warning above the cause."""
    if not candidate.weight:
        return False
    above = other.log == candidate.log and other.number < candidate.number
    return not other.weight or other.has_later_progress or (above and other.weight < classes.PLAIN)


def _dedup_key(candidate: Candidate) -> str:
    return candidate.match.signature.id if candidate.match.signature else candidate.match.line


def _shown_frames(candidate: Candidate) -> list[int]:
    """Return the line indexes of the innermost two frames: the user's own, if there are any."""
    shown: list[int] = []
    for indexes in _chain(candidate):
        lines = [candidate.excerpt.lines[index] for index in indexes]
        frames = [position for position, line in enumerate(lines) if tracebacks.is_frame(line)]
        own = [position for position in frames if _is_own(lines[position].split('"')[1], [])]
        chosen = [i for position in (own or frames)[-2:] for i in indexes[position : position + 2]]
        if own:
            return chosen
        shown = shown or chosen
    return shown


def whole_message(candidate: Candidate) -> str:
    """Return the whole message of an exception, "" for any other line; see `shorten`."""
    lines = candidate.excerpt.lines
    if not tracebacks.is_exception(lines[candidate.index]):
        return ""
    text = "\n".join(lines[index].rstrip() for index in (candidate.index, *_message(candidate)))
    return tracebacks.shorten(text.strip())


def find_library(candidate: Candidate) -> LibraryFrame | None:
    """Return the line of a library that raised an exception; None where it was other code."""
    lines = candidate.excerpt.lines
    text = "\n".join(lines[index] for index in _traceback(candidate))
    frame = library_frames.raising_frame(log_tails.frames(text))
    if frame is None:
        return None
    library = library_frames.library_frame(frame)
    library.version = conditions.version(lines, library.library)
    return library


def _message(candidate: Candidate) -> list[int]:
    """Return the indexes of further lines of the message of a cause: a location, a hint."""
    lines, stream = candidate.excerpt.lines, candidate.stream_indexes
    position = bisect_left(stream, candidate.index)
    indexes = stream[position : position + tracebacks.MESSAGE_LINES]
    gaps = (
        n for n, (last, index) in enumerate(pairwise(indexes), 1) if index - last > MAX_LINE_GAP
    )
    indexes = indexes[: next(gaps, len(indexes))]
    return indexes[1 : tracebacks.message_lines([lines[index] for index in indexes])]


def _line(candidate: Candidate, index: int) -> EvidenceLine:
    text = candidate.excerpt.raw[index].rstrip()[:MAX_LINE_LENGTH]
    return EvidenceLine(candidate.excerpt.source.name, candidate.excerpt.number + index, text)


# lines of progress after an error: ranks that wait for a dead one do not print so many
LONG_PROGRESS_LINES = 20
_TIMESTAMP = re.compile(
    r"\b\d{4}[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # ISO, logging, NCCL, Ray
    r"|\[[EWIF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)"  # c10d
    r"|\b[EWIF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)"  # glog
    r"|\b(?:ERROR|WARNING|INFO|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # vLLM
    r"|^\[?(\d\d)/(\d\d)/\d{4} (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?"  # transformers' examples
)
MAX_TIMESTAMP_LINES = 60  # above a line, searched for a timestamp
_TIME_FIELDS = 6
_RANK = re.compile(r"\[?[Rr]ank[ :=]?(\d{1,5})\b")


class ParsedExcerpt:
    """Consecutive lines of one log, raw and cleaned, and the stream (rank) of each line."""

    def __init__(self, source: LogSource, excerpt: Excerpt) -> None:
        self.source = source
        self.number = excerpt.number  # of the first line
        self.last_number = excerpt.number + excerpt.text.count(b"\n")
        self.size = len(excerpt.text)
        text = excerpt.text.decode("utf-8", "replace").removesuffix("\n")
        self.raw = signatures_match.plain(text)
        parted = [signatures_match.split_prefix(line) for line in self.raw]
        self.lines = [line for line, _ in parted]
        self.streams = [stream for _, stream in parted]
        self.by_stream: dict[str, list[int]] = {}
        for index, stream in enumerate(self.streams):
            self.by_stream.setdefault(stream, []).append(index)
        self._long_progress_limits: dict[str, int] = {}

    def has_long_progress_after(self, stream: str, index: int) -> bool:
        """Whether a stream ("": all streams) shows much progress below a line."""
        if stream not in self._long_progress_limits:
            indexes = self.by_stream[stream] if stream else range(len(self.lines))
            shown = activity.steps([self.lines[i] for i in indexes])
            first = next(islice(shown, LONG_PROGRESS_LINES - 1, None), 0)
            self._long_progress_limits[stream] = indexes[first - 1] if first else -1
        return index < self._long_progress_limits[stream]


@dataclass(slots=True)
class Candidate:
    """A line that may be the cause: its weight and position."""

    weight: int
    match: Match
    excerpt: ParsedExcerpt
    index: int
    has_later_progress: bool = False
    is_long_past: bool = False  # much progress came after it: it has no consequences any more
    log: int = 0  # index of its log among the logs
    block_rank: int | None = None  # the rank in the launcher's block, of a line that names none

    @property
    def number(self) -> int:
        """The number of the line in its log, from 1."""
        return self.excerpt.number + self.index

    @property
    def stream(self) -> str:
        """Who wrote the line: `3` (a rank), `pid=9` or ""."""
        return self.excerpt.streams[self.index]

    @property
    def stream_indexes(self) -> list[int]:
        """The indexes of the lines of its own stream."""
        return self.excerpt.by_stream[self.excerpt.streams[self.index]]

    @property
    def score(self) -> int:
        """The weight, reduced by later progress, as another rank may print on after a failure.

        After much progress it counts less than an exception that ended the job. Of two roots a
        traceback counts more than a line of a program that went on to the other one.
        """
        raised = self.match.form == classes.RAISED
        return (
            2 * self.weight
            + raised
            - (5 if self.is_long_past else 3 if self.has_later_progress else 0)
        )

    @property
    def time(self) -> str:
        """The time of its line as sortable text `MM-DD hh:mm:ss.ffffff`, "" if there is none.

        A line without one has that of the nearest line above. The year is left out: few logs in
        glog format have it, and runs do not differ by it.
        """
        for position in range(self.index, max(-1, self.index - MAX_TIMESTAMP_LINES), -1):
            match = _TIMESTAMP.search(self.excerpt.raw[position][:200])
            if match is not None:
                parts = [part for part in match.groups() if part is not None]
                month, day, hour, minute, second = parts[:5]
                fraction = parts[5] if len(parts) == _TIME_FIELDS else "0"
                return f"{month}-{day} {hour}:{minute}:{second}.{fraction[:6]:0<6}"
        return ""

    @property
    def rank(self) -> int | None:
        """The rank that failed, from the message, the line prefix or the file name."""
        quoted = quoted_rank(self)
        if quoted is not None:
            return quoted
        stream = self.excerpt.streams[self.index]
        if stream.isdigit():
            return int(stream)
        match = _RANK.search(self.excerpt.raw[self.index])
        rank = int(match[1]) if match else self.excerpt.source.rank
        return self.block_rank if rank is None else rank
