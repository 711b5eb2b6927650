"""Which lines a run's status and events amount to, beyond what was reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.errors import ConfigError
from safelaunch.runs.events import cursor
from safelaunch.runs.events.changes import KINDS, Notice, RunView, changes
from safelaunch.runs.events.cursor import Cursor, Mark
from safelaunch.runtime.records import (
    AttemptRecord,
    Failure,
    HangReport,
    ProgressReport,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

RUN = "job-20260101-000000-abcd"
LATER = "job-20260101-120000-abcd"
PENDING = RunView(Status(state="pending", created_at=1.0))


def running(*ended: str, step: int | None = None, **status: Any) -> Status:
    """Return the status of a run whose attempts ended so, and whose next one runs."""
    states: list[str | None] = [*ended, None]
    attempts = [
        AttemptRecord(attempt=n, started_at=10.0 * n, state=state, ended_at=5 + 10.0 * n)
        for n, state in enumerate(states, 1)
    ]
    progress = None if step is None else ProgressReport(step=step, done=step)
    if progress is not None:
        progress.last_step_time = 10.0 * len(states)
    return Status(state="running", started_at=10.0, attempts=attempts, progress=progress, **status)


def over(*ended: str, **status: Any) -> RunView:
    """Return a run that is over, as its last attempt."""
    whole = running(*ended, **status)
    whole.attempts = whole.attempts[:-1]
    whole.state, whole.ended_at = ended[-1], 99.0
    failure = Failure(what="no memory", class_name="cuda-oom") if ended[-1] == "failed" else None
    return RunView(whole, is_over=True, failure=lambda: failure)


def lines(*views: RunView, mark: Mark = Mark()) -> list[dict[str, Any]]:  # noqa: B008 - frozen
    """Return the lines of one view after the other."""
    result = []
    for view in views:
        for line, after in changes(mark, view):
            mark = after
            result += [line] if line else []
    return result


def brief(shown: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [(line["event"], line.get("attempt"), line.get("state")) for line in shown]


def test_a_run_that_was_seen_at_each_moment_has_a_line_for_each() -> None:
    shown = lines(PENDING, RunView(running()), over("failed"))
    assert brief(shown) == [
        ("state", None, "pending"),
        ("state", None, "running"),
        ("attempt", 1, "running"),
        ("attempt", 1, "failed"),
        ("failure", None, None),
        ("end", None, "failed"),
    ]


def test_what_happened_while_nobody_looked_is_reported_later() -> None:
    shown = lines(PENDING, over("failed", "failed", "succeeded"))
    assert brief(shown)[1:] == [
        ("state", None, "running"),
        *[
            ("attempt", number, state)
            for number, end in enumerate(["failed", "failed", "succeeded"], 1)
            for state in ("running", end)
        ],
        ("end", None, "succeeded"),
    ]


def test_nothing_is_reported_twice() -> None:
    last = over("failed", step=9, warning="slow")
    assert lines(last, last, last) == lines(last)


def test_steps_come_when_a_line_for_them_is_due() -> None:
    views = [RunView(running(step=step), is_progress_due=step != 2) for step in (1, 2, 2, 3, 3)]
    assert [n["step"] for n in lines(*views) if n["event"] == "progress"] == [1, 3]


def test_the_last_step_of_an_attempt_comes_before_its_end_also_where_none_is_due() -> None:
    end = over("succeeded", step=9)._replace(is_progress_due=False)
    shown = [line["event"] for line in lines(RunView(running(step=8)), end)]
    assert shown[-3:] == ["progress", "attempt", "end"]


def test_of_a_longer_warning_only_the_new_part_is_reported() -> None:
    texts = ["slow disk", "slow disk; no fork server", "host a: other"]
    shown = lines(*(RunView(running(warning=text)) for text in texts))
    warnings = [line["message"] for line in shown if line["event"] == "warning"]
    assert warnings == ["slow disk", "no fork server", "host a: other"]


def test_each_suspected_hang_is_a_warning_once() -> None:
    hangs = [HangReport(silent=60.0), HangReport(silent=70.0), HangReport(over=True)]
    views = [RunView(running(hang=hang)) for hang in [*hangs, *hangs]]
    assert [line.get("hang") for line in lines(*views)[2:]] == [True, True]


def test_other_events_are_notices_and_those_of_the_status_come_once() -> None:
    events = [{"event": "started", "time": 1.0}, {"event": "node-silent", "time": 2.0, "host": "b"}]
    notices = [Notice(0, 10 * n, event) for n, event in enumerate(events, 1)]
    shown = lines(RunView(running(), notices))
    assert [line for line in shown if line["event"] == "notice"] == [
        {"time": 2.0, "event": "notice", "name": "node-silent", "node": 0, "details": {"host": "b"}}
    ]


def test_a_part_has_a_line_with_what_safelaunch_writes_of_one() -> None:
    began = {"event": "part", "time": 1.0, "part": 3, "state": "running", "values": {"lr": "1"}}
    ended = {"event": "part", "time": 2.0, "part": 3, "state": "failed", "class": "cuda-oom"}
    forged = {
        "event": "part",
        "time": 3.0,
        "part": "x",
        "elapsed": "y",
        "run": "other",
        "cursor": 1,
    }
    notices = [Notice(0, n, dict(event)) for n, event in enumerate((began, ended, forged), 1)]
    shown = lines(RunView(running(), notices))
    parts = [line for line in shown if line["event"] == "part"]
    assert parts == [began, ended, {"event": "part", "time": 3.0, "part": 0, "state": ""}]


def test_no_line_comes_after_the_end() -> None:
    late = Notice(1, 5, {"event": "leftovers", "time": 1e9})
    assert lines(over("failed")._replace(notices=[late]))[-1]["event"] == "end"


def test_a_clock_that_is_set_back_changes_no_order() -> None:
    events = [Notice(0, n, {"event": f"e{n}", "time": 100.0 - n}) for n in range(3)]
    shown = lines(RunView(running(), events))
    assert [n["name"] for n in shown if n["event"] == "notice"] == ["e0", "e1", "e2"]


def test_times_are_by_the_clock_of_the_reader() -> None:
    assert lines(RunView(running(), ahead=3.0))[0]["time"] == 7.0


@pytest.mark.parametrize("stop", range(0, 14, 2))
def test_a_reader_that_stops_at_any_line_goes_on_behind_it(stop: int) -> None:
    events = [Notice(0, 10 * n, {"event": "leftovers", "time": 12.0 * n}) for n in range(1, 4)]
    view = over("failed", "failed", step=4, warning="slow")._replace(notices=events, now=98.0)
    whole = lines(view)
    first: list[dict[str, Any]] = []
    mark = Mark()
    for line, after in changes(mark, view):
        if len(first) == stop:
            break
        first += [line] if line else []
        mark = after
    text = Cursor({RUN: mark}).text()
    again = cursor.read(text).runs[RUN]
    rest = [n for n in events if n.position > again.position(0)]
    assert first + lines(view._replace(notices=rest), mark=again) == whole


def test_every_kind_of_line_is_described() -> None:
    notices = [Notice(0, 1, {"event": "x"}), Notice(0, 2, {"event": "part"})]
    view = over("failed", step=1, warning="w")._replace(notices=notices)
    assert {line["event"] for line in lines(PENDING, view)} == set(KINDS) - {"host"}


def test_a_cursor_is_one_short_word_and_reads_back() -> None:
    mark = Mark("running", 1, 0, (1, 9, 9, None), (4, 77), True, ((0, 512), (1, 80)))
    written = Cursor({RUN: mark}, "20260101-000000")
    assert cursor.read(written.text()) == written
    assert len(written.text()) < 200


@pytest.mark.parametrize(
    "text",
    ["", "1.", "x", "1.!!", "2.eJyLVlLSqVZ", "1.eJyLVlLSqVZ", "1.\udcff", "1." + "A" * 999],
)
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no cursor"):
        cursor.read(text)


def test_the_cursor_of_all_runs_forgets_those_that_ended_long_ago() -> None:
    ended, live = Mark(is_over=True), Mark("running")
    old = "old-20260101-000000-abcd"
    runs = {RUN: ended, old: live, LATER: ended}
    assert set(Cursor(runs).with_horizon("20260101-120000").runs) == {old, LATER}


def queued_again(state: str, **status: Any) -> RunView:
    """Return a run whose first attempt an engine has ended, to queue the job again."""
    whole = running("stopped", created_at=1.0, **status)
    whole.attempts, whole.state = whole.attempts[:1], state
    return RunView(whole, is_over=state == "stopped", now=17.0)


def test_a_run_that_is_queued_again_has_the_times_of_its_second_life() -> None:
    views = (RunView(running()), queued_again("pending"), RunView(running("stopped"), now=30.0))
    states = [line for line in lines(PENDING, *views) if line["event"] == "state"]
    assert [(line["state"], line["time"]) for line in states] == [
        *[("pending", 1.0), ("running", 10.0)],
        *[("pending", 17.0), ("running", 20.0)],
    ]


def test_a_run_that_is_cancelled_while_it_is_queued_again_was_not_running_again() -> None:
    end = queued_again("stopped", ended_at=40.0)
    received = lines(RunView(running()), queued_again("pending"), end)
    states = [line.get("state") for line in received if line["event"] in ("state", "end")]
    assert states == ["running", "pending", "stopped"]
