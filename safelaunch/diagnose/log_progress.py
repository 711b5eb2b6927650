"""Tells whether a job went on after a line of its log: by later steps, or as a later run.

Several runs are in one log after `>> log`, in sweeps, and where a script starts the job again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.runtime.signatures import activity, classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from safelaunch.diagnose.evidence import Candidate, ParsedExcerpt

MAX_LINES = 3000  # below a failure
MIN_FIRST_STEPS = 3  # below a failure above which there is none
MAX_LINES_ABOVE = 400  # in which the last step before a failure is searched for
# what a shell or a sweep prints when it starts the next program
_START = re.compile(
    r"\++ (?:\S+=\S* )*\S*(?:python[\d.]*|torchrun|accelerate|deepspeed|srun|mpirun|bash|sh) "
    r"|\W{2,}\s*(?:starting )?(?:run|trial|experiment|attempt|sweep|job|seed|fold|config)"
    r"\W{0,3}\d{1,6}\b.{0,60}$"
    r"|(?:starting |launching )?(?:run|trial|experiment|attempt|job) #?\d{1,6}"
    r"(?: ?(?:/|of) ?\d{1,6})?\W{0,3}$"
    r"|re-?(?:start|launch|run)(?:ing|ed)?\b"
    r"|wandb: agent starting run:|\[.{0,60}\]\[hydra\]\s+#\d{1,6} :",
    re.IGNORECASE,
)
_TRACKER_END = re.compile(r"wandb: .*(?:Find logs at|View run|Synced \d|sync /)")
_TRACKER_START = re.compile(r"wandb: (?:Tracking run with|Run data is saved locally)")
_LAUNCHER_END = "ChildFailedError"
_LAUNCHER_START = "Setting OMP_NUM_THREADS environment variable for each process"


class LogProgress:
    """What shows in one log that the job was at work: of each process, and of any."""

    def __init__(self, excerpts: Iterable[ParsedExcerpt], between: activity.Activity) -> None:
        """Read excerpts; `between` is what the lines outside of them show."""
        self._streams = {"": between}
        for excerpt in excerpts:
            for stream, indexes in excerpt.by_stream.items():
                shown = activity.Activity([excerpt.lines[index] for index in indexes])
                numbers = [excerpt.number + index for index in indexes]
                process = self._streams.setdefault(stream, activity.Activity([]))
                process.update(shown, numbers)
        self.any_process = activity.Activity([])
        for shown in self._streams.values():
            self.any_process.update(shown)

    def disproves(self, candidate: Candidate) -> bool:
        """Whether what stands below a line shows that it ended nothing.

        A warning is disproved by any process, an exception by its own process, or by so many steps
        of others that the job went on without it.
        """
        match, number = candidate.match, candidate.number
        process = self._streams[candidate.stream]
        if match.name == classes.NAN:
            process = self.any_process
        elif match.form == classes.WARNED:  # also what a program that ended well says as it leaves
            process = self.any_process
            if process.good_end:
                return True
        elif match.form == classes.LOGGED:
            process = process if candidate.stream else self.any_process
            if number <= self.any_process.good_end:
                return True
        elif self._has_long_progress_after(candidate):
            return True
        return number <= match.last_disproof(process)

    def _has_long_progress_after(self, candidate: Candidate) -> bool:
        excerpt = candidate.excerpt
        if excerpt.last_number < self.any_process.step:  # in pages beyond it
            return True
        return excerpt.has_long_progress_after("", candidate.index)


class Boundary(NamedTuple):
    """Where a later run starts, and whether only a step below it proves that it ran.

    `is_certain` is false where what failed above may have been handled by the same program.
    """

    number: int
    needs_step: bool = False
    is_certain: bool = True


class LastRun(NamedTuple):
    """The candidates of the last run of a log, its first line, and what ended the runs above."""

    candidates: list[Candidate]
    start: int = 0
    earlier: tuple[Candidate, ...] = ()  # one for each run that failed


def last_run(candidates: list[Candidate], last_step: int) -> LastRun:
    """Return the last run of a log, of which `last_step` is the last line with a step."""
    failures = sorted(filter(_ends_run, candidates), key=lambda candidate: candidate.number)
    starts: list[Boundary] = []
    for failure, following in zip_longest(failures, failures[1:]):
        end = failure.index + MAX_LINES
        if following is not None and following.excerpt is failure.excerpt:
            end = min(end, following.index)  # what stands below that is found from there
        for boundary in _below(failure, end, last_step):
            proof = last_step if boundary.needs_step else max(last_step, failures[-1].number)
            starts += [boundary] if proof >= boundary.number else []
    start = max((boundary.number for boundary in starts), default=0)
    certain = sorted({boundary.number for boundary in starts if boundary.is_certain})
    earlier: dict[int, Candidate] = {}
    for failure in failures:
        run = bisect_right(certain, failure.number)
        if run < len(certain):
            best = earlier.setdefault(run, failure)
            earlier[run] = max(best, failure, key=lambda candidate: candidate.weight)
    last = [candidate for candidate in candidates if candidate.number >= start]
    return LastRun(last, max(certain, default=0), tuple(earlier.values()))


def _ends_run(candidate: Candidate) -> bool:
    if candidate.match.form == classes.LOGGED:
        return candidate.weight >= classes.PLAIN
    return candidate.weight > 0 and candidate.match.form != classes.WARNED


def _below(failure: Candidate, end: int, last_step: int) -> Iterator[Boundary]:
    """Yield the boundaries between a failure and the index of a line."""
    excerpt, index = failure.excerpt, failure.index
    has_tracker_end = has_launcher_end = False
    is_launchers = _LAUNCHER_END in excerpt.lines[index]
    for at in range(index + 1, min(len(excerpt.lines), end)):
        line, number = excerpt.lines[at], excerpt.number + at
        if excerpt.streams[at]:
            continue
        has_tracker_end |= _TRACKER_END.match(line) is not None
        has_launcher_end |= _LAUNCHER_END in line
        if _START.match(line) is not None or (has_tracker_end and _TRACKER_START.match(line)):
            yield Boundary(number)
            break
        if (has_launcher_end or is_launchers) and _LAUNCHER_START in line:
            yield Boundary(number)
            break
    if last_step > failure.number:
        yield from _steps_begin_again(excerpt, index, end)


def _steps_begin_again(excerpt: ParsedExcerpt, index: int, end: int) -> Iterator[Boundary]:
    """Yield the line below a failure if the steps below it are lower than those above it."""
    lines = excerpt.lines
    unprefixed = excerpt.by_stream.get("", [])
    split = bisect_right(unprefixed, index)
    above = reversed(unprefixed[max(0, split - MAX_LINES_ABOVE) : split])
    below = unprefixed[split : bisect_left(unprefixed, end)]
    before = next(filter(None, (activity.step_count(lines[at]) for at in above)), None)
    counts = filter(None, (activity.step_count(lines[at]) for at in below))
    # without a step above, several below: a rank may print one more after another has failed
    after = list(islice(counts, 1 if before else MIN_FIRST_STEPS))
    if before:
        begins_again = any(total == before[1] and count < before[0] for count, total in after)
    else:
        begins_again = len(after) == MIN_FIRST_STEPS
    if begins_again:
        yield Boundary(excerpt.number + index + 1, needs_step=True, is_certain=before is not None)
