"""The lines that a run's status and events amount to, beyond what was reported of it: pure."""

from __future__ import annotations

import heapq
import itertools
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runtime import run_state
from safelaunch.runtime.records import PartEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.runs.events.cursor import Mark
    from safelaunch.runtime.records import AttemptRecord, Failure, Status

    Line = dict[str, Any]
    Step = tuple[float, Line, Callable[[Mark], Mark]]  # time, line, what is reported with it

KINDS = {
    "state": "The run has another state.",
    "attempt": "An attempt has begun (`state` is `running`), or has ended.",
    "part": "A part of the run has begun (`state` is `running`), or has ended.",
    "progress": "The job has made steps.",
    "warning": "The supervisor has noticed something; `hang` is true where it suspects a hang.",
    "notice": "Something else has happened; `name` and `details` are those of events.jsonl.",
    "failure": "Why the run has failed.",
    "end": "The run is over. The last line of a run, and its last change of state.",
    "host": "A host has stopped answering, or answers again (`answers`).",
}
# events of a supervisor whose content the status has too
_IN_STATUS = ("started", "failed", "restarting", "ended", "hang-suspected")
_OF_FAILURE = (
    *("class", "role", "what", "meaning", "why", "advice", "remedy", "restart", "signature"),
    *("attempt", "rank", "node", "host", "exit_code", "signal", "unmet", "log"),
)


class Notice(NamedTuple):
    """An event of a node, and the position behind it in the node's events."""

    node: int
    position: int
    event: Line


class RunView(NamedTuple):
    """A run as it was just seen."""

    status: Status
    notices: Sequence[Notice] = ()  # since those that were reported
    is_over: bool = False
    failure: Callable[[], Failure | None] = lambda: None  # asked for at the end
    now: float = 0.0
    ahead: float = 0.0  # seconds that the clock of its machine is ahead
    is_progress_due: bool = True  # whether a line for further steps is due


def changes(mark: Mark, view: RunView) -> Iterator[tuple[Line, Mark]]:
    """Yield a line for each change, with what is reported of the run once it is.

    The line is empty where nothing is to be said of what has changed.
    """
    if mark.is_over:
        return
    by_node = itertools.groupby(sorted(view.notices, key=lambda n: n.node), lambda n: n.node)
    notices = [_in_order(_notices(list(group), view)) for _, group in by_node]
    own = _in_order(_progress_of_status(mark, view))
    for moment, line, report in heapq.merge(own, *notices, key=lambda step: step[0]):
        mark = report(mark)
        yield ({"time": round(moment, 3), **line} if line else {}), mark
    for moment, line, report in _end(mark, view):
        mark = report(mark)
        yield {"time": round(moment, 3), **line}, mark


def _in_order(steps: Iterator[Step]) -> Iterator[Step]:
    """Yield steps with times that never go back: a clock may have been set."""
    latest = 0.0
    for moment, line, report in steps:
        latest = max(latest, moment)
        yield latest, line, report


def _notices(notices: Sequence[Notice], view: RunView) -> Iterator[Step]:
    for node, position, event in notices:
        details = {key: value for key, value in event.items() if key not in ("event", "time")}
        name, moment = str(event.get("event", "")), event.get("time")
        line = {"event": "notice", "name": name, "node": node, "details": details}
        if name == PartEvent.NAME:
            line = _part(details)
            if view.status.nodes:
                line["node"] = node

        def report(mark: Mark, node: int = node, position: int = position) -> Mark:
            return mark.at(node, position)

        own_time = moment if isinstance(moment, (int, float)) else None
        is_repeated = name in _IN_STATUS or not name
        yield _clock(own_time, view), {} if is_repeated else line, report


def _part(details: Line) -> Line:
    """Return the line of a part, with what safelaunch writes of one, and nothing else of a host."""
    known_keys = {key: value for key, value in details.items() if key in PartEvent.fields()}
    part = PartEvent.from_json(known_keys)
    return {"event": "part", "part": part.part, "state": part.state, **part.to_json()}


def _clock(moment: float | None, view: RunView) -> float:
    """Return a time of the run's machine by the clock of this one; without one the present."""
    return view.now if moment is None else moment - view.ahead


def _progress_of_status(mark: Mark, view: RunView) -> Iterator[Step]:
    """Yield what the status says, but for the end."""
    status = view.status
    attempts = status.attempts
    state = status.state
    has_new = len(attempts) > mark.starts
    if has_new and state in run_state.ENDED and mark.state in ("", "pending"):
        state = "running"  # it was, in between
    if state != mark.state and not (view.is_over and state != "running"):
        yield _state(mark, state, view)
    for index in range(min(mark.ends, len(attempts)), len(attempts)):
        attempt = attempts[index]
        if index >= mark.starts:
            yield _begin(index, attempt, view)
        is_last = index == len(attempts) - 1
        is_due = view.is_progress_due or attempt.state is not None
        if is_last and is_due:
            yield from _steps(mark, view)
        if attempt.state is not None:
            yield _attempt_end(index, attempt, view)
    yield from _warnings(mark, view)


def _state(mark: Mark, state: str, view: RunView) -> Step:
    status, before = view.status, mark.state
    moment = None
    if state == "running" and before in ("", "pending"):
        moment = status.started_at
        if mark.starts:  # an engine had queued it again
            attempts = status.attempts[mark.starts : mark.starts + 1]
            moment = attempts[0].started_at if attempts else None
    elif state == "pending" and not before:
        moment = status.created_at
    line: Line = {"event": "state", "state": state, "before": before or None}
    if state == status.state and status.reason:
        line["reason"] = status.reason
    return _clock(moment, view), line, lambda mark: mark._replace(state=state)


def _begin(index: int, attempt: AttemptRecord, view: RunView) -> Step:
    line = {"event": "attempt", "attempt": attempt.attempt or index + 1, "state": "running"}
    for key in ("port", "resume_checkpoint", "changed_files"):
        value = getattr(attempt, key)
        if value:
            line[key] = value
    return (
        _clock(attempt.started_at, view),
        line,
        lambda mark: mark._replace(starts=max(mark.starts, index + 1)),
    )


def _attempt_end(index: int, attempt: AttemptRecord, view: RunView) -> Step:
    values = attempt.to_json()
    keys = ("state", "exit_code", "class", "rank", "what", "steps", "elapsed", "next")
    line = {"event": "attempt", "attempt": attempt.attempt or index + 1}
    line |= {key: values[key] for key in keys if values.get(key) is not None}
    return (
        _clock(attempt.ended_at, view),
        line,
        lambda mark: mark._replace(ends=max(mark.ends, index + 1)),
    )


def _steps(mark: Mark, view: RunView) -> Iterator[Step]:
    progress = view.status.progress
    if progress is None or (progress.step is None and progress.epoch is None):
        return
    key = (len(view.status.attempts), progress.done, progress.step, progress.epoch)
    if key == mark.progress:
        return
    values = progress.to_json()
    keys = ("step", "total", "scope", "epoch", "epochs", "eta", "step_time", "loss", "metrics")
    line = {"event": "progress", "attempt": key[0]}
    line |= {key: values[key] for key in keys if values.get(key) not in (None, {})}
    moment = _clock(progress.last_step_time, view)
    yield moment, line, lambda mark: mark._replace(progress=key)


def _warnings(mark: Mark, view: RunView) -> Iterator[Step]:
    status = view.status
    text = status.warning or ""
    length, checksum = mark.warning
    if text and (len(text), _checksum(text)) != mark.warning:
        # a supervisor adds to its warnings; those of several nodes change anywhere
        is_longer = length and _checksum(text[:length]) == checksum
        new = text[length:].removeprefix("; ") if is_longer else text
        key = (len(text), _checksum(text))
        yield (
            view.now,
            {"event": "warning", "message": new},
            lambda mark: mark._replace(warning=key),
        )
    hang = status.hang
    is_hang = hang is not None and not hang.over
    if hang is not None and is_hang and not mark.is_hang:
        what = "no step" if hang.kind == "stepless" else "no output and no step"
        line: Line = {
            "event": "warning",
            "message": f"hang suspected: {what} for {hang.silent:.0f} s",
            "hang": True,
        }
        moment = None if hang.since is None else hang.since + hang.silent
        yield _clock(moment, view), line, lambda mark: mark._replace(is_hang=True)
    elif mark.is_hang and not is_hang:
        yield view.now, {}, lambda mark: mark._replace(is_hang=False)


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _end(mark: Mark, view: RunView) -> Iterator[Step]:
    """Yield why the run has failed, and its end."""
    if not view.is_over:
        return
    status = view.status
    moment = _clock(status.ended_at or status.as_of, view)
    failure = None if mark.is_failed else view.failure()
    if failure is not None:
        yield moment, _failure(failure), lambda mark: mark._replace(is_failed=True)
    line: Line = {"event": "end", "state": status.state, "before": mark.state or None}
    line["exit_code"] = status.exit_code
    for key in ("signal", "reason", "elapsed", "stopped_by", "stop_origin", "recovery", "advice"):
        value = getattr(status, key)
        if value is not None:
            line[key] = value
    yield moment, line, lambda mark: mark._replace(state=status.state, is_over=True)


def _failure(failure: Failure) -> Line:
    values = failure.to_json()
    line = {key: values[key] for key in _OF_FAILURE if values.get(key) not in (None, "", [])}
    if failure.frame is not None and failure.frame.file:
        line["frame"] = f"{failure.frame.file}:{failure.frame.line}"
    return {"event": "failure", **line}
